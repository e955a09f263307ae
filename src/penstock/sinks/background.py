"""The sinks of streams that run: beside the queries, on a thread of their own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from penstock.db.pool import Database
from penstock.log.log import Log
from penstock.sinks.runner import Sinks, check_sink

if TYPE_CHECKING:
    from penstock.core.settings import Settings
    from penstock.stream.definition import Definition

_logger = logging.getLogger("penstock.sinks")

#: A query makes its queue when it starts.
_LOOK_SECONDS = 0.2
#: When the queries have ended, sinks go on until they have had nothing to do for so long, but not for ever.
_REST_SECONDS = 0.5
_MOST_REST_SECONDS = 15.0
#: One that hangs in a call is not waited for any longer: its query has to go on, here or elsewhere.
_MOST_WAIT_SECONDS = 40.0


class _Flowing:
    """The sinks of a stream, on a thread."""

    def __init__(self, stream: Definition, settings: Settings) -> None:
        self._stream = stream
        self._queues = sorted({flow.queue for flow in stream.outlets})
        self._settings = settings
        self._ending = threading.Event()
        self._drain = True
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="penstock-sinks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self, *, drain: bool) -> None:
        """Write what is there, or only what is in hand, and end."""
        self._drain = drain
        self._ending.set()
        self._thread.join(_MOST_WAIT_SECONDS)
        if self._thread.is_alive():
            _logger.error(
                "a sink of %s hangs, and is left alone; what it has not taken it gets again", ", ".join(self._queues)
            )

    async def _run(self) -> None:
        log = Log(Database(self._settings))
        try:
            await log.open()
            if not await self._are_made(log):
                return
            await self._until_the_end(Sinks(log=log).follow(self._stream))
            if self._drain:
                await self._write_the_rest(Sinks(log=log).follow(self._stream))
        except Exception as error:
            # The queries go on: what they have put into their queues is not lost.
            _logger.error("the sinks have ended: %s", error)
        finally:
            await log.close()

    async def _are_made(self, log: Log) -> bool:
        """Wait for the queues to be made; False if it ends before."""
        for queue in self._queues:
            while await log.catalog.find(queue) is None:
                if self._ending.is_set():
                    return False
                await asyncio.sleep(_LOOK_SECONDS)
        return True

    async def _until_the_end(self, sinks: Sinks) -> None:
        running = asyncio.create_task(sinks.run())
        while not self._ending.is_set() and not running.done():
            await asyncio.wait([running], timeout=_LOOK_SECONDS)
        is_over = not self._ending.is_set()
        sinks.stop()
        await asyncio.wait([running])
        problem = running.exception()
        if is_over and problem is not None:
            raise problem
        # Where only some have ended, each has said why, and the others write the rest.

    async def _write_the_rest(self, sinks: Sinks) -> None:
        """Write what is there; what a sink does not take in time stays in the queue, and it goes on there next time."""
        running = asyncio.create_task(sinks.run(idle_seconds=_REST_SECONDS))
        await asyncio.wait([running], timeout=_MOST_REST_SECONDS)
        sinks.stop()
        await running


def flowing_beside(stream: Definition, settings: Settings) -> AbstractContextManager[None]:
    """Run the sinks of a stream meanwhile; in the end they write what is there, unless it was an error."""
    for flow in stream.outlets:
        check_sink(flow.sink)
    return _flowing(stream, settings)


@contextmanager
def _flowing(stream: Definition, settings: Settings) -> Iterator[None]:
    flowing = _Flowing(stream, settings)
    flowing.start()
    try:
        yield
    except BaseException:
        flowing.end(drain=False)
        raise
    flowing.end(drain=True)

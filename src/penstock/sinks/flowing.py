"""The sinks of streams that run: beside the queries, on a thread of their own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.db.pool import Database
from penstock.log.log import Log
from penstock.sinks.contract import Sink
from penstock.sinks.runner import Sinks, check_sinks

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


@dataclass(frozen=True)
class Flow:
    """A sink on a queue, at its own pace. A stream may have one among its sinks, and on any queue."""

    queue: str
    sink: Sink
    group: str
    pace: Mapping[str, Any] = field(default_factory=dict)


class _Flow:
    """Sinks on a thread."""

    def __init__(self, settings: Settings, flows: Sequence[Flow]) -> None:
        self._flows = flows
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
            queues = sorted({flow.queue for flow in self._flows})
            _logger.error(
                "a sink of %s hangs, and is left alone; what it has not taken it gets again", ", ".join(queues)
            )

    async def _run(self) -> None:
        log = Log(Database(self._settings))
        try:
            await log.open()
            if not await self._queues(log):
                return
            await self._until_the_end(self._followed(Sinks(log=log)))
            if self._drain:
                await self._write_the_rest(self._followed(Sinks(log=log)))
        except Exception as error:
            # The queries go on: what they have put into their queues is not lost.
            _logger.error("the sinks have ended: %s", error)
        finally:
            await log.close()

    async def _queues(self, log: Log) -> bool:
        """Wait for the queues to be made; False if it ends before."""
        for queue in {flow.queue for flow in self._flows}:
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

    def _followed(self, sinks: Sinks) -> Sinks:
        for flow in self._flows:
            sinks.add(flow.queue, flow.sink, group=flow.group, **flow.pace)
        return sinks


def flowing_beside(stream: Definition, settings: Settings) -> AbstractContextManager[None]:
    """Run the sinks of a stream meanwhile; in the end they write what is there, unless it was an error."""
    others = [outlet for outlet in stream.outlets if isinstance(outlet, Flow)]
    own = check_sinks(outlet for outlet in stream.outlets if not isinstance(outlet, Flow))
    return _flowing(settings, [*(Flow(stream.sink or "", sink, sink.name) for sink in own), *others])


@contextmanager
def _flowing(settings: Settings, flows: Sequence[Flow]) -> Iterator[None]:
    flow = _Flow(settings, flows)
    flow.start()
    try:
        yield
    except BaseException:
        flow.end(drain=False)
        raise
    flow.end(drain=True)

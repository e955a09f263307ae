"""Runs the sinks of a stream in a thread while its query runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from penstock.core.event_loop import EventLoopThread
from penstock.db.pool import Database
from penstock.log.log import Log
from penstock.sinks.delivery.sinks import Sinks, check_sinks
from penstock.sinks.delivery.stop_timeouts import StopTimes

if TYPE_CHECKING:
    from penstock.core.settings import Settings
    from penstock.stream.definition import Definition

_logger = logging.getLogger("penstock.sinks")

#: The interval of checks whether the query has created its queue.
_POLL_SECONDS = 0.2


class _BackgroundSinks:
    """The sinks of a stream on an event loop of their own."""

    def __init__(self, stream: Definition, settings: Settings, times: StopTimes) -> None:
        self._stream = stream
        self._queues = sorted({binding.queue for binding in stream.sink_bindings})
        self._settings = settings
        self._times = times
        self._must_drain = True
        self._loop = EventLoopThread("penstock-sinks")
        self._stopping = asyncio.Event()
        self._running: Future[None] = self._loop.submit(self._run())

    def stop(self, *, drain: bool) -> None:
        """Write the remaining results if ``drain``, else only finish the writes that run, and end."""
        self._must_drain = drain
        self._loop.submit(self._set_stopping())
        deadline = monotonic() + self._times.total
        wait([self._running], self._times.total)
        if not self._loop.close(max(deadline - monotonic(), 0.0)):
            _logger.error(
                "a sink of %s hangs and is left behind; it gets the events that it has not written again",
                ", ".join(self._queues),
            )

    async def _set_stopping(self) -> None:
        self._stopping.set()

    async def _run(self) -> None:
        log = Log(Database(self._settings))
        try:
            await log.open()
            if not await self._wait_for_queues(log):
                return
            await self._run_until_stop(self._create_sinks(log))
            if self._must_drain:
                await self._drain(self._create_sinks(log))
        except Exception as error:
            # The query goes on: its results stay in the queues.
            _logger.error("the sinks have ended: %s", error)
        finally:
            await log.close()

    def _create_sinks(self, log: Log) -> Sinks:
        return Sinks(log=log, stop_seconds=self._times.stop).follow(self._stream)

    async def _wait_for_queues(self, log: Log) -> bool:
        """Wait until the query has created its queues; return False if it ends before."""
        for queue in self._queues:
            while await log.catalog.find(queue) is None:
                if self._stopping.is_set():
                    return False
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_SECONDS):
                        await self._stopping.wait()
        return True

    async def _run_until_stop(self, sinks: Sinks) -> None:
        running = asyncio.create_task(sinks.run())
        stopped = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
        has_ended_early = not self._stopping.is_set()
        stopped.cancel()
        sinks.stop()
        await asyncio.wait([running])
        error = running.exception()
        if has_ended_early and error is not None:
            raise error
        # After a stop, a sink that failed has logged its error, and the other sinks write the remaining results.

    async def _drain(self, sinks: Sinks) -> None:
        """Write the remaining results. The queue keeps those that a sink does not write in time."""
        running = asyncio.create_task(sinks.run(idle_seconds=self._times.idle))
        await asyncio.wait([running], timeout=self._times.drain)
        sinks.stop()
        await running


def run_sinks_in_background(
    stream: Definition, settings: Settings, times: StopTimes | None = None
) -> AbstractContextManager[None]:
    """Run the sinks of a stream while the block runs; after it they write the remaining results, unless it raised."""
    check_sinks(stream)
    return _run_in_background(stream, settings, times or StopTimes())


@contextmanager
def _run_in_background(stream: Definition, settings: Settings, times: StopTimes) -> Iterator[None]:
    sinks = _BackgroundSinks(stream, settings, times)
    try:
        yield
    except BaseException:
        sinks.stop(drain=False)
        raise
    sinks.stop(drain=True)

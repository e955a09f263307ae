"""Runs one sink on one queue: opens it, reads as its group, and stops it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.core.errors import (
    ConfigurationError,
    Conflict,
    CorruptChunk,
    DatabaseError,
    InvalidOption,
    InvalidRequest,
    NotFound,
)
from penstock.core.names import check_name
from penstock.log.read.consume_loop import MAX_POP_WAIT_SECONDS, ConsumeLoop
from penstock.log.read.pop_request import PopRequest
from penstock.sinks.base import Sink, TransactionalSink
from penstock.sinks.delivery.sink_writer import SinkWriter
from penstock.sinks.sink_options import Counters, SinkOptions

if TYPE_CHECKING:
    from penstock.log.event import Event
    from penstock.log.log import Log

_logger = logging.getLogger("penstock.sinks")

#: The interval of attempts to open a sink whose target another process uses.
_STANDBY_SECONDS = 0.5
#: How many partitions may wait for the limits of a gate in memory.
_MAX_PARTITIONS = 2_000
#: How long a full worker waits before it looks again. A partition that begins to wait makes room, without an event.
_LOOK_SECONDS = 0.1
#: How many events are read at once where partitions are written on their own.
_READ_AHEAD = 128


class SinkWorker(ConsumeLoop):
    """Delivers the events of a group to a sink."""

    def __init__(
        self, log: Log, queue: str, sink: Sink, *, group: str | None = None, options: SinkOptions | None = None
    ) -> None:
        super().__init__(log)
        self.sink = check_sink(sink)
        self.queue = check_name(queue, "queue")
        self.group = check_name(sink.name if group is None else group, "group")
        self.counters = Counters()
        #: Whether the sink waits until another process stops using its target.
        self.is_standby = False
        self._log = log
        self._options = options or SinkOptions()
        self._request = PopRequest(
            self.queue,
            self.group,
            batch=self._options.batch or sink.batch,
            partitions=self._options.partitions,
            wait_seconds=MAX_POP_WAIT_SECONDS,
            lease_seconds=self._options.lease_seconds,
            subscribe_from=self._options.start,
        )
        self._writer = SinkWriter(log, self.queue, self.group, sink, self._options, self.counters, self.stopping)
        if self._writer.concurrency > 1 and not sink.is_concurrent:
            raise InvalidOption(
                f"{type(sink).__name__} writes one batch at a time: leave out concurrency", option="concurrency"
            )
        self._tick_seconds = sink.tick_seconds if isinstance(sink, TransactionalSink) else None
        self._ticked_at = 0.0

    def stop(self) -> None:
        """Finish the write that runs, release the other events, and end."""
        self.stopping.set()

    async def run(self, idle_seconds: float | None = None) -> None:
        """Deliver events until :meth:`stop`, or until there were none for ``idle_seconds``."""
        self.counters.running = True
        is_open = False
        try:
            is_open = await self._open(idle_seconds)
            if is_open:
                await self._subscribe()
                self._ticked_at = _now()
                await self.consume(idle_seconds)
            self.stopping.set()
            await self._writer.wait_for_partitions()
        except BaseException:
            self._writer.cancel_partitions()
            raise
        finally:
            self.stopping.set()
            try:
                await self._writer.wait_for_partitions()
            finally:
                self.counters.running = False
                await self._writer.close()
                if is_open:
                    await self.sink.close()
        if self._writer.closed_by is not None:
            raise self._writer.closed_by

    async def _open(self, idle_seconds: float | None) -> bool:
        """Open the sink; return False if the worker is stopped before."""
        begin = _now()
        while not self.stopping.is_set():
            try:
                await self.sink.open()
            except (InvalidRequest, ConfigurationError, NotFound):
                raise
            except Conflict as error:
                if idle_seconds is not None and _now() - begin >= idle_seconds:
                    raise
                if not self.is_standby:
                    _logger.warning("%s: %s; this sink waits until then", self.group, error)
                self.is_standby = True
                await self._writer.sleep(_STANDBY_SECONDS)
            except Exception as error:
                await self._writer.pause(error)
            else:
                self.is_standby = False
                return True
        return False

    async def _subscribe(self) -> None:
        """Create the group before the first pop if an option of the group is set."""
        while self._options.counts is not None and not self.stopping.is_set():
            try:
                await self._log.subscribe(self.queue, self.group, self._options.start)
                await self._log.configure_group(self.queue, self.group, counts=self._options.counts)
                return
            except DatabaseError as error:
                await self._writer.pause(error)

    async def next_request(self) -> PopRequest:
        """Wait while too many partitions fail, and return a pop that ends before the next tick."""
        partitions, writer = self._writer.partition_tasks, self._writer
        most = max(self._options.stuck, 2 * writer.concurrency)
        while not self.stopping.is_set() and (
            len(partitions) - writer.waiting_partitions >= most or len(partitions) >= _MAX_PARTITIONS + most
        ):
            await asyncio.wait(partitions, timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if await writer.writes_partitions():
            return replace(self._request, batch=max(self._request.batch, _READ_AHEAD))
        if self._tick_seconds is None:
            return self._request
        until_tick = max(self._ticked_at + self._tick_seconds - _now(), 0.0)
        return replace(self._request, wait_seconds=min(until_tick, MAX_POP_WAIT_SECONDS))

    async def handle_pop_error(self, error: Exception) -> None:
        """Retry after errors of the database."""
        if not isinstance(error, DatabaseError | CorruptChunk):
            raise error
        await self._writer.pause(error)

    async def deliver(self, events: Sequence[Event]) -> None:
        """Write the events and acknowledge them."""
        await self._writer.deliver(events)

    async def finish_round(self, events: Sequence[Event]) -> None:
        """Pause after a batch that was not full, and tick."""
        if events and len(events) < self._request.batch and self._options.every:
            await self._writer.sleep(self._options.every)
        if self._tick_seconds is not None and _now() >= self._ticked_at + self._tick_seconds:
            self._ticked_at = _now()
            await self._writer.tick()

    def is_busy(self) -> bool:
        """Return whether partitions are written in the background."""
        return bool(self._writer.partition_tasks)


def _now() -> float:
    return asyncio.get_running_loop().time()


def check_sink(sink: object) -> Sink:
    """Return the sink if it is one, or raise InvalidRequest."""
    if not isinstance(sink, Sink):
        raise InvalidRequest(f"a sink is an instance of penstock.sinks.Sink, not {type(sink).__name__}")
    return sink

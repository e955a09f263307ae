"""Writes events to a sink and acknowledges them: retries, dead letters, and the order of each partition."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.core.backoff import RetryTimer
from penstock.core.errors import (
    ConfigurationError,
    DatabaseError,
    InvalidEvent,
    InvalidRequest,
    NotFound,
    QueueFull,
    SinkBusy,
    SinkClosed,
    SinkRejected,
    TransactionRefused,
)
from penstock.db.retry import is_transient
from penstock.log.read.ack import EventStatus
from penstock.log.read.consume_loop import group_by_partition, release_events
from penstock.log.read.lease_keeper import LeaseKeeper
from penstock.sinks.base import Sink, TransactionalSink
from penstock.sinks.delivery.delivery_limits import DeliveryLimits, PartitionBudget

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.log.event import Event
    from penstock.log.log import Log
    from penstock.sinks.sink_options import Counters, SinkOptions

_logger = logging.getLogger("penstock.sinks")

#: Errors of a sink that is unavailable, full or set up wrongly. They make no event a dead letter.
_NO_EVENT_AT_FAULT = (SinkBusy, QueueFull, InvalidRequest, ConfigurationError, NotFound)

#: A partition that has to wait for longer is released until it is due.
_MAX_WAIT_SECONDS = 1.5

#: The most characters of a dead letter's error.
_MAX_ERROR_LENGTH = 2_000


class SinkWriter:
    """Writes batches to one sink.

    A batch that fails is split: each of its partitions is written by a task of its own, in order, while the next
    batches go on. So an event that fails delays only the events after it in its partition, until it is written or
    becomes a dead letter.

    With ``concurrency`` above 1, or behind a gate, every partition is written by a task of its own from the start.
    Behind a gate, a batch has events of one key, and the task reserves their cost before it writes them.
    """

    def __init__(
        self,
        log: Log,
        queue: str,
        group: str,
        sink: Sink,
        options: SinkOptions,
        counters: Counters,
        stopping: asyncio.Event,
    ) -> None:
        self.sink = sink
        #: The most events of a write.
        self.batch = options.batch or sink.batch
        self.concurrency = options.concurrency or sink.concurrency
        keeps_limits = sink.keeps_limits if options.limits is None else options.limits
        self._limits = DeliveryLimits(log, queue, group) if keeps_limits else None
        #: How many of the tasks wait for the limits of a gate.
        self.waiting_partitions = 0
        #: The tasks of the partitions that are written on their own.
        self.partition_tasks: set[asyncio.Task[None]] = set()
        #: The error with which the sink asked to end.
        self.closed_by: SinkClosed | None = None
        self._log = log
        self._queue = queue
        self._group = group
        self._options = options
        self._counters = counters
        self._stopping = stopping
        self._retries = RetryTimer(options.backoff)
        self._slots = asyncio.Semaphore(self.concurrency)
        #: No write begins before this time, because the sink is busy.
        self._busy_until = 0.0
        self._conn: AsyncConnection[Any] | None = None

    async def writes_partitions(self) -> bool:
        """Return whether partitions are written on their own from the start."""
        return self.concurrency > 1 or (self._limits is not None and await self._limits.are_set())

    async def deliver(self, events: Sequence[Event]) -> None:
        """Write a batch, or start a task for each of its partitions; if the write fails, start those tasks then."""
        if not await self.writes_partitions():
            await self._deliver_together(events)
            return
        for partition in group_by_partition(events):
            self._start_partition(partition)

    async def _deliver_together(self, events: Sequence[Event]) -> None:
        retries = RetryTimer(self._options.backoff)
        async with self._keep_leases(events) as lease:
            while not self._is_over(lease):
                try:
                    if await self._write(events, lease, retries):
                        return
                except Exception as error:
                    if not isinstance(error, SinkRejected):
                        await self.pause(error, retries)
                    break
        if lease.is_lost:
            self._count_lost(events)
            return
        for partition in group_by_partition(events):
            self._start_partition(partition)

    def _start_partition(self, events: Sequence[Event]) -> None:
        task = asyncio.create_task(self._deliver_partition(events))
        self.partition_tasks.add(task)
        task.add_done_callback(self.partition_tasks.discard)

    async def tick(self) -> None:
        """Call a transactional sink without events."""
        try:
            async with self._slots:
                if isinstance(self.sink, TransactionalSink):
                    await self._write_and_ack(self.sink, [], [])
        except Exception as error:
            await self.pause(error)

    async def pause(self, error: BaseException, retries: RetryTimer | None = None) -> None:
        """Count a failed attempt and wait before the next one."""
        self._counters.retries += 1
        self._counters.error = _error_text(error)
        pause = (retries or self._retries).next_pause() or 0.0
        _logger.warning("%s: %s; retry in %.1f s", self._group, _error_text(error), pause)
        await self.sleep(pause)

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``, or until the worker stops."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def cancel_partitions(self) -> None:
        """Cancel the tasks of the partitions."""
        for task in self.partition_tasks:
            task.cancel()

    async def wait_for_partitions(self) -> None:
        """Wait for the tasks of the partitions."""
        if self.partition_tasks:
            await asyncio.wait(self.partition_tasks)

    async def close(self) -> None:
        """Store the budgets of a sink behind a gate, and close the connection of a transactional sink."""
        if self._limits is not None:
            await self._limits.close()
        if self._conn is not None:
            await self._conn.close()

    async def _deliver_partition(self, events: Sequence[Event]) -> None:
        """Write a partition's events in order; halve a batch that fails until the event at fault is alone."""
        batches = [list(events[start : start + self.batch]) for start in range(0, len(events), self.batch)]
        attempts = 0
        retries = RetryTimer(self._options.backoff)
        async with self._keep_leases(events) as lease, PartitionBudget(self._limits) as budget:
            while batches and not self._is_over(lease):
                try:
                    allowed = await budget.allow(batches)
                except (DatabaseError, psycopg.Error) as error:
                    await self.pause(error, retries)
                    continue
                batch = batches[0]
                if not allowed:
                    if budget.problem is not None:
                        if await self._make_dead_letter(batch[0], SinkRejected(budget.problem)):
                            batches[:1] = [batch[1:]] if batch[1:] else []
                        else:
                            lease.is_lost = True
                    elif budget.wait_seconds > _MAX_WAIT_SECONDS:
                        with contextlib.suppress(DatabaseError):
                            await self._log.postpone(batch[0], budget.due_at())
                        return
                    else:
                        await self._wait_for_budget(budget.wait_seconds)
                    continue
                if allowed < len(batch):
                    batches[:1] = [batch[:allowed], batch[allowed:]]
                    batch = batches[0]
                try:
                    if not await self._write(batch, lease, retries, budget):
                        continue
                except Exception as error:
                    is_rejected = isinstance(error, SinkRejected)
                    if len(batch) > 1:
                        middle = len(batch) // 2
                        batches[:1] = [batch[:middle], batch[middle:]]
                        if not is_rejected:
                            await self.pause(error, retries)
                        continue
                    attempts += 1
                    if not is_rejected and (self._options.attempts is None or attempts < self._options.attempts):
                        await self.pause(error, retries)
                        continue
                    if not await self._make_dead_letter(batch[0], error):
                        lease.is_lost = True
                        continue
                batches.pop(0)
                attempts = 0
            rest = [event for batch in batches for event in batch]
            if rest and lease.is_lost:
                self._count_lost(rest)
            elif rest:
                with contextlib.suppress(DatabaseError):
                    await release_events(self._log, rest)

    async def _wait_for_budget(self, seconds: float) -> None:
        self.waiting_partitions += 1
        try:
            await self.sleep(seconds)
        finally:
            self.waiting_partitions -= 1

    async def _write(
        self, events: Sequence[Event], lease: LeaseKeeper, retries: RetryTimer, budget: PartitionBudget | None = None
    ) -> bool:
        """Write events and acknowledge them; return False if they are not written and no event is at fault.

        Events that the sink names in SinkRejected become dead letters, and the others are written without them. Behind
        a gate they are written in smaller batches instead, because each attempt needs a reservation.
        """
        accepted = list(events)
        rejected: list[EventStatus] = []
        while True:
            try:
                async with self._slots:
                    if (busy_seconds := self._busy_until - asyncio.get_running_loop().time()) > 0:
                        await self.sleep(busy_seconds)
                    if self._is_over(lease):
                        return False
                    if isinstance(self.sink, TransactionalSink):
                        await self._write_and_ack(self.sink, accepted, rejected)
                    elif accepted:
                        await self._write_to_sink(accepted, budget)
                if not isinstance(self.sink, TransactionalSink) and not await self._acknowledge(accepted, rejected):
                    lease.is_lost = True
                    return False
                break
            except SinkRejected as error:
                indices = {i for i in error.events or () if i in range(len(accepted))}
                if not indices or len(accepted) == 1 or (budget is not None and budget.is_limited):
                    raise
                rejected += [EventStatus(accepted[i], "dead_letter", _error_text(error)) for i in sorted(indices)]
                accepted = [event for i, event in enumerate(accepted) if i not in indices]
            except TransactionRefused:
                lease.is_lost = True
                return False
            except SinkClosed as error:
                self.closed_by = error
                self._stopping.set()
                return False
            except _NO_EVENT_AT_FAULT as error:
                await self._pause_busy(error, retries)
                return False
        self._retries.reset()
        retries.reset()
        self._counters.written += len(accepted)
        self._counters.batches += 1
        self._counters.dead_letters += len(rejected)
        self._counters.error = None
        return True

    async def _write_to_sink(self, events: Sequence[Event], budget: PartitionBudget | None) -> None:
        try:
            await self.sink.write(events)
        except BaseException as error:
            if budget is not None:
                budget.finish_failed(len(events), is_sent=not isinstance(error, SinkBusy) or error.is_sent)
            raise
        if budget is not None:
            budget.finish(len(events))

    async def _acknowledge(self, written: Sequence[Event], rejected: Sequence[EventStatus]) -> bool:
        try:
            if rejected:
                is_acked = all(await self._log.ack_each(_acks(written, rejected)))
            else:
                is_acked = all(await self._log.ack(written))
        except DatabaseError as error:
            # The ack may have been executed. If not, the events are delivered again when their lease expires.
            await self.pause(error)
            return False
        if is_acked:
            await self.sink.acknowledged(written)
        return is_acked

    async def _write_and_ack(
        self, sink: TransactionalSink, events: Sequence[Event], rejected: Sequence[EventStatus]
    ) -> None:
        """Write and acknowledge in one transaction."""
        acks = _acks(events, rejected)
        try:
            if self._conn is None or self._conn.closed or self._conn.broken:
                self._conn = await self._log.database.connect()
            async with self._conn.transaction():
                # The order of locks is the same everywhere: positions, then the sink's tables, then the partitions.
                if acks:
                    await self._log.transact(acks, [], connection=self._conn)
                pushes = await sink.write_in(self._conn, events)
                if pushes:
                    await self._log.transact([], pushes, connection=self._conn)
        except InvalidEvent as error:
            raise SinkRejected(str(error)) from error
        except (psycopg.Error, DatabaseError) as error:
            if isinstance(error, psycopg.Error) and not is_transient(error):
                raise
            # No event is at fault. If the transaction was committed, the repeated acks are refused.
            raise SinkBusy(f"the database is not available: {str(error).strip()}") from error

    async def _make_dead_letter(self, event: Event, error: BaseException) -> bool:
        trace = None if isinstance(error, SinkRejected) else "".join(traceback.format_exception(error))
        text = _error_text(error)
        try:
            (result,) = await self._log.ack(
                [event], "dead_letter", error=text, stage=f"sink {self._group}", traceback=trace
            )
        except DatabaseError as ack_error:
            await self.pause(ack_error)
            return False
        if result:
            self._counters.dead_letters += 1
            _logger.warning("%s: event %s of queue %r is a dead letter: %s", self._group, event.id, self._queue, text)
        return bool(result)

    async def _pause_busy(self, error: Exception, retries: RetryTimer) -> None:
        self._counters.busy += 1
        self._counters.error = _error_text(error)
        retry_after: float | None = getattr(error, "retry_after", None)
        pause = retries.next_pause(None if retry_after is None else max(retry_after, 0.0)) or 0.0
        if isinstance(error, SinkBusy | QueueFull):
            # The sink is busy for the other partitions too.
            self._busy_until = max(self._busy_until, asyncio.get_running_loop().time() + pause)
        level = logging.WARNING if retry_after is None else logging.INFO
        _logger.log(level, "%s: %s; retry in %.1f s", self._group, _error_text(error), pause)
        await self.sleep(pause)

    def _keep_leases(self, events: Sequence[Event]) -> LeaseKeeper:
        return LeaseKeeper(self._log, events, self._options.lease_seconds)

    def _is_over(self, lease: LeaseKeeper) -> bool:
        return lease.is_lost or self._stopping.is_set()

    def _count_lost(self, events: Sequence[Event]) -> None:
        self._counters.lost += len(events)
        _logger.warning(
            "%s: the lease of %d events of queue %r has ended; they are delivered again",
            self._group,
            len(events),
            self._queue,
        )


def _acks(written: Sequence[Event], rejected: Sequence[EventStatus]) -> list[EventStatus]:
    return [*(EventStatus(event, True) for event in written), *rejected]


def _error_text(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return (text if len(text) <= _MAX_ERROR_LENGTH else text[:_MAX_ERROR_LENGTH] + " …").replace("\x00", "�")

"""Release loop for a query's rate-limit gates: releases buffered events as soon as their gates allow."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import AsyncConnection

from penstock.core.errors import LeaseLost
from penstock.db.retry import CONNECTION_ERRORS
from penstock.db.statements import Statements
from penstock.engine.cycle.commit_steps import (
    delete_old_cycles,
    finish_cycle,
    lock_query,
    open_commit_connection,
    widen_search,
)
from penstock.engine.cycle.cycle_result import CommitStats, CommitTarget, CycleResult
from penstock.engine.gates.fair_queue import FairQueue
from penstock.engine.gates.gate_rules import store_gate_rules
from penstock.engine.gates.release import Releaser, ReleaseResult, ReleaseTuning
from penstock.engine.gates.release_buffer import MAX_EVICTED_PARTITIONS, BufferedPartition, ReleaseBuffer
from penstock.engine.gates.release_schedule import NEVER_US, DatabaseClock, ReleaseSchedule
from penstock.log.log import Log
from penstock.stream.gates import ConcurrencyGate, Gate

_logger = logging.getLogger("penstock.engine")
_commit = Statements("penstock.engine.cycle", "commit.sql")

#: Changes of limits are notified here, with the query and the key; key "" stands for all keys.
CHANNEL = "penstock_gates"
#: A partition that has to wait is released again after a multiple of the duration of a release, within these bounds.
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS, _PAUSE_FACTOR = 0.02, 0.25, 3.0
_PAUSED_QUERY_SECONDS = 0.5
_RECONNECT_SECONDS = 1.0
#: Old reports and cycles are deleted once in so many cycles.
_CLEANUP_CYCLES = 1_000

_LOST_CONNECTION = (*CONNECTION_ERRORS, psycopg.errors.IdleInTransactionSessionTimeout)


class ReleaseLoop:
    """Releases the buffered events of one query, while this process holds its lease. Runs in one event loop.

    ``on_release`` gets the counts and the new positions of each release, ``on_failure`` the error that ends the loop.
    """

    def __init__(
        self,
        log: Log,
        target: CommitTarget,
        gates: Sequence[Gate],
        on_release: Callable[[CommitStats, dict[int, int]], None],
        on_failure: Callable[[BaseException], None],
        tuning: ReleaseTuning | None = None,
    ) -> None:
        self._log = log
        self._target = target
        self._gates = tuple(gates)
        self._tuning = tuning or ReleaseTuning()
        self.buffer = ReleaseBuffer([gate.cost for gate in gates])
        self._schedule = ReleaseSchedule(self.buffer.partitions)
        #: None if no gate is shared.
        self._fair_queue = FairQueue(self._tuning.max_partitions) if any(gate.shared for gate in gates) else None
        self._releaser = Releaser(log, target, gates, self._tuning)
        self._on_release = on_release
        self._on_failure = on_failure
        self._conn: AsyncConnection[Any] | None = None
        self._clock = DatabaseClock()
        self._tasks: list[asyncio.Task[None]] = []
        self._wake = asyncio.Event()
        self._releasing = asyncio.Lock()
        #: The keys whose limits have changed since the last release began.
        self._changed_keys: set[str] = set()
        self._next_eviction = 0.0
        self._cleanups = 0

    async def prepare(self) -> None:
        """Store the definition of the gates."""
        await store_gate_rules(self._log, self._target, self._gates)

    async def start(self) -> None:
        self._tasks = [asyncio.create_task(self._guard(self._run())), asyncio.create_task(self._listen_for_changes())]
        if any(isinstance(gate, ConcurrencyGate) for gate in self._gates):
            self._tasks.append(asyncio.create_task(self._guard(self._watch_acks())))

    async def close(self) -> None:
        """Stop between two releases."""
        async with self._releasing:
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._conn is not None:
            await self._conn.close()
            self._conn = None

    async def add_cycle(self, result: CycleResult, table: pa.Table | None) -> None:
        """Buffer the events of a cycle. The rows of the table are in order, and the result has an event for each."""
        failures = [failure for report in result.reports for failure in report.failures]
        outputs = [] if result.outputs is None else result.outputs.to_events()
        for partition in self.buffer.add(result.plan, failures, table, outputs):
            if partition.due_us < NEVER_US:
                self._schedule.push(partition)
        await self._record_cycle(result)
        self._wake.set()

    async def _record_cycle(self, result: CycleResult) -> None:
        """Mark a cycle as done in the ledger. It only fills the buffer, so it commits no events."""
        target, cycle = self._target, result.plan.cycle
        stats = CommitStats(dropped=sum(sum(report.dropped.values()) for report in result.reports))
        async with self._log.database.connection() as conn, conn.transaction():
            await conn.execute("SET LOCAL synchronous_commit = off")
            search = (await lock_query(conn, target)).poison_search
            await finish_cycle(conn, target, result, stats)
            if search is not None:
                params = {
                    "query": target.query_id,
                    "fence": target.fence,
                    "poison_search": widen_search(search, result.plan),
                }
                await conn.execute(_commit["store_poison_search"], params)
            if cycle // _CLEANUP_CYCLES != self._cleanups:
                self._cleanups = cycle // _CLEANUP_CYCLES
                await delete_old_cycles(conn, target, cycle)

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._on_failure(error)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            partitions = self._take_due()
            if partitions:
                async with self._releasing:
                    await self._release(partitions)
                    if self.buffer.size > self._tuning.max_buffer_size and time.monotonic() >= self._next_eviction:
                        self._evict()
                continue
            next_times = [self._schedule.next_us, None if self._fair_queue is None else self._fair_queue.next_us]
            times = [next_us for next_us in next_times if next_us is not None]
            pause = max((min(times) - self._clock.now_us()) / 1e6, 0.0) if times else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    def _take_due(self) -> list[BufferedPartition]:
        now_us = self._clock.now_us()
        if self._fair_queue is None:
            batch: Iterable[int] = self._schedule.pop_due(now_us, self._tuning.max_partitions)
        else:
            batch = self._fair_queue.take_batch(set(self._schedule.pop_due(now_us)), self.buffer.partitions, now_us)
        return [self.buffer.partitions[partition_id] for partition_id in batch]

    async def _release(self, partitions: Sequence[BufferedPartition]) -> None:
        began, changed_keys = time.monotonic(), set[str]()
        self._changed_keys = changed_keys
        result = await self._release_with_retries(partitions)
        seconds = time.monotonic() - began
        self._clock.adjust(result.now_us, result.read_us)
        if result.is_paused:
            await asyncio.sleep(_PAUSED_QUERY_SECONDS)
        pause = min(max(_PAUSE_FACTOR * seconds, _MIN_PAUSE_SECONDS), _MAX_PAUSE_SECONDS)
        earliest_us = self._clock.now_us() + int(pause * 1e6)
        if self._fair_queue is not None and result.allocation is not None:
            self._fair_queue.apply(result.allocation, earliest_us)
        positions = {}
        for partition in partitions:
            candidate = result.candidates.get(partition.partition_id)
            is_blocked = False
            if candidate is not None:
                allocation = candidate.allocation
                self.buffer.drop(partition, allocation.released, candidate.position)
                positions[partition.partition_id] = partition.position
                partition.waits_for_acks = allocation.waits_for_acks
                partition.is_parked = candidate.resumes_us is not None
                partition.due_us = earliest_us if allocation.next_us is None else max(allocation.next_us, earliest_us)
                if len(partition) and (candidate.limits.is_paused or allocation.waits_for_acks):
                    partition.due_us = NEVER_US
                is_blocked = bool(allocation.blocked_by)
            has_new_limits = "" in changed_keys or partition.key in changed_keys
            # A paused query has no candidates: its partitions are due again, whatever they waited for.
            if has_new_limits or candidate is None:
                partition.due_us = earliest_us
            # If the stream has filtered out all events that were read, the buffer is empty but the position moves.
            has_work = len(partition) or partition.position != partition.read_end
            # The fair queue holds blocked partitions.
            is_scheduled = partition.due_us < NEVER_US and (has_new_limits or not is_blocked)
            if partition.partition_id in self.buffer.partitions and has_work and is_scheduled:
                self._schedule.push(partition)
        if result.request is not None:
            self._log.appender.announce([result.request])
        self._on_release(result.stats, positions)

    def _evict(self) -> None:
        """Evict parked partitions until a quarter of the buffer is free. The planner reads them again in time."""
        max_size = self._tuning.max_buffer_size * 3 // 4
        reserved_for = () if self._fair_queue is None else self._fair_queue.reserved_for
        partitions = self.buffer.find_surplus(max_size, reserved_for)
        self.buffer.evict(partitions)
        if self.buffer.size > max_size and len(partitions) < MAX_EVICTED_PARTITIONS:
            # A search through all partitions after every release would take most of the time.
            self._next_eviction = time.monotonic() + self._tuning.poll_seconds
        if self._fair_queue is not None:
            self._fair_queue.discard(partition.partition_id for partition in partitions)

    async def _release_with_retries(self, partitions: Sequence[BufferedPartition]) -> ReleaseResult:
        from penstock.log.catalog import MAX_LAYOUT_RETRIES, is_layout_change

        queue = self._fair_queue
        for attempt in range(1, MAX_LAYOUT_RETRIES + 1):
            conn = await self._connection()
            try:
                return await self._releaser.release(
                    conn,
                    partitions,
                    single_round=queue is not None and queue.has_more,
                    reserved_until=None if queue is None else queue.reserved_until,
                )
            except psycopg.ProgrammingError as error:
                if not is_layout_change(error) or attempt == MAX_LAYOUT_RETRIES:
                    raise
                await self._log.catalog.refresh(self._target.sink or "")
            except (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure):
                if attempt == MAX_LAYOUT_RETRIES:
                    raise
            except _LOST_CONNECTION as error:
                # The commit may have succeeded. The query restarts at the positions in the database.
                raise LeaseLost(f"the connection to PostgreSQL was lost during a release: {error}") from error
        raise AssertionError

    async def _connection(self) -> AsyncConnection[Any]:
        if self._conn is None:
            self._conn = await open_commit_connection(self._log.database, self._target.lease_seconds)
        return self._conn

    def _reschedule(self, partitions: Iterable[BufferedPartition]) -> None:
        for partition in partitions:
            partition.due_us = self._clock.now_us()
            self._schedule.push(partition)
        self._wake.set()

    async def _listen_for_changes(self) -> None:
        """Reschedule partitions whose limits change; all of them after a reconnect, when changes were missed."""
        while True:
            try:
                async with await self._log.database.connect() as conn:
                    await conn.execute(f"LISTEN {CHANNEL}")
                    self._on_limits_changed("")
                    async for notification in conn.notifies():
                        # Any client may notify the channel, with any payload.
                        with contextlib.suppress(ValueError, TypeError):
                            query, key = json.loads(notification.payload)
                            if query == self._target.name:
                                self._on_limits_changed(key)
            except (*CONNECTION_ERRORS, psycopg.Error) as error:
                _logger.debug("the connection that listens for changed limits was lost: %s", error)
                await asyncio.sleep(_RECONNECT_SECONDS)

    def _on_limits_changed(self, key: str) -> None:
        self._changed_keys.add(key)
        self._reschedule(self.buffer.partitions_of(key))

    async def _watch_acks(self) -> None:
        queue = await self._log.catalog.get(self._target.sink or "")
        notifier = self._log.notifier
        while True:
            seen = notifier.count(queue.id)
            waiting = [partition for partition in self.buffer.partitions.values() if partition.waits_for_acks]
            if waiting:
                self._reschedule(waiting)
                await asyncio.sleep(_MIN_PAUSE_SECONDS)
            await notifier.wait(queue.id, seen, self._tuning.poll_seconds)

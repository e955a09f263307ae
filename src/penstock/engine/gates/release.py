"""Release events: one transaction in which gates decide and the released events appear in the sink queue.

Spark's cycles only fill the release buffer. A release moves the group's positions, appends the released events to the
sink queue with the time of the decision, stores the state of the gates and dead-letters events that can never be
released. All of that happens in one transaction, under the query's fencing number, by the database's clock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg
from psycopg import AsyncConnection

from penstock.core.clock import to_micros
from penstock.core.errors import LeaseLost
from penstock.db.statements import Statements
from penstock.engine.cycle.commit_steps import advance_positions
from penstock.engine.cycle.cycle_result import CommitStats, CommitTarget
from penstock.engine.cycle.output_events import partition_outputs
from penstock.engine.gates.allocation import Allocation, allocate
from penstock.engine.gates.event_costs import cost_at, gate_headers
from penstock.engine.gates.gate_rules import PAUSED_UNTIL_US
from penstock.engine.gates.gate_state import Candidate, GateState
from penstock.engine.gates.release_buffer import BufferedPartition
from penstock.engine.gates.release_schedule import local_us
from penstock.engine.results.output_rows import OutputEvent, OutputRows
from penstock.log.dead_letters.dead_letter import FailedEvent
from penstock.log.log import Log
from penstock.log.write.flush import AppendRequest
from penstock.stream.gates import NANOS_PER_TOKEN, Gate

_sql = Statements("penstock.engine.gates", "release.sql")


@dataclass(frozen=True, slots=True)
class ReleaseTuning:
    """Internal limits and intervals of the release loop. The defaults suit all queries; tests use smaller ones."""

    #: A release locks the query's row, so it covers at most so many partitions.
    max_partitions: int = 1_000
    #: If the buffer is larger, parked partitions are evicted, longest waits first, until a quarter is free. Only
    #: parked ones: the planner reads at most half as many events, however large they are.
    max_buffer_size: int = 200_000
    #: Fallback interval for lost notifications of acks, and for the search for partitions to evict.
    poll_seconds: float = 1.0
    #: A partition is parked if it has to wait for longer. The planner does not look at parked partitions.
    park_after_us: int = 3_000_000
    #: A parked partition resumes so long before its time, to be read into the buffer.
    resume_early_us: int = 1_500_000


@dataclass(slots=True)
class ReleaseResult:
    #: The database's time of the decision, and the local time at which it was read.
    now_us: int = 0
    read_us: int = 0
    is_paused: bool = False
    stats: CommitStats = field(default_factory=CommitStats)
    #: None if the query is paused.
    allocation: Allocation | None = None
    #: The partitions by id; empty if the query is paused.
    candidates: dict[int, Candidate] = field(default_factory=dict)
    request: AppendRequest | None = None


class Releaser:
    def __init__(self, log: Log, target: CommitTarget, gates: Sequence[Gate], tuning: ReleaseTuning) -> None:
        self._log = log
        self._target = target
        self._state = GateState(log, target, gates)
        self._gates = gates
        self._has_costs = any(gate.cost.fixed != NANOS_PER_TOKEN for gate in gates)
        self._tuning = tuning

    async def release(
        self,
        conn: AsyncConnection[Any],
        partitions: Sequence[BufferedPartition],
        *,
        single_round: bool = False,
        reserved_until: Mapping[int, int] | None = None,
    ) -> ReleaseResult:
        """Release what the gates of these partitions allow. The buffered partitions are not changed.

        With ``single_round``, other partitions wait for the same shared budget, so none is served twice.
        ``reserved_until`` has the shared gates that were reserved up to now.
        """
        result = ReleaseResult()
        async with conn.transaction():
            if not await self._release(conn, partitions, result, single_round, reserved_until or {}):
                # An empty transaction is not worth its disk write.
                raise psycopg.Rollback
        return result

    async def _release(
        self,
        conn: AsyncConnection[Any],
        partitions: Sequence[BufferedPartition],
        result: ReleaseResult,
        single_round: bool,
        reserved_until: Mapping[int, int],
    ) -> bool:
        """Return whether there is something to commit."""
        began = time.perf_counter()
        params = {"query": self._target.query_id, "fence": self._target.fence}
        row = await (await conn.execute(_sql["lock_for_release"], params)).fetchone()
        if row is None:
            raise LeaseLost(f"query {self._target.name!r} was taken over by another driver")
        cycle, result.is_paused, now = row
        result.read_us, result.now_us = local_us(), to_micros(now)
        if result.is_paused:
            return False
        candidates, shared = await self._state.load(conn, partitions, result.now_us)
        allocation = allocate(
            [each.demand for each in candidates], shared.meters, shared.next_partition, single_round=single_round
        )
        for each in candidates:
            each.allocation = allocation.partitions[each.buffered.partition_id]
            each.position = each.buffered.position_after(each.allocation.released)
            each.resumes_us = self._resume_time(each, result.now_us)
        result.allocation = allocation
        result.candidates = {each.buffered.partition_id: each for each in candidates}
        moved = [each for each in candidates if each.has_moved]
        changed = [each for each in candidates if each.has_changed]
        ends_early = any(
            allocation.reserved_until.get(gate, result.now_us) < until_us - self._tuning.resume_early_us
            for gate, until_us in reserved_until.items()
        )
        if ends_early:
            # Partitions that are parked until the end of the reservation and are not buffered resume now. This comes
            # before other partitions are parked.
            await conn.execute(_sql["resume_early"], {**params, "now": now, "paused_until": PAUSED_UNTIL_US})
        if not changed:
            return ends_early
        await advance_positions(conn, self._target.name, [each.move for each in moved], now)
        await self._state.store(conn, changed, allocation, shared, now)
        result.stats.events_in = sum(each.position - each.buffered.position for each in moved)
        await self._store_dead_letters(conn, moved, result.stats)
        result.request = await self._append(conn, moved, result.stats, now)
        await self._record(conn, cycle, now, result.stats, time.perf_counter() - began)
        return True

    def _resume_time(self, candidate: Candidate, now_us: int) -> int | None:
        next_us = candidate.allocation.next_us
        if next_us is not None and next_us > now_us + self._tuning.park_after_us:
            return next_us - self._tuning.resume_early_us
        return PAUSED_UNTIL_US if candidate.limits.is_paused and candidate.demand.count else None

    async def _store_dead_letters(
        self, conn: AsyncConnection[Any], moved: Sequence[Candidate], stats: CommitStats
    ) -> None:
        sources = {source.queue_id: source for source in self._target.groups}
        for each in moved:
            failed = [
                FailedEvent(failure.offset, failure.error, failure.stage, failure.traceback, failure.attempts)
                for failure in each.failures
            ]
            if failed:
                stats.dead += len(failed)
                source = sources[each.buffered.queue_id]
                queue = await self._log.catalog.get(source.queue)
                await self._log.dead_letter_store.add(conn, queue, source.group, each.buffered.partition_id, failed)

    async def _append(
        self, conn: AsyncConnection[Any], moved: Sequence[Candidate], stats: CommitStats, now: datetime
    ) -> AppendRequest | None:
        outputs: list[OutputEvent] = []
        headers: list[dict[str, str] | None] = []
        for each in moved:
            buffered, dead_letters = each.buffered, each.buffered.dead_letters
            released = buffered.offsets[: each.allocation.released]
            for index, (offset, events) in enumerate(zip(released, buffered.outputs, strict=False)):
                if offset not in dead_letters:
                    outputs += events
                    if self._has_costs or any(key != buffered.key for key, _ in events):
                        headers += [None] * (len(outputs) - len(events) - len(headers))
                        headers += self._headers(each, index, events)
        stats.events_out = len(outputs)
        if not outputs or self._target.sink is None:
            return None
        has_headers = any(headers)
        headers += [None] * (len(outputs) - len(headers))
        queue = await self._log.catalog.get(self._target.sink)
        request = AppendRequest(
            [partition_outputs(queue, OutputRows.of(outputs), headers=headers if has_headers else None)]
        )
        partition_ids = await self._log.appender.partition_ids([request])
        await self._log.appender.append_on(conn, [request], partition_ids, at=now)
        return request

    def _headers(self, each: Candidate, index: int, events: Sequence[OutputEvent]) -> list[dict[str, str] | None]:
        """Return the headers with which sinks keep the limits. The first of several outputs has a computed cost."""
        costs = [
            [
                cost_at(each.demand.costs[number], index) if gate.cost.fixed is None else gate.cost.fixed,
                gate.cost.fixed or 0,
            ]
            for number, gate in enumerate(self._gates)
        ]
        return [
            gate_headers([first if not i else other for first, other in costs], each.buffered.key, key)
            for i, (key, _) in enumerate(events)
        ]

    async def _record(
        self, conn: AsyncConnection[Any], cycle: int, now: datetime, stats: CommitStats, seconds: float
    ) -> None:
        """Write the release to the ledger and to the totals."""
        params = {
            "query": self._target.query_id,
            "fence": self._target.fence,
            "cycle": cycle,
            "now": now,
            "events_in": stats.events_in,
            "events_out": stats.events_out,
            "dead": stats.dead,
            "took": json.dumps({"release": round(seconds * 1000, 1)}),
        }
        await conn.execute(_sql["record_release"], params)

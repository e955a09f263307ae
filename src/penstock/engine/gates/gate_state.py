"""The stored state of a query's gates: loaded before a release decides, stored with what it released."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from penstock.core.clock import to_micros
from penstock.core.errors import LeaseLost
from penstock.db.pg_arrays import int_array
from penstock.db.statements import Statements
from penstock.engine.cycle.commit_steps import PositionMove
from penstock.engine.cycle.cycle_result import CommitTarget
from penstock.engine.gates.allocation import Allocation, PartitionAllocation, PartitionDemand
from penstock.engine.gates.event_costs import total_cost
from penstock.engine.gates.limit_overrides import (
    LimitOverrides,
    LimitRow,
    PartitionLimits,
    build_meter,
    default_limit,
    prefetch_target,
)
from penstock.engine.gates.rate_limiters import Limit, Meter, MeterState
from penstock.engine.gates.release_buffer import BufferedPartition
from penstock.engine.worker.task_reports import EventFailure
from penstock.log.log import Log
from penstock.stream.gates import NANOS_PER_TOKEN, ConcurrencyGate, Gate

_sql = Statements("penstock.engine.gates", "gate_state.sql")

#: The id under which the state of a shared gate is stored.
_ALL_PARTITIONS = 0


@dataclass(slots=True)
class StoredPartition:
    """The stored state of a partition."""

    partition_id: int
    #: Offsets that the group has passed, and events that were released.
    passed: int = 0
    released: int = 0
    deficit: int = 0
    is_denied: bool = False
    has_next_time: bool = False
    is_parked: bool = False
    #: The cost of all released events, by the number of the gate.
    cost_totals: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Candidate:
    """A partition in a release: its limits, its stored state, its demand and the allocation."""

    buffered: BufferedPartition
    limits: PartitionLimits
    stored: StoredPartition
    demand: PartitionDemand
    allocation: PartitionAllocation = field(default_factory=lambda: PartitionAllocation(0))
    #: The group's position after the release. More events may be buffered while the release is written.
    position: int = 0
    #: When a parked partition resumes; None if it is not parked.
    resumes_us: int | None = None

    @property
    def has_moved(self) -> bool:
        return self.position != self.buffered.position

    @property
    def move(self) -> PositionMove:
        buffered = self.buffered
        return PositionMove(buffered.group_id, buffered.partition_id, buffered.position, self.position)

    @property
    def has_changed(self) -> bool:
        stored, allocation = self.stored, self.allocation
        return (
            self.has_moved
            or allocation.is_denied != stored.is_denied
            or (self.resumes_us is not None) != stored.is_parked
            or (allocation.next_us is not None and not stored.has_next_time)
        )

    @property
    def failures(self) -> list[EventFailure]:
        """The released offsets that are dead letters."""
        dead_letters, offsets = self.buffered.dead_letters, self.buffered.offsets[: self.allocation.released]
        return [dead_letters[offset] for offset in offsets if offset in dead_letters] if dead_letters else []

    @property
    def released_events(self) -> int:
        return self.allocation.released - len(self.failures)

    def prefetch_target(self) -> int:
        """Return how many offsets to buffer, by the mean cost of an event and the share that the stream filters out."""
        stored = self.stored
        events = max(1, stored.released + self.released_events)
        mean_costs = []
        for number, costs in enumerate(self.demand.costs, 1):
            if isinstance(costs, int):
                mean_costs.append(float(costs))
            else:
                before = stored.cost_totals.get(str(number), 0.0) * NANOS_PER_TOKEN
                mean_costs.append((before + total_cost(costs, self.allocation.released)) / events)
        offsets = stored.passed + self.position - self.buffered.position
        target = prefetch_target(self.limits.gates, mean_costs)
        return min(int(target * max(1.0, offsets / events)), 10 * target) + 1


@dataclass(slots=True)
class SharedBudgets:
    """The budgets of shared gates, and the partition whose turn it is."""

    limits: PartitionLimits
    #: One entry per gate; None for a gate that is not shared.
    meters: list[Meter | None]
    next_partition: int


class _MeterRow(NamedTuple):
    partition_id: int
    gate: int
    at_us: int
    level: Decimal | None
    grant_times: list[int] | None
    grant_costs: list[int] | None
    turn: int

    def to_state(self) -> MeterState:
        # The database stores the level in tokens, the meter in 1e-15 of a token.
        level = 0 if self.level is None else int(self.level.scaleb(15))
        return MeterState(self.at_us, level, tuple(self.grant_times or ()), tuple(self.grant_costs or ()))


class GateState:
    def __init__(self, log: Log, target: CommitTarget, gates: Sequence[Gate]) -> None:
        self._log = log
        self._target = target
        self._gates = tuple(gates)
        self._limits = [default_limit(gate) for gate in gates]

    async def load(
        self, conn: AsyncConnection[Any], partitions: Sequence[BufferedPartition], now_us: int
    ) -> tuple[list[Candidate], SharedBudgets]:
        query, ids = self._target.query_id, [partition.partition_id for partition in partitions]
        params = {"query": query, "partitions": int_array(ids)}
        rows = [StoredPartition(*row) for row in await _fetch(conn, "partitions", params)]
        stored = {row.partition_id: row for row in rows}
        params = {"query": query, "partitions": int_array([_ALL_PARTITIONS, *ids])}
        meter_rows = [_MeterRow._make(row) for row in await _fetch(conn, "meters", params)]
        states = {(row.partition_id, row.gate): row.to_state() for row in meter_rows}
        params = {"name": self._target.name, "keys": ["", *(partition.key for partition in partitions)]}
        overrides = LimitOverrides(map(LimitRow._make, await _fetch(conn, "limits", params)), self._limits)
        in_flight = [await self._count_in_flight(conn, gate, partitions) for gate in self._gates]

        def build_meters(partition_id: int, limits: PartitionLimits, *, shared: bool) -> list[Meter | None]:
            gates = zip(self._gates, limits.gates, in_flight, strict=True)
            return [
                build_meter(
                    limit, states.get((partition_id, n)), now_us, limits.held_until_us, counts.get(partition_id, 0)
                )
                if gate.shared is shared
                else None
                for n, (gate, limit, counts) in enumerate(gates, 1)
            ]

        common = overrides.common
        turns = [row.turn for row in meter_rows if row.partition_id == _ALL_PARTITIONS]
        shared_meters = build_meters(_ALL_PARTITIONS, common, shared=True)
        shared = SharedBudgets(common, shared_meters, max(turns, default=0))

        candidates = []
        for partition in partitions:
            partition_id = partition.partition_id
            limits = overrides.limits_of(partition.key)
            partition.find_unreleasable(self._gates, limits)
            known = stored.get(partition_id) or StoredPartition(partition_id)
            demand = PartitionDemand(
                partition_id,
                len(partition),
                [partition.costs_at(index, gate.cost) for index, gate in enumerate(self._gates)],
                build_meters(partition_id, limits, shared=False),
                limits.weight,
                known.deficit,
                limits.is_paused,
                limits.held_until_us if limits.held_until_us > now_us else 0,
            )
            candidates.append(Candidate(partition, limits, known, demand))
        return candidates, shared

    async def store(
        self,
        conn: AsyncConnection[Any],
        changed: Sequence[Candidate],
        allocation: Allocation,
        shared: SharedBudgets,
        now: datetime,
    ) -> None:
        params = {
            "query": self._target.query_id,
            "now": now,
            "partitions": int_array([each.buffered.partition_id for each in changed]),
            "keys": [each.buffered.key for each in changed],
            "passed": int_array([each.position - each.buffered.position for each in changed]),
            "allowed": int_array([each.released_events for each in changed]),
            "denied": [each.allocation.is_denied for each in changed],
            "nexts": int_array([each.allocation.next_us for each in changed]),
            "wakes": int_array([each.resumes_us for each in changed]),
            "waits": [each.allocation.waits_for_acks for each in changed],
            "deficits": int_array([each.demand.deficit for each in changed]),
            "wants": int_array([each.prefetch_target() for each in changed]),
        }
        await conn.execute(_sql["store_partitions"], params)
        updates = [*self._meter_updates(changed, allocation, shared, to_micros(now))]
        if updates:
            columns = {name: [update[name] for update in updates] for name in updates[0]}
            params = {
                name: values if name in ("times", "grants") else int_array(values) for name, values in columns.items()
            }
            await conn.execute(_sql["store_meters"], {"query": self._target.query_id, **params})
        group = changed[0].buffered.group_id
        parked = [e.buffered.partition_id for e in changed if e.resumes_us is not None and not e.stored.is_parked]
        resumed = [e.buffered.partition_id for e in changed if e.resumes_us is None and e.stored.is_parked]
        for statement, ids in (("park", parked), ("resume", resumed)):
            if ids:
                await conn.execute(_sql[statement], {"group": group, "partitions": int_array(ids)})

    def _meter_updates(
        self, changed: Sequence[Candidate], allocation: Allocation, shared: SharedBudgets, now_us: int
    ) -> Iterator[dict[str, Any]]:
        for each in changed:
            released = each.allocation.released
            if not released:
                continue
            for number, (limit, meter, costs) in enumerate(
                zip(each.limits.gates, each.demand.meters, each.demand.costs, strict=True), 1
            ):
                if meter is not None:
                    cost = total_cost(costs, released)
                    yield _meter_update(each.buffered.partition_id, number, limit, meter, cost, 0, now_us)
        if allocation.next_partition == shared.next_partition and not any(e.allocation.released for e in changed):
            return
        for number, (limit, meter) in enumerate(zip(shared.limits.gates, shared.meters, strict=True), 1):
            if meter is not None:
                cost = sum(total_cost(each.demand.costs[number - 1], each.allocation.released) for each in changed)
                turn = allocation.next_partition
                yield _meter_update(_ALL_PARTITIONS, number, limit, meter, cost, turn, now_us)

    async def _count_in_flight(
        self, conn: AsyncConnection[Any], gate: Gate, partitions: Sequence[BufferedPartition]
    ) -> dict[int, int]:
        """Count the events of each partition that a concurrency gate's group has not acknowledged."""
        if not isinstance(gate, ConcurrencyGate) or self._target.sink is None:
            return {}
        queue = await self._log.catalog.get(self._target.sink)
        group = await self._log.consumer_groups.get_on(conn, queue, gate.group)
        if group is None:
            raise LeaseLost(
                f"queue {queue.name!r} has no group {gate.group!r}, whose acks a concurrency gate counts; the query "
                "restarts and subscribes it again"
            )
        params = {
            "partitions": int_array([partition.partition_id for partition in partitions]),
            "keys": [partition.key for partition in partitions],
            "sink": queue.id,
            "epoch": queue.epoch,
            "group": group.id,
        }
        rows = await (await conn.execute(_sql.table("in_flight", queue.id, queue.segment), params)).fetchall()
        return dict(rows)


async def _fetch(conn: AsyncConnection[Any], statement: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
    return await (await conn.execute(_sql[statement], params)).fetchall()


def _meter_update(
    partition_id: int, number: int, limit: Limit, meter: Meter, cost: int, turn: int, now_us: int
) -> dict[str, Any]:
    """Return a row to store. The names are those of the statement's parameters."""
    state = meter.state() or MeterState(now_us)
    is_bucket, is_window = limit.kind == "token_bucket", limit.kind == "sliding_window"
    return {
        "partitions": partition_id,
        "gates": number,
        "amounts": f"{limit.amount}e-9",
        "rates": f"{limit.rate}e-9" if is_bucket else None,
        "windows": limit.window_us if is_window else None,
        "ats": state.at_us,
        "levels": f"{state.level}e-15" if is_bucket else None,
        "times": int_array(state.times) if is_window else None,
        "grants": int_array(state.costs) if is_window else None,
        "costs": f"{cost}e-9",
        "turns": turn,
    }

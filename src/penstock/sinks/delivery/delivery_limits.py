"""Keeps deliveries of a sink behind a gate within the gate's limits.

A sink reserves the cost of events before it sends them. The reservation is committed first, so a crash can only make
the sink send less. While the process runs, its budgets follow a monotonic clock: setting the database's clock does not
change them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from itertools import chain, islice, takewhile
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import psycopg

from penstock.core.clock import from_micros, to_micros
from penstock.core.errors import DatabaseError
from penstock.db.pg_arrays import int_array
from penstock.db.statements import Statements
from penstock.engine.gates.delivery_meters import DeliveryMeter, StoredDelivery, build_delivery_meter
from penstock.engine.gates.event_costs import event_costs, event_gate_key
from penstock.engine.gates.limit_overrides import LimitOverrides, LimitRow
from penstock.engine.gates.rate_limiters import Limit, MeterState
from penstock.log.group_commit import GroupCommit
from penstock.stream.gates import NANOS_PER_TOKEN, find_cost_problem

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.log.event import Event
    from penstock.log.log import Log

_logger = logging.getLogger("penstock.sinks")
_sql = Statements("penstock.sinks.delivery", "delivery_limits.sql")

#: How often a sink looks whether a gated query writes to its queue.
_REFRESH_SECONDS = 1.0
#: The wait of a paused key before it is looked at again.
_PAUSED_US = 2_000_000
#: A waiting key is looked at after this time at the latest, later if there are many keys.
_LONGEST_WAIT_US = 5_000_000
_WAIT_PER_KEY_US = 10_000
#: The least wait, for a budget that only the end of another request frees.
_MIN_WAIT_US = 5_000
#: One reservation covers at most so many events.
MAX_RESERVED_EVENTS = 100
#: A stored time that is later than now by more than this means that the database's clock was set back.
_CLOCK_SET_BACK_US = 5_000_000
#: Budgets that are kept in memory. Those without events in flight are dropped above it.
_MAX_METERS = 50_000

_SHARED_KEY = ""


class _MeterKey(NamedTuple):
    key: str
    gate: int


class _DeliveryMeterRow(NamedTuple):
    key: str
    gate: int
    amount: int
    rate: int
    at_us: int
    in_flight: int
    level: Decimal | None
    grant_times: list[int] | None
    grant_costs: list[int] | None

    def to_stored(self, limit: Limit) -> StoredDelivery:
        """Return the stored budget of a gate whose limit is ``limit`` now."""
        level = 0 if self.level is None else int(self.level.scaleb(15))
        state = MeterState(self.at_us, level, tuple(self.grant_times or ()), tuple(self.grant_costs or ()))
        return StoredDelivery(state, self.in_flight, replace(limit, amount=self.amount, rate=self.rate))


@dataclass(slots=True)
class _TrackedMeter:
    meter: DeliveryMeter
    #: The row as this process wrote it. Another row is another process's.
    stored: _DeliveryMeterRow | None


@dataclass(slots=True, eq=False)
class Reservation:
    """The events that may be sent now; ``wait_us`` until the next one if there are none."""

    group_id: int
    key: str
    #: For each event, its cost at each gate.
    costs: Sequence[tuple[int, ...]]
    count: int = 0
    wait_us: int = 0
    #: Why the first event can never be sent.
    problem: str | None = None
    #: Events at the front that were sent, or need not be.
    finished: int = 0
    #: For each event, the charged budgets and the costs.
    charges: list[list[tuple[_TrackedMeter, int]]] = field(default_factory=list)

    @property
    def remaining(self) -> int:
        """The number of reserved events that are not finished."""
        return self.count - self.finished


class DeliveryLimits:
    """The limits of the deliveries of one group."""

    def __init__(self, log: Log, queue: str, group: str) -> None:
        self._log = log
        self._queue = queue
        self._group = group
        self._refreshed_at = float("-inf")
        self._is_loaded = False
        self._group_id: int | None = None
        self._query: str | None = None
        #: The limits of the gates, without overrides.
        self._gates: tuple[Limit, ...] = ()
        self._meters: dict[_MeterKey, _TrackedMeter] = {}
        #: The steady clock of the budgets, and the database's clock, less this process's monotonic clock.
        self._offset_us: int | None = None
        #: How far the steady clock may be behind the database's clock. Stored times are later by this, so that no other
        #: process takes them for too old.
        self._uncertainty_us = 0
        self._database_offset_us = 0
        self._reservations = GroupCommit(self._reserve_all)

    async def are_set(self) -> bool:
        """Return whether a query with rate limits writes to the queue. The answer may be a second old.

        It is yes until the database has been asked.
        """
        now = time.monotonic()
        if now - self._refreshed_at >= _REFRESH_SECONDS:
            try:
                async with self._log.database.connection() as conn:
                    await self._load_gates(conn)
            except (DatabaseError, psycopg.Error) as error:
                _logger.warning("%s: the limits of the gate cannot be read: %s", self._group, error)
            else:
                self._is_loaded = True
            self._refreshed_at = now
        return self._query is not None or not self._is_loaded

    async def reserve(self, events: Sequence[Event]) -> Reservation:
        """Reserve the cost of the first events, which must have one key, as far as the limits allow."""
        first = events[0]
        costs = [event_costs(event, len(self._gates)) for event in events[:MAX_RESERVED_EVENTS]]
        reservation = Reservation(first.delivery.group_id, event_gate_key(first), costs)
        await self._reservations.submit(reservation)
        return reservation

    def finish(self, reservation: Reservation, count: int, *, is_sent: bool) -> None:
        """End the delivery of the next events of a reservation. Their cost is returned if they were not sent."""
        now_us = self._now_us()
        for charges in reservation.charges[reservation.finished : reservation.finished + count]:
            for tracked, cost in charges:
                if is_sent:
                    tracked.meter.complete(cost, now_us)
                else:
                    tracked.meter.cancel(cost)
        reservation.finished += count

    async def close(self) -> None:
        """Store when the last events arrived, so that the next process need not assume the worst."""
        if self._group_id is None:
            return
        try:
            async with self._log.database.connection() as conn, conn.transaction():
                await conn.execute(_sql["lock"], {"group": self._group_id})
                params = {"group": self._group_id, "keys": sorted({meter_key.key for meter_key in self._meters})}
                rows = await (await conn.execute(_sql["meters"], params)).fetchall()
                own = {
                    meter_key: self._meters[meter_key]
                    for row in map(_DeliveryMeterRow._make, rows)
                    if (meter_key := _MeterKey(row.key, row.gate)) in self._meters
                    and self._meters[meter_key].stored == row
                }
                await self._store(conn, self._group_id, own)
        except (DatabaseError, psycopg.Error) as error:
            _logger.warning("%s: the budgets of the last deliveries are not stored: %s", self._group, error)

    def due_at(self, wait_us: int) -> datetime:
        """Return the database's time after a wait, or sooner, because the limits can change meanwhile."""
        longest_us = _LONGEST_WAIT_US + _WAIT_PER_KEY_US * len(self._meters)
        return from_micros(_monotonic_us() + self._database_offset_us + min(wait_us, longest_us))

    def _now_us(self) -> int:
        return _monotonic_us() + (self._offset_us or 0)

    async def _load_gates(self, conn: AsyncConnection[Any]) -> None:
        rows = await (await conn.execute(_sql["gates"], {"queue": self._queue})).fetchall()
        gates = [(name, Limit(*limit)) for name, *limit in rows]
        query = gates[-1][0] if gates else None
        if query != self._query and any(name != query for name, _ in gates):
            _logger.warning(
                "%s: several queries with gates write to queue %r; deliveries keep the limits of %r",
                self._group,
                self._queue,
                query,
            )
        self._query = query
        self._gates = tuple(limit for name, limit in gates if name == query)

    async def _reserve_all(self, reservations: Sequence[Reservation]) -> None:
        try:
            async with self._log.database.connection() as conn, conn.transaction():
                changed = await self._reserve_on(conn, reservations)
        except BaseException:
            for reservation in reservations:
                self.finish(reservation, reservation.count, is_sent=False)
                reservation.charges.clear()
                reservation.count = reservation.finished = 0
            raise
        for tracked, row in changed:
            tracked.stored = row
        if len(self._meters) > _MAX_METERS:
            self._meters = {
                meter_key: tracked for meter_key, tracked in self._meters.items() if tracked.meter.in_flight
            }

    async def _reserve_on(
        self, conn: AsyncConnection[Any], reservations: Sequence[Reservation]
    ) -> list[tuple[_TrackedMeter, _DeliveryMeterRow]]:
        self._group_id = group_id = reservations[0].group_id
        keys = sorted({_SHARED_KEY, *(each.key for each in reservations)})
        await conn.execute(_sql["lock"], {"group": group_id})
        await self._load_gates(conn)
        params = {"query": self._query, "keys": keys}
        limit_rows = await (await conn.execute(_sql["limits"], params)).fetchall()
        overrides = LimitOverrides(map(LimitRow._make, limit_rows), self._gates)
        rows = await (await conn.execute(_sql["meters"], {"group": group_id, "keys": keys})).fetchall()
        stored = {_MeterKey(row.key, row.gate): row for row in map(_DeliveryMeterRow._make, rows)}
        asked_us = _monotonic_us()
        ((clock,),) = await (await conn.execute(_sql["clock"])).fetchall()
        self._database_offset_us = to_micros(clock) - _monotonic_us()
        if self._offset_us is None:
            self._offset_us = self._database_offset_us
            self._uncertainty_us = _monotonic_us() - asked_us
            await conn.execute(_sql["forget"], {"group": group_id, "now_us": to_micros(clock)})
        now_us = self._now_us()
        shift_us = self._database_offset_us - self._offset_us
        changed: dict[_MeterKey, _TrackedMeter] = {}
        for each in reservations:
            self._reserve_one(each, overrides, stored, now_us, shift_us, changed)
        return await self._store(conn, group_id, changed)

    def _reserve_one(
        self,
        reservation: Reservation,
        overrides: LimitOverrides,
        stored: dict[_MeterKey, _DeliveryMeterRow],
        now_us: int,
        shift_us: int,
        changed: dict[_MeterKey, _TrackedMeter],
    ) -> None:
        limits = overrides.limits_of(reservation.key)
        held_until_us = limits.held_until_us - shift_us if limits.held_until_us else 0
        if limits.is_paused or held_until_us > now_us:
            reservation.wait_us = _PAUSED_US if limits.is_paused else min(held_until_us - now_us, _PAUSED_US)
            return
        budgets: dict[_MeterKey, _TrackedMeter] = {}
        for number, limit in enumerate(limits.gates, 1):
            if limit.kind == "concurrency":
                continue  # the acks of the group free it
            meter_key = _MeterKey(_SHARED_KEY if limit.shared else reservation.key, number)
            tracked = budgets[meter_key] = self._tracked(meter_key, limit, stored.get(meter_key), now_us, held_until_us)
            if tracked.meter.limit != limit:
                changed[meter_key] = tracked
            tracked.meter.advance(limit, now_us, held_until_us)
        for costs in reservation.costs:
            charges = [
                (tracked.meter, costs[meter_key.gate - 1] if meter_key.gate <= len(costs) else NANOS_PER_TOKEN)
                for meter_key, tracked in budgets.items()
            ]
            problem = next(filter(None, (_find_problem(meter.limit, cost) for meter, cost in charges)), None)
            if problem is not None:
                reservation.problem = problem if not reservation.count else None
                return
            if any(cost and meter.budget < cost for meter, cost in charges):
                free_us = max(meter.free_at(cost) for meter, cost in charges if cost)
                reservation.wait_us = max(free_us - now_us, _MIN_WAIT_US)
                return
            for meter, cost in charges:
                meter.reserve(cost)
            changed.update(budgets)
            reservation.charges.append(
                [(tracked, cost) for tracked, (_, cost) in zip(budgets.values(), charges, strict=True)]
            )
            reservation.count += 1

    def _tracked(
        self, meter_key: _MeterKey, limit: Limit, row: _DeliveryMeterRow | None, now_us: int, held_until_us: int
    ) -> _TrackedMeter:
        """Return the budget in memory, or the stored one if another process has changed it."""
        tracked = self._meters.get(meter_key)
        if tracked is not None and tracked.stored == row and tracked.meter.limit.kind == limit.kind:
            return tracked
        stored = None if row is None else row.to_stored(limit)
        if stored is not None and stored.state.at_us > now_us + _CLOCK_SET_BACK_US:
            state = stored.state
            times = tuple(min(at_us, now_us) for at_us in state.times)
            stored = stored._replace(state=MeterState(now_us, state.level, times, state.costs))
        meter = build_delivery_meter(limit, stored, now_us, held_until_us)
        if tracked is None:
            tracked = self._meters[meter_key] = _TrackedMeter(meter, row)
        else:
            meter.in_flight = tracked.meter.in_flight
            tracked.meter, tracked.stored = meter, row
        return tracked

    async def _store(
        self, conn: AsyncConnection[Any], group_id: int, changed: Mapping[_MeterKey, _TrackedMeter]
    ) -> list[tuple[_TrackedMeter, _DeliveryMeterRow]]:
        """Store budgets, and return them with their rows."""
        rows = [_to_row(meter_key, tracked.meter, self._uncertainty_us) for meter_key, tracked in changed.items()]
        if rows:
            params = {
                "group": group_id,
                "keys": [row.key for row in rows],
                "gates": int_array([row.gate for row in rows]),
                "amounts": int_array([row.amount for row in rows]),
                "rates": int_array([row.rate for row in rows]),
                "ats": int_array([row.at_us for row in rows]),
                "flights": int_array([row.in_flight for row in rows]),
                "levels": [row.level for row in rows],
                "times": [int_array(row.grant_times or ()) for row in rows],
                "costs": [int_array(row.grant_costs or ()) for row in rows],
            }
            await conn.execute(_sql["store"], params)
        return list(zip(changed.values(), rows, strict=True))


def _to_row(meter_key: _MeterKey, meter: DeliveryMeter, later_us: int) -> _DeliveryMeterRow:
    state, limit = meter.state(), meter.limit
    level = Decimal(state.level).scaleb(-15) if limit.kind == "token_bucket" else None
    return _DeliveryMeterRow(
        meter_key.key,
        meter_key.gate,
        limit.amount,
        limit.rate,
        state.at_us + later_us,
        meter.in_flight,
        level,
        [at_us + later_us for at_us in state.times],
        list(state.costs),
    )


class PartitionBudget:
    """The part of the limits that the delivery of one partition has reserved."""

    def __init__(self, limits: DeliveryLimits | None) -> None:
        self._limits = limits
        self._reservation: Reservation | None = None
        self.is_limited = False

    async def allow(self, batches: Sequence[Sequence[Event]]) -> int:
        """Return how many events of the first batch may be written now; the next ones are reserved as well."""
        if self._limits is None or not await self._limits.are_set():
            self.is_limited = False
            return len(batches[0])
        self.is_limited = True
        if self._reservation is None or not self._reservation.remaining:
            self._reservation = await self._limits.reserve(_next_events(batches))
        return min(self._reservation.remaining, len(batches[0]))

    @property
    def problem(self) -> str | None:
        """Why the first event can never be written; None if it can."""
        return None if self._reservation is None else self._reservation.problem

    @property
    def wait_seconds(self) -> float:
        """The time until the next event may be written."""
        return 0.0 if self._reservation is None else self._reservation.wait_us / 1_000_000

    def due_at(self) -> datetime:
        """Return the time of the database's clock at which the next event may be written."""
        assert self._limits is not None and self._reservation is not None  # noqa: PT018, S101 - allow() was called
        return self._limits.due_at(self._reservation.wait_us)

    def finish(self, count: int) -> None:
        """Record that these events have been written."""
        if self._limits is not None and self._reservation is not None and self._reservation.remaining:
            self._limits.finish(self._reservation, count, is_sent=True)

    def finish_failed(self, count: int, *, is_sent: bool) -> None:
        """Record a failed attempt, and return what is reserved for later events."""
        if self._limits is not None and self._reservation is not None and self._reservation.remaining:
            self._limits.finish(self._reservation, count, is_sent=is_sent)
            self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        """Return what is reserved and not used."""
        if self._limits is not None and self._reservation is not None:
            self._limits.finish(self._reservation, self._reservation.remaining, is_sent=False)


def _next_events(batches: Sequence[Sequence[Event]]) -> list[Event]:
    """Return the first events, up to those of another key."""
    key = event_gate_key(batches[0][0])
    events = islice(chain.from_iterable(batches), MAX_RESERVED_EVENTS)
    return list(takewhile(lambda event: event_gate_key(event) == key, events))


def _find_problem(limit: Limit, cost: int) -> str | None:
    return find_cost_problem(cost, True, limit.amount, "capacity" if limit.kind == "token_bucket" else "limit")


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1000

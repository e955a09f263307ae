"""Letting events through: the transaction in which a gate decides, and what is let through appears in the sink.

Spark's cycles only bring events to hand. A release moves the lanes' positions past what passes, appends that to the
sink queue with the time of the decision, remembers what the gates have to remember, and buries what could never pass:
all in one transaction, under the query's fencing number, on the database's clock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.core.errors import Refused
from penstock.core.timestamps import to_micros
from penstock.db.pg_arrays import numbers
from penstock.db.statements import Statements
from penstock.engine.cycle.commit import pieces
from penstock.engine.cycle.models import Outcome, Target
from penstock.engine.gates.allocate import Decision, Verdict, Waiting, decide, spent
from penstock.engine.gates.buffer import LaneAtHand, Line
from penstock.engine.gates.limits import LaneLimits, Overrides, meter, wanted
from penstock.engine.gates.meters import Limit, Meter, State
from penstock.engine.worker.udf import Failure
from penstock.log.read.position import Signal
from penstock.log.write.flush import Request
from penstock.stream.gates import NANO, Concurrency, Gate, cost_problem

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.log.log import Log

_sql = Statements("penstock.engine.gates", "release.sql")
_commit = Statements("penstock.engine.cycle", "commit.sql")

#: A lane that has to wait for longer is laid down: nobody looks at it meanwhile. It is taken up a little before its
#: time, so that what may pass then is at hand.
_LONG_WAIT_US = 3_000_000
_EARLY_US = 1_500_000
#: A lane that is paused is laid down until it is resumed: in the year 9000, for who wants a time.
NO_TIME_US = 221_845_392_000_000_000


class _NothingHappened(Exception):
    """No event passes and nothing is to be remembered, so the transaction is not worth its disk write."""


@dataclass(slots=True)
class _Known:
    """What the database knows of a lane."""

    passed: int = 0
    allowed: int = 0
    deficit: int = 0
    is_denied: bool = False
    has_next: bool = False
    is_laid_down: bool = False
    #: What its events have cost, by the gate's number.
    cost_totals: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Tried:
    """A lane in a release: what it may do, what it has, and what became of it."""

    lane: LaneAtHand
    limits: LaneLimits
    known: _Known
    waiting: Waiting
    verdict: Verdict = field(default_factory=lambda: Verdict(0))
    #: Where the group stands after it. More may come to hand while it is written down.
    stop: int = 0
    #: When it is to be looked at again, if it is laid down until then.
    wakes_us: int | None = None

    @property
    def has_moved(self) -> bool:
        """Whether anything of it passes."""
        return self.stop != self.lane.position

    @property
    def has_changed(self) -> bool:
        """Whether the database knows it otherwise."""
        known, verdict = self.known, self.verdict
        return (
            self.has_moved
            or verdict.is_denied != known.is_denied
            or (self.wakes_us is not None) != known.is_laid_down
            or (verdict.next_us is not None and not known.has_next)
        )


@dataclass(slots=True)
class Release:
    """What a release did."""

    #: The database's time that counted, and this process's when that was read.
    now_us: int
    read_us: int = 0
    outcome: Outcome = field(default_factory=Outcome)
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    #: Where the group stands in each lane.
    stops: dict[int, int] = field(default_factory=dict)
    request: Request | None = None
    #: None: the query is paused.
    decision: Decision | None = None
    paused_lanes: set[int] = field(default_factory=set)
    laid_down: set[int] = field(default_factory=set)
    is_paused: bool = False
    cycle: int = 0


class Releaser:
    """Releases events of one query."""

    def __init__(self, log: Log, target: Target, gates: Sequence[Gate]) -> None:
        self._log = log
        self._target = target
        self._gates = tuple(gates)

    async def release(
        self,
        conn: AsyncConnection[Any],
        lanes: Sequence[LaneAtHand],
        *,
        once: bool = False,
        kept: Mapping[int, int] | None = None,
    ) -> Release:
        """Let through of these lanes what their gates allow. The lanes themselves are not touched.

        ``once``: other lanes wait for what these share, so none has a second turn. ``kept``: the gates that have been
        kept for one of these up to now, and until when.
        """
        began = time.perf_counter()
        done = Release(0)
        try:
            async with conn.transaction():
                await self._once(conn, lanes, done, began, once, kept or {})
        except _NothingHappened:
            pass
        return done

    async def _once(
        self,
        conn: AsyncConnection[Any],
        lanes: Sequence[LaneAtHand],
        done: Release,
        began: float,
        once: bool,
        kept: Mapping[int, int],
    ) -> None:
        target = self._target
        params = {"query": target.query, "fence": target.fence}
        row = await (await conn.execute(_sql["begin"], params)).fetchone()
        done.read_us = time.monotonic_ns() // 1000
        if row is None:
            raise Refused(f"query {target.name!r} was taken over by another driver")
        done.cycle, done.is_paused, now = row
        done.now_us = to_micros(now)
        if done.is_paused:
            raise _NothingHappened
        tried, shared = await self._look(conn, lanes, done.now_us)
        decision = decide([each.waiting for each in tried], shared.meters, shared.turn, once=once)
        for each in tried:
            each.verdict = decision.verdicts[each.lane.partition_id]
            each.stop = each.lane.position_after(each.verdict.passed)
            next_us = each.verdict.next_us
            if next_us is not None and next_us > done.now_us + _LONG_WAIT_US:
                each.wakes_us = next_us - _EARLY_US
            elif each.limits.paused and each.waiting.count:
                each.wakes_us = NO_TIME_US
        done.decision, done.verdicts = decision, decision.verdicts
        done.stops = {each.lane.partition_id: each.stop for each in tried}
        done.paused_lanes = {each.lane.partition_id for each in tried if each.limits.paused}
        done.laid_down = {each.lane.partition_id for each in tried if each.wakes_us is not None}
        moved = [each for each in tried if each.has_moved]
        changed = [each for each in tried if each.has_changed]
        is_early = any(decision.kept.get(gate, done.now_us) < at - _EARLY_US for gate, at in kept.items())
        if is_early:
            # For those that were laid down until then and are not at hand. Before any is laid down for something else.
            await conn.execute(_sql["hurry"], {"query": target.query, "now": now, "never": NO_TIME_US})
        if not changed:
            if is_early:
                return
            raise _NothingHappened
        await self._move(conn, moved, now)
        await self._remember(conn, changed, decision, shared, now)
        outcome = done.outcome
        outcome.events_in = sum(each.stop - each.lane.position for each in moved)
        await self._bury(conn, moved, outcome)
        done.request = await self._append(conn, moved, outcome, now)
        took = {"release": round((time.perf_counter() - began) * 1000, 1)}
        await conn.execute(
            _sql["ledger"],
            {
                **params,
                "cycle": done.cycle,
                "now": now,
                "events_in": outcome.events_in,
                "events_out": outcome.events_out,
                "dead": outcome.dead,
                "took": json.dumps(took),
            },
        )

    # Looking

    async def _look(
        self, conn: AsyncConnection[Any], lanes: Sequence[LaneAtHand], now_us: int
    ) -> tuple[list[_Tried], _Shared]:
        query, ids = self._target.query, [lane.partition_id for lane in lanes]
        rows = await (await conn.execute(_sql["lanes"], {"query": query, "partitions": numbers(ids)})).fetchall()
        known = {row[0]: _Known(*row[1:]) for row in rows}
        wanted_states = {"query": query, "partitions": numbers([0, *ids])}
        rows = await (await conn.execute(_sql["states"], wanted_states)).fetchall()
        states = {(row[0], row[1]): _state(*row[2:6]) for row in rows}
        turn = max([row[6] for row in rows if row[0] == 0], default=0)
        keys = ["", *(lane.key for lane in lanes)]
        rows = await (await conn.execute(_sql["limits"], {"name": self._target.name, "keys": keys})).fetchall()
        overrides = Overrides(rows)
        flying = [await self._in_flight(conn, gate, lanes) for gate in self._gates]
        everybody = overrides.of("", self._gates)
        shared = _Shared(
            everybody,
            [
                meter(limit, states.get((0, place)), now_us, everybody.held_us) if gate.shared else None
                for place, (gate, limit) in enumerate(zip(self._gates, everybody.gates, strict=True), 1)
            ],
            turn,
        )
        tried = []
        for lane in lanes:
            limits = overrides.of(lane.key, self._gates)
            self._find_hopeless(lane, limits)
            about = known.get(lane.partition_id, _Known())
            meters = [
                None
                if gate.shared
                else meter(
                    limit,
                    states.get((lane.partition_id, place)),
                    now_us,
                    limits.held_us,
                    flying[place - 1].get(lane.partition_id, 0),
                )
                for place, (gate, limit) in enumerate(zip(self._gates, limits.gates, strict=True), 1)
            ]
            costs = [lane.costs_at(place, gate.cost) for place, gate in enumerate(self._gates)]
            held = limits.held_us if limits.held_us > now_us else 0
            waiting = Waiting(
                lane.partition_id, len(lane), costs, meters, limits.weight, about.deficit, limits.paused, held
            )
            tried.append(_Tried(lane, limits, about, waiting))
        return tried, shared

    def _find_hopeless(self, lane: LaneAtHand, limits: LaneLimits) -> None:
        """Events that could never pass fail, with the reason."""
        lane.hopeless = {}
        for place, (gate, limit) in enumerate(zip(self._gates, limits.gates, strict=True)):
            costs = lane.costs.get(place)
            if costs is None:
                if not lane.has_several and (gate.cost.fixed or 0) <= limit.amount:
                    continue
                costs = [(gate.cost.fixed or 0) * len(lines) for lines in lane.lines]
            what = "capacity" if limit.kind == "token_bucket" else "limit"
            for offset, cost in zip(lane.offsets, costs, strict=True):
                if cost is not None and 0 < cost <= limit.amount:
                    continue
                problem = cost_problem(cost, gate.cost.allow_zero, limit.amount, what)
                if problem is not None and offset not in lane.failures:
                    lane.hopeless[offset] = Failure(lane.partition_id, offset, f"gate {place + 1}", problem)

    async def _in_flight(self, conn: AsyncConnection[Any], gate: Gate, lanes: Sequence[LaneAtHand]) -> dict[int, int]:
        if not isinstance(gate, Concurrency) or self._target.sink is None:
            return {}
        queue = await self._log.catalog.get(self._target.sink)
        group = await self._log.group_book.get_on(conn, queue, gate.group)
        if group is None:
            raise Refused(f"queue {queue.name!r} has lost its group {gate.group!r}, which a gate counts by")
        params = {
            "partitions": numbers([lane.partition_id for lane in lanes]),
            "keys": [lane.key for lane in lanes],
            "sink": queue.id,
            "epoch": queue.epoch,
            "group": group.id,
        }
        rows = await (await conn.execute(_sql.table("in_flight", queue.id, queue.segment), params)).fetchall()
        return dict(rows)

    # Writing

    async def _move(self, conn: AsyncConnection[Any], moved: Sequence[_Tried], now: datetime) -> None:
        if not moved:
            return
        params = {
            "groups": numbers([each.lane.group_id for each in moved]),
            "partitions": numbers([each.lane.partition_id for each in moved]),
            "starts": numbers([each.lane.position for each in moved]),
            "stops": numbers([each.stop for each in moved]),
            "now": now,
        }
        row = await (await conn.execute(_commit["move"], params)).fetchone()
        if row is None or row[0] != len(moved):
            raise Refused(f"query {self._target.name!r}: its group is no longer where it was, so it begins anew there")

    async def _remember(
        self,
        conn: AsyncConnection[Any],
        changed: Sequence[_Tried],
        decision: Decision,
        shared: _Shared,
        now: datetime,
    ) -> None:
        now_us = to_micros(now)
        lanes = {
            "query": self._target.query,
            "now": now,
            "partitions": numbers([each.lane.partition_id for each in changed]),
            "keys": [each.lane.key for each in changed],
            "passed": numbers([each.stop - each.lane.position for each in changed]),
            "allowed": numbers([_allowed(each) for each in changed]),
            "denied": [each.verdict.is_denied for each in changed],
            "nexts": numbers([each.verdict.next_us for each in changed]),
            "wakes": numbers([each.wakes_us for each in changed]),
            "waits": [each.verdict.waits_for_acks for each in changed],
            "deficits": numbers([each.waiting.deficit for each in changed]),
            "wants": numbers([_wants(each) for each in changed]),
        }
        await conn.execute(_sql["store_lanes"], lanes)
        rows = [row for each in changed if each.verdict.passed for row in self._states_of(each, now_us)]
        rows += self._shared_states(changed, decision, shared, now_us)
        if rows:
            await conn.execute(_sql["store_states"], {"query": self._target.query, **_columns(rows)})
        group = changed[0].lane.group_id
        woken = [e.lane.partition_id for e in changed if e.known.is_laid_down and e.wakes_us is None]
        tired = [e.lane.partition_id for e in changed if not e.known.is_laid_down and e.wakes_us is not None]
        for statement, some in (("lay_down", tired), ("take_up", woken)):
            if some:
                await conn.execute(_sql[statement], {"group": group, "partitions": numbers(some)})

    def _states_of(self, each: _Tried, now_us: int) -> list[tuple[Any, ...]]:
        rows = []
        for place, (limit, own, costs) in enumerate(
            zip(each.limits.gates, each.waiting.meters, each.waiting.costs, strict=True), 1
        ):
            if own is not None:
                cost = spent(costs, each.verdict.passed)
                rows.append(_row(each.lane.partition_id, place, limit, own, cost, 0, now_us))
        return rows

    def _shared_states(
        self, changed: Sequence[_Tried], decision: Decision, shared: _Shared, now_us: int
    ) -> list[tuple[Any, ...]]:
        rows = []
        for place, (limit, common) in enumerate(zip(shared.limits.gates, shared.meters, strict=True), 1):
            if common is not None and (decision.turn != shared.turn or any(each.verdict.passed for each in changed)):
                cost = sum(spent(each.waiting.costs[place - 1], each.verdict.passed) for each in changed)
                rows.append(_row(0, place, limit, common, cost, decision.turn, now_us))
        return rows

    async def _bury(self, conn: AsyncConnection[Any], moved: Sequence[_Tried], outcome: Outcome) -> None:
        names = {queue_id: (queue, group) for queue, queue_id, group, _ in self._target.groups}
        for each in moved:
            lane = each.lane
            lost = lane.lost
            dead = [lost[at] for at in lane.offsets[: each.verdict.passed] if at in lost]
            if not dead:
                continue
            outcome.dead += len(dead)
            queue_name, group = names[lane.queue_id]
            signals = [
                (
                    Signal(failure.offset, "dead_letter", failure.error, failure.stage, failure.traceback),
                    failure.attempts,
                )
                for failure in dead
            ]
            queue = await self._log.catalog.get(queue_name)
            await self._log.burials.bury(conn, queue, group, lane.partition_id, signals)

    async def _append(
        self, conn: AsyncConnection[Any], moved: Sequence[_Tried], outcome: Outcome, now: datetime
    ) -> Request | None:
        lines: list[Line] = []
        for each in moved:
            lost = each.lane.lost
            for offset, some in zip(each.lane.offsets[: each.verdict.passed], each.lane.lines, strict=False):
                if offset not in lost:
                    lines += some
        outcome.events_out = len(lines)
        if not lines or self._target.sink is None:
            return None
        request = Request([pieces(await self._log.catalog.get(self._target.sink), lines)])
        places = await self._log.appender.lanes([request])
        await self._log.appender.append_on(conn, [request], places, at=now)
        return request


@dataclass(slots=True)
class _Shared:
    """The budgets that all lanes have together."""

    limits: LaneLimits
    meters: list[Meter | None]
    turn: int


def _allowed(each: _Tried) -> int:
    lost = each.lane.lost
    if not lost:
        return each.verdict.passed
    return sum(1 for offset in each.lane.offsets[: each.verdict.passed] if offset not in lost)


def _wants(each: _Tried) -> int:
    """What is worth having at hand, by what the lane's events have cost and how many were left out before the gate."""
    known, lane = each.known, each.lane
    events = max(1, known.allowed + _allowed(each))
    costs = []
    for place, own in enumerate(each.waiting.costs):
        before = known.cost_totals.get(str(place + 1), 0.0) * NANO
        costs.append(float(own) if isinstance(own, int) else (before + spent(own, each.verdict.passed)) / events)
    offsets = known.passed + each.stop - lane.position
    most = wanted(each.limits.gates, costs)
    return min(int(most * max(1.0, offsets / events)), 10 * most) + 1


def _state(at_us: int, level: Any, times: list[int] | None, costs: list[int] | None) -> State:
    fine = 0 if level is None else int(level.scaleb(15))
    return State(at_us, fine, tuple(times or ()), tuple(costs or ()))


def _row(partition: int, place: int, limit: Limit, own: Meter, cost: int, turn: int, now_us: int) -> tuple[Any, ...]:
    state = own.state() or State(now_us)
    is_bucket, is_window = limit.kind == "token_bucket", limit.kind == "sliding_window"
    return (
        partition,
        place,
        f"{limit.amount}e-9",
        f"{limit.rate}e-9" if is_bucket else None,
        limit.window_us if is_window else None,
        state.at_us,
        f"{state.level}e-15" if is_bucket else None,
        numbers(state.times) if is_window else None,
        numbers(state.costs) if is_window else None,
        f"{cost}e-9",
        turn,
    )


def _columns(rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    names = ("partitions", "gates", "amounts", "rates", "windows", "ats", "levels", "times", "grants", "costs", "turns")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    return {name: some if name in ("times", "grants") else numbers(some) for name, some in columns.items()}

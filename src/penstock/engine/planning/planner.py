"""Deciding what the next cycle reads. Runs in the process in which Spark keeps the source's reader."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

from penstock.db.pg_arrays import numbers
from penstock.db.statements import Statements
from penstock.db.sync import connect
from penstock.engine import plan as plans
from penstock.engine.joins.state import WaitingTable
from penstock.engine.plan import CyclePlan, Lane, Stretch, spread
from penstock.engine.planning import poison_search

_sql = Statements("penstock.engine.planning", "planner.sql")
_groups = Statements("penstock.log", "groups.sql")

#: How long Spark is kept waiting before it is told that there is nothing to do.
_PATIENCE_SECONDS = 0.5
#: Waiters look by themselves after so long: for what no notification tells of.
_LOOK_SECONDS = 0.5
_RENEW_SECONDS = 1.0
#: Whoever waits longer for his next cycle asks again: he is heard meanwhile, and keeps his lease.
_LONGEST_SLEEP_SECONDS = 1.0


#: Queue, group, and a row of what is unread.
_Head: TypeAlias = tuple[int, int, Any]


@dataclass(frozen=True)
class Planning:
    """What the planner of a query is told."""

    conninfo: str = field(repr=False)
    query: int
    fence: int
    #: Queue and group ids of what is read.
    groups: tuple[tuple[int, int], ...]
    lease_seconds: float
    #: At least so long from one cycle's beginning to the next.
    interval_seconds: float
    #: Cycles of up to so many events are read by one task.
    small_events: int
    most_events: int
    tasks: int
    #: The table of open windows, and when the clock closes one: idle for so long, this long after its end.
    state_table: str | None
    idle_us: int
    wait_us: int
    #: Read what was there at the start, and no more.
    stops: dict[int, int] | None
    #: In a join that sends on what is in no pair: what waits.
    waiting: WaitingTable | None = None
    #: The first cycle may have so many events, where that many are known not to take long.
    first_events: int = 0


@dataclass(frozen=True)
class Seen:
    """What the query's row says before a cycle."""

    suspects: poison_search.Suspicion | None
    is_paused: bool


class Fenced(Exception):
    """Another driver has taken the query over."""


class Planner:
    """Plans cycles, one after the other."""

    def __init__(self, planning: Planning) -> None:
        self._planning = planning
        self._conn = connect(planning.conninfo, "planner")
        # A driver that stands still in a transaction holds the query's row: no longer than its lease.
        self._conn.execute(
            "SELECT set_config('idle_in_transaction_session_timeout', %s, false)",
            (f"{planning.lease_seconds * 1000:.0f}ms",),
        )
        self._conn.execute("LISTEN penstock")
        # Before all times: the clock may have begun with the machine, a moment ago.
        self._renewed = self._last = -math.inf
        self._limit = max(planning.small_events, planning.first_events)
        self._previous: tuple[float, int] | None = None
        self._is_full = False
        self._rate = 0.0
        self._ticks = 0
        self._look_for_due = 0.0

    def close(self) -> None:
        """Let go of the connection."""
        self._conn.close()

    @property
    def is_behind(self) -> bool:
        """Whether the cycle that was planned last is as large as it may be."""
        return self._is_full

    def next_cycle(self) -> int | None:
        """The number of the next cycle; None if there is nothing to do yet."""
        now = time.monotonic()
        self._adapt(now)
        pause = self._last + self._planning.interval_seconds - now
        if pause > 0:
            time.sleep(min(pause, _LONGEST_SLEEP_SECONDS))
            if pause > _LONGEST_SLEEP_SECONDS and self._planning.stops is None:
                self._renew()
                return None
        patience = time.monotonic() + _PATIENCE_SECONDS
        while True:
            self._renew()
            seen = self._look()
            if not seen.is_paused:
                suspects = seen.suspects
                if suspects is not None and suspects.alone and self._has_expired():
                    return self._begin([], suspects.alone)
                lanes = self._lanes(seen)
                if (not lanes or len(self._planning.groups) > 1) and self._advance():
                    lanes = self._lanes(seen)
                if lanes or self._is_time_to_close():
                    return self._begin(lanes, self._alone(lanes, suspects))
            left = patience - time.monotonic()
            if left <= 0:
                return None
            self._wait(min(left, _LOOK_SECONDS))

    def plan_ahead(self, reached: Mapping[int, tuple[int, int | None]]) -> int | None:
        """The number of the cycle that follows one that is yet to be committed, if there is a full one.

        After a full one, what is left may be less. ``reached`` says up to which offset that one has come in each of its
        partitions, and up to which time.
        """
        now, was_full = time.monotonic(), self._is_full
        self._adapt(now)
        seen = self._look()
        if seen.is_paused or seen.suspects is not None or now < self._last + self._planning.interval_seconds:
            return None
        found, segments = self._heads()
        found = [(q, g, _further(h, *reached[h[0]]) if h[0] in reached else h) for q, g, h in found]
        lanes = self._spread(seen, [(q, g, h) for q, g, h in found if h[4] < h[5]], segments)
        events = sum(lane.stop - lane.start for lane in lanes)
        return self._begin(lanes) if events >= self._limit * _FULL or (events and was_full) else None

    def is_as_planned(self, lanes: Sequence[Lane]) -> bool:
        """Whether a cycle that was planned ahead begins where its partitions are now, with their times."""
        seen = self._look()
        heads = {head[0]: (head[4], head[6], head[7]) for _, _, head in self._heads()[0]}
        return (
            not seen.is_paused
            and seen.suspects is None
            and all(heads.get(lane.partition_id) == (lane.start, lane.high_us, lane.floor_us) for lane in lanes)
        )

    def _renew(self) -> None:
        # The lease is kept by who asks for work: a driver whose JVM is dead loses it.
        if time.monotonic() - self._renewed < _RENEW_SECONDS:
            return
        row = self._conn.execute(_sql["renew"], self._params(lease=self._lease())).fetchone()
        if row is None:
            raise Fenced("another driver has taken this query over")
        self._renewed = time.monotonic()

    def _look(self) -> Seen:
        row = self._conn.execute(_sql["look"], self._params()).fetchone()
        if row is None:
            raise Fenced("another driver has taken this query over")
        return Seen(None if row[0] is None else poison_search.decode(row[0]), row[1])

    def _heads(self) -> tuple[list[_Head], dict[int, int]]:
        """The partitions with something unread, and the open segment of each queue."""
        found: list[_Head] = []
        segments: dict[int, int] = {}
        for queue_id, group_id in self._planning.groups:
            row = self._conn.execute(_sql["queue"], {"queue": queue_id}).fetchone()
            if row is None:
                continue
            segments[queue_id] = row[1]
            statement = _sql.table("heads", queue_id, row[1])
            for head in self._conn.execute(statement, self._params(group=group_id)).fetchall():
                found.append((queue_id, group_id, head))
        return found, segments

    def _lanes(self, seen: Seen) -> list[Lane]:
        """What is unread, up to the limit, spread over the partitions."""
        return self._spread(seen, *self._heads())

    def _spread(self, seen: Seen, found: list[_Head], segments: dict[int, int]) -> list[Lane]:
        if self._planning.stops is not None:
            found = [
                (q, g, (*h[:5], min(h[5], self._planning.stops.get(h[0], 0)), *h[6:]))
                for q, g, h in found
                if h[4] < self._planning.stops.get(h[0], 0)
            ]
        if not found:
            return []
        found, limit = self._narrowed(found, seen.suspects)
        parts = shares([head[5] - head[4] for _, _, head in found], limit)
        chosen = [(q, g, head, share) for (q, g, head), share in zip(found, parts, strict=True) if share]
        sealed = self._stretches([(head, share) for _, _, head, share in chosen if head[4] < head[3]])
        lanes = []
        for queue_id, group_id, head, share in chosen:
            partition_id, name, is_lane, sealed_end, start, _, high, floor = head
            stretches = sealed.get(partition_id, [])
            if start + share > sealed_end:
                stretches = [*stretches, Stretch(segments[queue_id], max(start, sealed_end), start + share)]
            lanes.append(Lane(partition_id, queue_id, group_id, name, is_lane, stretches, high, floor))
        return lanes

    def _narrowed(self, found: list[_Head], suspects: poison_search.Suspicion | None) -> tuple[list[_Head], int]:
        """What may be read while an event that no cycle survives is looked for; else all of it."""
        if suspects is None:
            return found, self._limit
        few = [
            (q, g, (*h[:5], min(h[5], suspects.stops[h[0]]), *h[6:]))
            for q, g, h in found
            if h[4] < suspects.stops.get(h[0], 0)
        ]
        return (few, max(1, min(self._limit, suspects.limit))) if few else (found, self._limit)

    def _stretches(self, some: list[tuple[Any, int]]) -> dict[int, list[Stretch]]:
        if not some:
            return {}
        params = {
            "partitions": numbers([head[0] for head, _ in some]),
            "starts": numbers([head[4] for head, _ in some]),
            "stops": numbers([head[4] + share for head, share in some]),
        }
        ranges = {head[0]: (head[4], min(head[4] + share, head[3])) for head, share in some}
        found: dict[int, list[Stretch]] = {}
        for partition_id, segment, first, end in self._conn.execute(_sql["stretches"], params).fetchall():
            start, stop = ranges[partition_id]
            found.setdefault(partition_id, []).append(Stretch(segment, max(start, first), min(stop, end)))
        return found

    def _advance(self) -> bool:
        """Go over to the next epoch of partitions, where nothing of the one before is left to read."""
        moved = False
        for queue_id, group_id in self._planning.groups:
            row = self._conn.execute(_sql["epochs"], {"group": group_id}).fetchone()
            if row is None or row[0] >= row[1]:
                continue
            with self._conn.transaction():
                held = self._conn.execute(_groups["lock_group"], {"group": group_id}).fetchone()
                asked = {"group": group_id, "epoch": row[0]}
                left = self._conn.execute(_groups.table("has_unread", queue_id, row[2]), asked).fetchone()
                if held is not None and held[1] == row[0] and left is not None and not left[0]:
                    self._conn.execute(_groups["set_epoch"], {"group": group_id, "epoch": row[0] + 1})
                    moved = True
        return moved

    def _alone(self, lanes: Sequence[Lane], suspects: poison_search.Suspicion | None) -> int:
        """How many events a cycle may send on in no pair: none, while one is looked for among those that are read."""
        stops = {} if suspects is None else suspects.stops
        if self._planning.waiting is None or any(lane.start < stops.get(lane.partition_id, 0) for lane in lanes):
            return 0
        return self._planning.most_events

    def _has_expired(self) -> bool:
        """Whether there are events of a join to send on in no pair."""
        waiting = self._planning.waiting
        if waiting is None:
            return False
        row = self._conn.execute(waiting.statement("expired"), waiting.params(limit=1)).fetchone()
        return row is not None and bool(row[0])

    def _is_time_to_close(self) -> bool:
        """Whether something is due, or the clock closes a window: looked for less often while it does not."""
        if self._has_expired():
            return True
        if (
            self._planning.state_table is None and self._planning.waiting is None
        ) or time.monotonic() < self._look_for_due:
            return False
        if not self._is_due():
            self._ticks = 0
            return False
        self._ticks += 1
        self._look_for_due = time.monotonic() + min(0.25 * self._ticks, 5.0)
        return True

    def _is_due(self) -> bool:
        params = self._params(
            idle=timedelta(microseconds=self._planning.idle_us), wait=timedelta(microseconds=self._planning.wait_us)
        )
        if self._planning.waiting is not None:
            statement = self._planning.waiting.statement("due")
            params |= self._planning.waiting.params()
        else:
            statement = _sql["due"].replace("{state}", self._planning.state_table or "")
        row = self._conn.execute(statement, params).fetchone()
        return row is not None and bool(row[0])

    def _begin(self, lanes: list[Lane], alone: int = 0) -> int:
        planning = self._planning
        events = sum(lane.stop - lane.start for lane in lanes)
        small = events <= planning.small_events
        tasks = [list(range(len(lanes)))] if small else spread(lanes, planning.tasks)
        with self._conn.transaction():
            row = self._conn.execute(_sql["begin_cycle"], self._params(lease=self._lease())).fetchone()
            if row is None:
                raise Fenced("another driver has taken this query over")
            plan = CyclePlan(row[0], small, lanes, tasks, alone)
            self._conn.execute(
                _sql["store_plan"], self._params(cycle=plan.cycle, plan=plans.encode(plan), planned=events)
            )
        self._renewed = self._last = time.monotonic()
        self._previous = (self._last, events)
        self._is_full = events >= self._limit * _FULL
        return plan.cycle

    def _adapt(self, now: float) -> None:
        """Grow cycles while there is more than fits, as long as that pays or each still takes little time."""
        if self._previous is None:
            return
        began, events = self._previous
        self._previous = None
        if events < self._limit * _FULL:
            return
        took = max(now - began, 0.001)
        rate = events / took
        if took < _QUICK_SECONDS / 2:
            self._limit *= 8
        elif took < _QUICK_SECONDS:
            self._limit *= 4
        elif took < _CYCLE_SECONDS or rate > 1.2 * self._rate:
            self._limit *= 2
        elif took > 3 * _CYCLE_SECONDS:
            self._limit //= 2
        self._rate = rate
        self._limit = min(max(self._limit, self._planning.small_events), self._planning.most_events)

    def _wait(self, seconds: float) -> None:
        for _ in self._conn.notifies(timeout=seconds, stop_after=1):
            pass

    def _lease(self) -> timedelta:
        return timedelta(seconds=self._planning.lease_seconds)

    def _params(self, **more: Any) -> dict[str, Any]:
        return {"query": self._planning.query, "fence": self._planning.fence, **more}


#: Up to how long a cycle may take when there is more to read than fits into one, and what counts as hardly any time.
_CYCLE_SECONDS = 2.0
_QUICK_SECONDS = 0.7
#: A cycle of so much of what it may have is full: partitions do not divide evenly.
_FULL = 0.9


def _further(head: Any, offset: int, high_us: int | None) -> Any:
    """A row of what is unread, when a cycle has come so far."""
    return (*head[:4], offset, head[5], high_us, *head[7:])


def shares(unread: list[int], limit: int) -> list[int]:
    """The limit over the partitions, each as much as the others where it has that much."""
    parts = [0] * len(unread)
    left = limit
    order = sorted(range(len(unread)), key=lambda i: unread[i])
    for rank, place in enumerate(order):
        parts[place] = min(unread[place], -(-left // (len(order) - rank)))
        left -= parts[place]
    return parts

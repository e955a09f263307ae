"""Depth and lag: subtractions of offsets, never a count of events; and whether a queue takes more."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.core.errors import QueueFull
from penstock.db.retry import LOST
from penstock.db.statements import Statements

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool

    from penstock.core.clock import Clock
    from penstock.log.queue import Queue

_sql = Statements("penstock.log.storage", "depth.sql")
_logger = logging.getLogger("penstock.log")

#: A full queue accepts again when it has drained to this part of its limit.
_LOW_WATER = 0.9
_NEXT_TO_NOTHING = 0.1
#: A measurement is used for this long, or until this part of the room that it found has been taken: other processes
#: fill the queue too, and each of them goes too far by no more than that.
_FRESH_SECONDS = 0.25
_FRESH_PART = 1 / 8
_DEAR_SECONDS = 0.05
#: How fast a queue drains is measured over this long: many drain in bursts, a cycle at a time.
_DRAIN_SECONDS = 10.0
#: The shortest and the longest time that a producer is asked to wait.
_SHORTEST_WAIT, _LONGEST_WAIT = 0.1, 30.0


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How far a group is behind in a queue, and whether pushes wait for it when that is too far."""

    group: str
    lag: int
    partitions_behind: int
    leases: int
    #: False if the group was told not to count.
    counts: bool = True
    #: When somebody last asked for its events, to within a minute.
    seen_at: datetime | None = None
    #: Nobody has for so long that it does not count for now (``away_seconds`` of the queue).
    away: bool = False

    @property
    def holds_back(self) -> bool:
        """Whether its lag counts for the queue's depth."""
        return self.counts and not self.away


@dataclass(frozen=True, slots=True)
class QueueSize:
    """How much a queue holds, and how much of what was pushed it did not take."""

    partitions: int
    events: int
    appended: int
    bytes: int
    shed: int = 0


@dataclass(frozen=True, slots=True)
class Room:
    """How much more a queue takes, as last measured: for those who like to slow down before they must."""

    limit: int
    remaining: int
    #: In how many seconds it would be empty, at the rate at which it drains.
    empty_in: float


@dataclass(slots=True)
class _Measured:
    """What is known of a queue's depth."""

    at: float = 0.0
    #: None: no group counts, so nothing is behind, however much is pushed.
    depth: int | None = None
    cost: float = 0.0
    #: Events that this process let in since, and ever.
    pushed: int = 0
    pushed_ever: int = 0
    full: bool = False
    #: Times, depths and ``pushed_ever`` of the last seconds.
    lately: deque[tuple[float, int, int]] = field(default_factory=deque)
    still_since: float = 0.0

    def is_stale(self, limit: int) -> bool:
        age = time.monotonic() - self.at
        room = limit - (self.depth or 0)
        if self.depth is not None and self.pushed > max(room * _FRESH_PART, limit / 100):
            return age > (4 if self.cost < _DEAR_SECONDS else 20) * self.cost
        return age > max(_FRESH_SECONDS, 20 * self.cost)  # measuring must not become the work

    def is_full_for(self, events: int, limit: int) -> bool:
        """Whether so many more are too many; once they were, it is full until it has drained a little."""
        if self.depth is None:
            return False
        depth = self.depth + self.pushed
        # What could never fit is let in when next to nothing waits.
        too_large = events > limit * _LOW_WATER and depth <= limit * _NEXT_TO_NOTHING
        bound = limit * _LOW_WATER if self.full else limit
        if depth + events > bound and depth > 0 and not too_large:
            self.full = True
            return True
        return False

    def drain(self) -> float:
        """Events a second that the slowest group gets done."""
        if len(self.lately) < 2:
            return 0.0
        (then, before, pushed_before), (now, depth, pushed) = self.lately[0], self.lately[-1]
        return max(before + (pushed - pushed_before) - depth, 0) / (now - then) if now > then else 0.0

    def wait(self, excess: float) -> float:
        """How long it takes to get so many events done; while nothing is done, ever longer."""
        rate = self.drain()
        if rate > 0:
            return min(max(excess / rate, _SHORTEST_WAIT), _LONGEST_WAIT)
        return min(max(time.monotonic() - self.still_since, 1.0), _LONGEST_WAIT / 3)


class Depths:
    """Measures queues, and says when one is full."""

    def __init__(self, pool: AsyncConnectionPool[Any], clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._measured: dict[int, _Measured] = {}
        self._measuring: dict[int, asyncio.Lock] = {}
        self._away: set[tuple[int, str]] = set()

    async def lags(self, queue: Queue) -> list[GroupLag]:
        """Each group's lag."""
        params = {"queue": queue.id, "skew": self._clock.skew}
        async with self._pool.connection() as conn:
            statement = _sql.table("group_lag", queue.id, queue.segment)
            rows = await (await conn.execute(statement, params)).fetchall()
        return [GroupLag(*row) for row in rows]

    async def size(self, queue: Queue) -> QueueSize:
        """Partitions, events kept, events ever appended, bytes on disk, and events that were shed."""
        async with self._pool.connection() as conn:
            statement = _sql.table("queue_size", queue.id, queue.segment)
            row = await (await conn.execute(statement, {"queue": queue.id})).fetchone()
            tables = {"tables": f"^(chunks|ids)_{queue.id}_[0-9]+$"}
            stored = await (await conn.execute(_sql["queue_bytes"], tables)).fetchone()
            shed = await (await conn.execute(_sql["shed_so_far"], {"queue": queue.id})).fetchone()
        partitions, end, start = row if row is not None else (0, 0, 0)
        return QueueSize(partitions, end - start, end, stored[0] if stored else 0, shed[0] if shed else 0)

    async def admit(self, queue: Queue, events: int) -> bool:
        """Whether a push is let in; QueueFull if it is not, False if the queue is one that sheds.

        The depth is measured a few times a second, not per push.
        """
        limit = queue.max_depth_events
        if limit is None:
            return True
        known = await self._known(queue, limit)
        if known.is_full_for(events, limit):
            if queue.overflow == "shed":
                return False
            raise self._refusal(queue, known, limit)
        known.full = False
        known.pushed += events
        known.pushed_ever += events
        return True

    async def check(self, queue: Queue) -> None:
        """Raise QueueFull if not even one event would be let in."""
        limit = queue.max_depth_events
        if limit is None or queue.overflow == "shed":
            return
        known = await self._known(queue, limit)
        if known.is_full_for(1, limit):
            raise self._refusal(queue, known, limit)

    def _refusal(self, queue: Queue, known: _Measured, limit: int) -> QueueFull:
        depth = (known.depth or 0) + known.pushed
        wait = known.wait(max(depth - limit * _LOW_WATER, 1))
        return QueueFull(
            f"queue {queue.name!r} is full: its slowest group is {depth:,} events behind and {limit:,} are "
            f"allowed; push again in {wait:.1f} s, or raise max_depth_events",
            queue=queue.name,
            depth=depth,
            limit=limit,
            retry_after=wait,
        )

    def room(self, queue: Queue) -> Room | None:
        """How much more the queue takes, without asking; None if it has no limit."""
        limit = queue.max_depth_events
        if limit is None:
            return None
        known = self._measured.get(queue.id)
        if known is None or known.depth is None:
            return Room(limit, limit, 0.0)
        depth = known.depth + known.pushed
        return Room(limit, 0 if known.full else max(limit - depth, 0), known.wait(depth) if depth else 0.0)

    async def shed(self, shed: dict[int, int]) -> None:
        """Write down how many events of which queues were dropped."""
        params = {"queues": list(shed), "events": list(shed.values()), "skew": self._clock.skew}
        async with self._pool.connection() as conn:
            await conn.execute(_sql["shed"], params)

    async def _known(self, queue: Queue, limit: int) -> _Measured:
        known = self._measured.get(queue.id)
        if known is None or known.is_stale(limit):
            at = None if known is None else known.at
            async with self._measuring.setdefault(queue.id, asyncio.Lock()):
                known = self._measured.get(queue.id)
                if known is None or known.at == at:
                    known = await self._measure(queue)
        return known

    async def _measure(self, queue: Queue) -> _Measured:
        known = self._measured.setdefault(queue.id, _Measured(still_since=time.monotonic()))
        started = time.monotonic()
        pushed = known.pushed
        try:
            lags = await self.lags(queue)
        except (psycopg.errors.UndefinedTable, *LOST):
            # The queue has moved on, or the database is gone for a moment: the append finds out, and has patience.
            return known
        self._tell_away(queue, lags)
        depth = max((lag.lag for lag in lags if lag.holds_back), default=None)
        now = time.monotonic()
        # What was let in while we looked may not have been counted.
        known.pushed -= pushed
        if depth is None or known.depth is None or depth < known.depth + pushed:
            known.still_since = now
        known.at, known.depth, known.cost = now, depth, now - started
        if depth is None:
            known.lately.clear()
            return known
        known.lately.append((now, depth, known.pushed_ever - known.pushed))
        while len(known.lately) > 2 and now - known.lately[1][0] > _DRAIN_SECONDS:
            known.lately.popleft()
        return known

    def _tell_away(self, queue: Queue, lags: list[GroupLag]) -> None:
        """Say once of a group that it no longer holds pushes back, and once that it does again."""
        for lag in lags:
            who = (queue.id, lag.group)
            if lag.away and lag.counts and who not in self._away:
                self._away.add(who)
                _logger.warning(
                    "queue %r: nobody has asked for events of group %r since %s, and it is %d behind; it no longer "
                    "counts for max_depth_events until it is asked for again (away_seconds)",
                    queue.name,
                    lag.group,
                    lag.seen_at,
                    lag.lag,
                )
            elif not lag.away and who in self._away:
                self._away.discard(who)
                _logger.warning("queue %r: group %r is back and counts for max_depth_events", queue.name, lag.group)

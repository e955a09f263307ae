"""Backpressure: refuses or sheds pushes to a queue whose slowest group is too far behind, or that nobody reads."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from typing import Any, NamedTuple

import psycopg
from psycopg_pool import AsyncConnectionPool

from penstock.core.clock import Clock
from penstock.core.errors import QueueFull
from penstock.core.formatting import counted
from penstock.db.retry import CONNECTION_ERRORS
from penstock.db.statements import Statements
from penstock.log.queue import Queue
from penstock.log.queue_info import LOW_WATER, GroupInfo, QueueStats, find_slowest

_sql = Statements("penstock.log.write", "backpressure.sql")
_logger = logging.getLogger("penstock.log")

#: A push that is larger than the limit is accepted if the depth is below this fraction of the limit.
_NEARLY_EMPTY = 0.1
#: A measurement is used for this many seconds, or until this fraction of the free capacity has been pushed. Other
#: processes fill the queue, too, and each exceeds the limit by no more than that.
_FRESH_SECONDS = 0.25
_FRESH_FRACTION = 1 / 8
#: From this many seconds on, a measurement is expensive.
_EXPENSIVE_SECONDS = 0.05
#: The drain rate is measured over this many seconds, because many queues drain in bursts.
_DRAIN_SECONDS = 10.0
#: The limits of the time after which a producer should push again.
_MIN_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.1, 30.0


@dataclass(frozen=True, slots=True)
class QueueCapacity:
    """The free capacity of a queue as last measured, for producers that want to slow down in time."""

    limit: int
    remaining: int
    #: The time in seconds until the queue is empty, at its current drain rate.
    empty_in: float


class _DepthSample(NamedTuple):
    time: float
    depth: int
    total_pushed: int


@dataclass(slots=True)
class _MeasuredDepth:
    """The depth of a queue as last measured, and the events that this process has pushed since."""

    measured_at: float = 0.0
    #: None: no group counts, or nothing limits a queue without groups, so the queue is never full.
    depth: int | None = None
    #: The time that the measurement took.
    cost: float = 0.0
    pushed: int = 0
    total_pushed: int = 0
    is_full: bool = False
    samples: deque[_DepthSample] = field(default_factory=deque)
    not_drained_since: float = 0.0
    #: The group with the largest lag, as last measured.
    slowest: GroupInfo | None = None
    has_groups: bool = True

    def limit_of(self, queue: Queue) -> int | None:
        return queue.max_depth_events if self.has_groups else queue.max_unread_events

    def is_stale(self, limit: int) -> bool:
        age = time.monotonic() - self.measured_at
        free = limit - (self.depth or 0)
        if self.depth is not None and self.pushed > max(free * _FRESH_FRACTION, limit / 100):
            return age > (4 if self.cost < _EXPENSIVE_SECONDS else 20) * self.cost
        # The measurements themselves must take at most a twentieth of the time.
        return age > max(_FRESH_SECONDS, 20 * self.cost)

    def is_full_for(self, queue: Queue, events: int) -> bool:
        """Whether a push of so many events exceeds the limit. If it does, the queue is full until it has drained."""
        limit = self.limit_of(queue)
        if self.depth is None or limit is None:
            return False
        depth = self.depth + self.pushed
        # A push that never fits is accepted if the queue is nearly empty.
        never_fits = events > limit * LOW_WATER and depth <= limit * _NEARLY_EMPTY
        bound = limit * LOW_WATER if self.is_full else limit
        if depth + events > bound and depth > 0 and not never_fits:
            self.is_full = True
            return True
        return False

    def drain_rate(self) -> float:
        if len(self.samples) < 2:
            return 0.0
        first, last = self.samples[0], self.samples[-1]
        if last.time <= first.time:
            return 0.0
        completed = first.depth + (last.total_pushed - first.total_pushed) - last.depth
        return max(completed, 0) / (last.time - first.time)

    def seconds_to_drain(self, events: float) -> float:
        """Return the time until so many events are completed. It grows while the queue does not drain."""
        rate = self.drain_rate()
        if rate > 0:
            return min(max(events / rate, _MIN_RETRY_SECONDS), _MAX_RETRY_SECONDS)
        return min(max(time.monotonic() - self.not_drained_since, 1.0), _MAX_RETRY_SECONDS / 3)


@dataclass(slots=True, eq=False)
class Backpressure:
    """Measures the depth of queues, and decides whether they accept a push."""

    pool: AsyncConnectionPool[Any]
    stats: QueueStats
    clock: Clock
    _depths: dict[int, _MeasuredDepth] = field(default_factory=dict, init=False)
    _locks: dict[int, asyncio.Lock] = field(default_factory=dict, init=False)
    _away_groups: set[tuple[int, str]] = field(default_factory=set, init=False)

    async def admit(self, queue: Queue, events: int) -> bool:
        """Return True if a push is accepted, or False if it is shed. Raise QueueFull if it is refused.

        The depth is measured a few times per second, not for each push.
        """
        if not queue.is_limited:
            return True
        measured, is_full = await self._measure_for(queue, events)
        if is_full:
            if queue.overflow == "shed":
                return False
            raise _queue_full(queue, measured)
        measured.is_full = False
        measured.pushed += events
        measured.total_pushed += events
        return True

    async def check(self, queue: Queue) -> None:
        if not queue.is_limited or queue.overflow == "shed":
            return
        measured, is_full = await self._measure_for(queue, 1)
        if is_full:
            raise _queue_full(queue, measured)

    async def find_reason(self, queue: Queue) -> str | None:
        """Return why the queue accepts no pushes from SQL, in a sentence, or None if it does."""
        if not queue.is_limited:
            return None
        measured, is_full = await self._measure_for(queue, 1)
        measured.is_full = is_full
        return str(_queue_full(queue, measured)) if is_full else None

    def capacity(self, queue: Queue) -> QueueCapacity | None:
        measured = self._depths.get(queue.id)
        limit = queue.max_depth_events if measured is None or measured.depth is None else measured.limit_of(queue)
        if limit is None:
            return None
        if measured is None or measured.depth is None:
            return QueueCapacity(limit, limit, 0.0)
        depth = measured.depth + measured.pushed
        remaining = 0 if measured.is_full else max(limit - depth, 0)
        return QueueCapacity(limit, remaining, measured.seconds_to_drain(depth) if depth else 0.0)

    async def record_shed(self, shed: dict[int, int]) -> None:
        params = {"queues": list(shed), "events": list(shed.values()), "skew": self.clock.skew}
        async with self.pool.connection() as conn:
            await conn.execute(_sql["record_shed"], params)

    async def _measure_for(self, queue: Queue, events: int) -> tuple[_MeasuredDepth, bool]:
        """Return the depth of a queue, and whether it is too full for a push of so many events."""
        measured = await self._get_depth(queue)
        was_full = measured.is_full
        is_full = measured.is_full_for(queue, events)
        if is_full and not measured.has_groups:
            # The first group may have been created since the measurement: another limit applies then.
            measured.is_full = was_full
            measured = await self._get_depth(queue, is_stale=True)
            is_full = measured.is_full_for(queue, events)
        return measured, is_full

    async def _get_depth(self, queue: Queue, *, is_stale: bool = False) -> _MeasuredDepth:
        measured = self._depths.get(queue.id)
        if measured is None or is_stale or measured.is_stale(measured.limit_of(queue) or 0):
            measured_at = None if measured is None else measured.measured_at
            async with self._locks.setdefault(queue.id, asyncio.Lock()):
                measured = self._depths.get(queue.id)
                if measured is None or measured.measured_at == measured_at:
                    measured = await self._measure(queue)
        return measured

    async def _measure(self, queue: Queue) -> _MeasuredDepth:
        measured = self._depths.setdefault(queue.id, _MeasuredDepth(not_drained_since=time.monotonic()))
        started = time.monotonic()
        pushed_before = measured.pushed
        try:
            groups = await self.stats.groups(queue)
            unread = None if groups or queue.max_unread_events is None else await self.stats.stored_events(queue)
        except (psycopg.errors.UndefinedTable, *CONNECTION_ERRORS):
            # The queue has a new segment, or the database is unavailable. The append retries in both cases.
            return measured
        self._log_away_groups(queue, groups)
        measured.slowest = find_slowest(groups)
        measured.has_groups = bool(groups)
        depth = unread if measured.slowest is None else measured.slowest.lag
        now = time.monotonic()
        # Events that were pushed during the measurement may not be part of it.
        measured.pushed -= pushed_before
        if depth is None or measured.depth is None or depth < measured.depth + pushed_before:
            measured.not_drained_since = now
        measured.measured_at, measured.depth, measured.cost = now, depth, now - started
        if depth is None:
            measured.samples.clear()
            return measured
        measured.samples.append(_DepthSample(now, depth, measured.total_pushed - measured.pushed))
        while len(measured.samples) > 2 and now - measured.samples[1].time > _DRAIN_SECONDS:
            measured.samples.popleft()
        return measured

    def _log_away_groups(self, queue: Queue, groups: list[GroupInfo]) -> None:
        """Log once when a group stops to count towards the depth, and once when it counts again."""
        for group in groups:
            key = (queue.id, group.group)
            if group.away and group.counts and key not in self._away_groups:
                reason = f"no consumer of group {group.group!r} has popped since {group.seen_at}"
                end = "until a consumer pops again (away_seconds)"
                if group.query_state == "stopped":
                    if group.lag < (queue.max_depth_events or 0):
                        continue  # the group would not hold pushes back
                    reason, end = f"query {group.group!r} was stopped", "until it is started again"
                self._away_groups.add(key)
                _logger.warning(
                    "queue %r: %s, and it is %d behind; it no longer counts for max_depth_events %s",
                    queue.name,
                    reason,
                    group.lag,
                    end,
                )
            elif not group.away and key in self._away_groups:
                self._away_groups.discard(key)
                _logger.warning("queue %r: group %r is back and counts for max_depth_events", queue.name, group.group)


def _queue_full(queue: Queue, measured: _MeasuredDepth) -> QueueFull:
    depth, limit = (measured.depth or 0) + measured.pushed, measured.limit_of(queue) or 0
    retry_after = measured.seconds_to_drain(max(depth - limit * LOW_WATER, 1))
    slowest = measured.slowest
    if slowest is None:
        cause = f"no group reads it, it holds {counted(depth, 'event')} and {limit:,} are allowed"
        remedy = "create a group, or raise max_unread_events"
    else:
        cause = f"{slowest.reader} is {counted(depth, 'event')} behind and {limit:,} are allowed"
        action = {"failed": "start it", "paused": "resume it"}.get(slowest.query_state or "", "raise max_depth_events")
        remedy = f"{action}, or let pushes pass it: `{slowest.release_command}`"
        if slowest.query_state == "failed" and slowest.seen_at is not None and queue.away_seconds is not None:
            end = slowest.seen_at + timedelta(seconds=queue.away_seconds + queue.delay_seconds)
            remedy += f". Otherwise they wait for it until {end.astimezone(UTC):%Y-%m-%d %H:%M} UTC (away_seconds)"
    return QueueFull(
        f"queue {queue.name!r} is full: {cause}; push again in {retry_after:.1f} s, {remedy}",
        queue=queue.name,
        depth=depth,
        limit=limit,
        retry_after=retry_after,
        group=None if slowest is None else slowest.group,
    )

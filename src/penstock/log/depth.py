"""Depth and lag: subtractions of offsets, never a count of events."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.core.errors import QueueFull
from penstock.db.statements import Statements

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool

    from penstock.core.clock import Clock
    from penstock.log.queue import Queue

_sql = Statements("penstock.log", "depth.sql")

#: A full queue accepts again when it has drained to this part of its limit.
_LOW_WATER = 0.9
_FRESH_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How far a group is behind in a queue."""

    group: str
    lag: int
    partitions_behind: int
    leases: int


@dataclass(frozen=True, slots=True)
class QueueSize:
    """How much a queue holds."""

    partitions: int
    events: int
    appended: int
    bytes: int


@dataclass(slots=True)
class _Sample:
    at: float
    depth: int | None
    cost: float
    drain: float = 0.0
    full: bool = False


class Depths:
    """Measures queues, and says when one is full."""

    def __init__(self, pool: AsyncConnectionPool[Any], clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._samples: dict[int, _Sample] = {}
        self._pushed: dict[int, int] = {}
        self._measuring: dict[int, asyncio.Lock] = {}

    async def lags(self, queue: Queue) -> list[GroupLag]:
        """Each group's lag."""
        params = {"queue": queue.id, "skew": self._clock.skew}
        async with self._pool.connection() as conn:
            statement = _sql.table("group_lag", queue.id, queue.segment)
            rows = await (await conn.execute(statement, params)).fetchall()
        return [GroupLag(*row) for row in rows]

    async def size(self, queue: Queue) -> QueueSize:
        """Partitions, events kept, events ever appended, and bytes on disk."""
        async with self._pool.connection() as conn:
            statement = _sql.table("queue_size", queue.id, queue.segment)
            row = await (await conn.execute(statement, {"queue": queue.id})).fetchone()
            tables = {"tables": f"^(chunks|ids)_{queue.id}_[0-9]+$"}
            stored = await (await conn.execute(_sql["queue_bytes"], tables)).fetchone()
        partitions, end, start = row if row is not None else (0, 0, 0)
        return QueueSize(partitions, end - start, end, stored[0] if stored is not None else 0)

    async def admit(self, queue: Queue, events: int) -> None:
        """Let a push through, or raise QueueFull; the depth is measured a few times a second, not per push."""
        limit = queue.max_depth_events
        if limit is None:
            return
        sample = self._samples.get(queue.id)
        if sample is None or time.monotonic() - sample.at > max(_FRESH_SECONDS, 20 * sample.cost):
            async with self._measuring.setdefault(queue.id, asyncio.Lock()):
                again = self._samples.get(queue.id)
                if again is sample:
                    await self._measure(queue, sample)
                sample = self._samples[queue.id]
        if sample.depth is None:
            return
        depth = sample.depth + self._pushed.get(queue.id, 0)
        bound = limit * _LOW_WATER if sample.full else limit
        if depth + events > bound and depth > 0:
            sample.full = True
            excess = depth - limit * _LOW_WATER
            wait = min(max(excess / sample.drain, 0.1), 30.0) if sample.drain > 0 else 1.0
            raise QueueFull(
                f"queue {queue.name!r} is full: its slowest group is {depth:,} events behind and {limit:,} are "
                f"allowed; push again in {wait:.1f} s, or raise max_depth_events",
                queue=queue.name,
                depth=depth,
                limit=limit,
                retry_after=wait,
            )
        sample.full = False
        self._pushed[queue.id] = self._pushed.get(queue.id, 0) + events

    async def _measure(self, queue: Queue, before: _Sample | None) -> None:
        started = time.monotonic()
        pushed = self._pushed.pop(queue.id, 0)
        lags = await self.lags(queue)
        # Nobody reads it: then nothing is behind, however much is pushed.
        depth = max((lag.lag for lag in lags), default=None)
        now = time.monotonic()
        drain = 0.0
        if before is not None and before.depth is not None and depth is not None and now > before.at:
            drain = max((before.depth + pushed - depth) / (now - before.at), 0.0)
        self._samples[queue.id] = _Sample(now, depth, now - started, drain, before.full if before else False)

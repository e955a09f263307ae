"""Sizes of queues and lags of groups. They are differences of offsets, so no events are counted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg_pool import AsyncConnectionPool

from penstock.core.clock import Clock
from penstock.db.statements import Statements
from penstock.log.queue import Queue

_sql = Statements("penstock.log", "queue_info.sql")


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group, its lag, and whether that counts towards the depth of the queue."""

    queue: str
    group: str
    subscribed_from: str
    query_id: str | None
    created_at: datetime
    lag: int
    partitions_behind: int
    leases: int
    #: False if the group is configured not to count.
    counts: bool = True
    #: When a consumer last popped from the group, to within a minute.
    seen_at: datetime | None = None
    #: No consumer has popped for ``away_seconds`` of the queue, so the group does not count for now.
    away: bool = False


@dataclass(frozen=True, slots=True)
class QueueSize:
    """The size of a queue."""

    partitions: int
    #: The number of events that are stored.
    events: int
    #: The number of events that were ever appended.
    appended: int
    #: The size on disk.
    bytes: int
    #: The number of events that were dropped because the queue was full.
    shed: int = 0


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue, its size, its groups and its number of dead letters."""

    queue: Queue
    size: QueueSize
    groups: list[GroupInfo]
    dead_letters: int


@dataclass(slots=True, eq=False)
class QueueStats:
    pool: AsyncConnectionPool[Any]
    clock: Clock

    async def groups(self, queue: Queue) -> list[GroupInfo]:
        params = {"queue": queue.id, "skew": self.clock.skew}
        async with self.pool.connection() as conn:
            statement = _sql.table("groups", queue.id, queue.segment)
            rows = await (await conn.execute(statement, params)).fetchall()
        return [GroupInfo(queue.name, *row) for row in rows]

    async def size(self, queue: Queue) -> QueueSize:
        params = {"queue": queue.id, "tables": f"^(chunks|ids)_{queue.id}_[0-9]+$"}
        async with self.pool.connection() as conn:
            statement = _sql.table("queue_size", queue.id, queue.segment)
            row = await (await conn.execute(statement, params)).fetchone()
        partitions, end, start, size, shed = row if row is not None else (0, 0, 0, 0, 0)
        return QueueSize(partitions, end - start, end, size, shed)

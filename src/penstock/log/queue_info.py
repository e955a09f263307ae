"""Sizes of queues and lags of groups. They are differences of offsets, so no events are counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from shlex import quote
from typing import Any, Literal, NamedTuple, TypeAlias

from psycopg.rows import args_row
from psycopg_pool import AsyncConnectionPool

from penstock.core.clock import Clock
from penstock.core.formatting import counted
from penstock.db.scalar import fetch_scalar
from penstock.db.statements import Statements
from penstock.log.queue import Queue

_sql = Statements("penstock.log", "queue_info.sql")

#: A full queue accepts pushes again when its depth is below this fraction of the limit.
LOW_WATER = 0.9

#: A failed query has ended and was not stopped.
QueryState: TypeAlias = Literal["running", "paused", "stopped", "failed"]


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
    #: The group does not count for now: its query was stopped, or no consumer has popped for ``away_seconds``.
    away: bool = False
    #: The state of the query that reads the group; None if it is not a query.
    query_state: QueryState | None = None

    @property
    def reader(self) -> str:
        """The reader of the group in words, for messages."""
        if self.query_state is None:
            return f"group {self.group!r}"
        return f"query {self.group!r}" if self.query_state == "running" else f"{self.query_state} query {self.group!r}"

    @property
    def release_command(self) -> str:
        """The command after which pushes no longer wait for the group."""
        if self.query_state == "failed":
            return f"penstock query stop {quote(self.group)}"
        return f"penstock group configure {quote(self.queue)} {quote(self.group)} --no-count"


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
    #: The number of events that were pushed from SQL and are not in a partition yet. They are part of ``events``.
    inbox: int = 0


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue, its size, its groups and its number of dead letters."""

    queue: Queue
    size: QueueSize
    groups: list[GroupInfo]
    dead_letters: int


def find_slowest(groups: Sequence[GroupInfo]) -> GroupInfo | None:
    """Return the group with the largest lag of those that count for the depth of their queue."""
    return max(
        (group for group in groups if group.counts and not group.away), key=lambda group: group.lag, default=None
    )


def find_holding_group(queue: Queue, groups: Sequence[GroupInfo]) -> GroupInfo | None:
    """Return the group that holds pushes back, because the queue is nearly full of its unread events."""
    slowest = find_slowest(groups)
    if slowest is None or queue.max_depth_events is None:
        return None
    return slowest if slowest.lag >= queue.max_depth_events * LOW_WATER else None


def describe_unread_limit(queue: Queue, events: int) -> str | None:
    """Describe a queue without groups that is full, or nearly so; None if it has room."""
    limit = queue.max_unread_events
    if limit is None or events < limit * LOW_WATER:
        return None
    return (
        f"the queue is {'full' if events >= limit else 'nearly full'}: no group reads it, it holds "
        f"{counted(events, 'event')} and {limit:,} are allowed. Create a group, or raise max_unread_events"
    )


class _SizeRow(NamedTuple):
    partitions: int
    #: The sums of the offsets after the last events and of the first events.
    end: int
    first: int
    bytes: int
    shed: int
    #: Events that were pushed from SQL and wait to be moved.
    inbox: int


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

    async def stored_events(self, queue: Queue) -> int:
        async with self.pool.connection() as conn:
            params = {"queue": queue.id, "segment": queue.segment}
            return int(await fetch_scalar(conn, _sql["stored_events"], params))

    async def size(self, queue: Queue) -> QueueSize:
        params = {"queue": queue.id, "tables": f"^(chunks|ids)_{queue.id}_[0-9]+$"}
        async with self.pool.connection() as conn:
            statement = _sql.table("queue_size", queue.id, queue.segment)
            cursor = conn.cursor(row_factory=args_row(_SizeRow))
            row = await (await cursor.execute(statement, params)).fetchone()
        row = row or _SizeRow(0, 0, 0, 0, 0, 0)
        return QueueSize(row.partitions, row.end - row.first + row.inbox, row.end, row.bytes, row.shed, row.inbox)

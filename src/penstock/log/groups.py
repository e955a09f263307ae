"""Consumer groups: their subscription and their positions."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from penstock.core.clock import Clock
from penstock.core.errors import GroupBusy, InvalidRequest, NotFound
from penstock.core.names import check_name
from penstock.db.retry import run_with_retry
from penstock.db.scalar import fetch_scalar
from penstock.db.statements import Statements
from penstock.log.catalog import Catalog
from penstock.log.queue import Queue
from penstock.log.queue_options import check_integer
from penstock.log.start_position import StartPosition, parse_start_position

_sql = Statements("penstock.log", "groups.sql")

#: The group of a pop that names none.
DEFAULT_GROUP = "default"
#: How often the activity of a group is written.
_ACTIVITY_SECONDS = 60.0
_MAX_CACHED_GROUPS = 10_000
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group of a queue."""

    id: int
    queue_id: int
    name: str
    #: The epoch of partitions that the group reads.
    epoch: int
    subscribed_from: str
    query_id: str | None
    created_at: datetime

    def owner_problem(self) -> str:
        """Return why consumers must not use the group, or an empty text if they may."""
        if self.query_id is None:
            return ""
        return (
            f"group {self.name!r} belongs to the query {self.query_id!r}, which would miss the events that you take: "
            "use another group"
        )


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """The position of a group in one partition."""

    partition: str
    partition_id: int
    epoch: int
    next_offset: int
    end_offset: int
    leased: bool
    available_at: datetime
    attempts: int
    moved_at: datetime | None

    @property
    def lag(self) -> int:
        """The number of events that the group has not completed."""
        return self.end_offset - self.next_offset


class _PartitionBounds(NamedTuple):
    partition_id: int
    name: str
    epoch: int
    start: int
    end: int
    #: The sealed segment that holds the first event of a start time, if there is one.
    segment: int | None


@dataclass(slots=True, eq=False)
class ConsumerGroups:
    pool: AsyncConnectionPool[Any]
    catalog: Catalog
    clock: Clock
    retry_seconds: float
    _cache: dict[tuple[int, str], tuple[float, Group]] = field(default_factory=dict, init=False)
    _active_at: dict[int, float] = field(default_factory=dict, init=False)

    async def get(self, queue: Queue, name: str) -> Group | None:
        """Return the group or None. The result may be a second old."""
        return self._cached(queue, name) or await run_with_retry(
            self.pool, self.retry_seconds, lambda conn: self._fetch(conn, queue, name)
        )

    async def get_on(self, conn: AsyncConnection[Any], queue: Queue, name: str) -> Group | None:
        """Like :meth:`get`, with the caller's connection: a caller that has one must not wait for another."""
        return self._cached(queue, name) or await self._fetch(conn, queue, name)

    async def require(self, queue: Queue, name: str) -> Group:
        """Return the group, or raise NotFound. The result may be a second old."""
        group = await self.get(queue, check_name(name, "group"))
        if group is None:
            raise NotFound(f"queue {queue.name!r} has no group {name!r}")
        return group

    def forget(self, queue: Queue, name: str) -> None:
        self._cache.pop((queue.id, name), None)

    async def subscribe(
        self, queue: Queue, name: str, start: StartPosition = "beginning", *, query_id: str | None = None
    ) -> Group:
        """Return the group of that name. If there is none, create it at the start position."""
        check_name(name, "group")
        group = await self.get(queue, name)
        if group is not None:
            return group
        start = parse_start_position(start)
        await run_with_retry(
            self.pool, self.retry_seconds, lambda conn: self._create(conn, queue, name, start, query_id)
        )
        created = await self.get(queue, name)
        if created is None:
            raise NotFound(f"queue {queue.name!r} was deleted meanwhile")
        return created

    async def seek(self, queue: Queue, name: str, position: StartPosition, *, partition: str | None = None) -> int:
        """Move the group and return in how many partitions. Events under a lease are delivered again."""
        position = parse_start_position(position)
        if isinstance(position, int) and partition is None:
            raise InvalidRequest("an offset is a position in one partition: name the partition, too")
        self.forget(queue, name)
        group = await self.require(queue, name)
        if group.query_id is not None:
            raise GroupBusy(
                f"group {name!r} belongs to the query {group.query_id!r}, which would count events twice; "
                "stop the query and start it with reset=True instead"
            )
        async with self.pool.connection() as conn, conn.transaction():
            queue = await self._lock_queue(conn, queue)
            await conn.execute(_sql["lock_group"], {"group": group.id})
            await conn.execute(_sql["lock_group_cursors"], {"group": group.id})
            await self._lock_positions(conn, group.id)
            moved = await self._move(conn, queue, group.id, position, partition)
            await conn.execute(_sql["record_activity"], {"group": group.id, "skew": self.clock.skew})
        self.forget(queue, name)
        if moved == 0 and partition is not None:
            raise NotFound(f"queue {queue.name!r} has no partition {partition!r}")
        return moved

    async def record_activity(self, group: Group) -> None:
        """Record that a consumer pops from the group. Without activity, the group stops to hold back pushes."""
        now = time.monotonic() + self.clock.skew.total_seconds()
        if now - self._active_at.get(group.id, -math.inf) < _ACTIVITY_SECONDS:
            return
        if len(self._active_at) > _MAX_CACHED_GROUPS:
            self._active_at.clear()
        self._active_at[group.id] = now
        params = {"group": group.id, "skew": self.clock.skew}
        await run_with_retry(self.pool, self.retry_seconds, lambda conn: conn.execute(_sql["record_activity"], params))

    async def set_counts(self, queue: Queue, name: str, *, counts: bool) -> None:
        params = {"queue": queue.id, "name": name, "counts": counts}
        async with self.pool.connection() as conn:
            if await (await conn.execute(_sql["set_counts"], params)).fetchone() is None:
                raise NotFound(f"queue {queue.name!r} has no group {name!r}")

    async def advance(self, conn: AsyncConnection[Any], queue: Queue, group: Group) -> bool:
        """Move the group to the next epoch of partitions, if it has read the current one to the end.

        Return whether it has moved, now or before.
        """
        self.forget(queue, group.name)
        async with conn.transaction():
            row = await (await conn.execute(_sql["lock_group"], {"group": group.id})).fetchone()
            if row is None:
                return False
            _group_id, epoch = row
            if epoch != group.epoch:
                return True
            statement = _sql.table("has_unread", queue.id, queue.segment)
            if await fetch_scalar(conn, statement, {"group": group.id, "epoch": group.epoch}):
                return False
            await conn.execute(_sql["set_epoch"], {"group": group.id, "epoch": group.epoch + 1})
        return True

    async def delete(self, queue: Queue, name: str) -> bool:
        """Delete the group and its positions. Return False if there is no such group."""
        self.forget(queue, name)
        group = await self.get(queue, check_name(name, "group"))
        if group is None:
            return False
        if group.query_id is not None:
            raise GroupBusy(
                f"group {name!r} belongs to the query {group.query_id!r}; stop and delete the query instead"
            )
        async with self.pool.connection() as conn, conn.transaction():
            await self._delete(conn, group.id)
        self.forget(queue, name)
        return True

    async def delete_of_query(self, conn: AsyncConnection[Any], query: str) -> None:
        """Delete the groups of a query, in the transaction that deletes the query."""
        rows = await (await conn.execute(_sql["groups_of_query"], {"query": query})).fetchall()
        for group_id, queue_id, name in rows:
            await self._delete(conn, group_id)
            self._cache.pop((queue_id, name), None)

    async def positions(self, queue: Queue, group: Group) -> list[PartitionPosition]:
        params = {"group": group.id, "skew": self.clock.skew}
        return await self._fetch_positions("group_positions", queue, params)

    async def positions_behind(self, queue: Queue, group: Group, limit: int) -> list[PartitionPosition]:
        check_integer("limit", limit, 1, 1_000)
        params = {"group": group.id, "limit": limit, "skew": self.clock.skew}
        return await self._fetch_positions("positions_behind", queue, params)

    async def _fetch_positions(self, name: str, queue: Queue, params: dict[str, Any]) -> list[PartitionPosition]:
        async with self.pool.connection() as conn:
            rows = await (await conn.execute(_sql.table(name, queue.id, queue.segment), params)).fetchall()
        return [PartitionPosition(*row) for row in rows]

    def _cached(self, queue: Queue, name: str) -> Group | None:
        cached_at, group = self._cache.get((queue.id, name), (-math.inf, None))
        return group if time.monotonic() - cached_at < self.catalog.cache_seconds else None

    async def _fetch(self, conn: AsyncConnection[Any], queue: Queue, name: str) -> Group | None:
        row = await (await conn.execute(_sql["group"], {"queue": queue.id, "name": name})).fetchone()
        if row is None:
            self.forget(queue, name)
            return None
        group = Group(*row)
        self._cache[queue.id, name] = (time.monotonic(), group)
        return group

    async def _create(
        self, conn: AsyncConnection[Any], queue: Queue, name: str, start: StartPosition, query_id: str | None
    ) -> None:
        async with conn.transaction():
            # While the queue is locked no partition is created, so the group gets a cursor for each of them.
            queue = await self._lock_queue(conn, queue)
            params = {
                "queue": queue.id,
                "name": name,
                "subscribed_from": start.isoformat() if isinstance(start, datetime) else str(start),
                "query": query_id,
                "skew": self.clock.skew,
            }
            row = await (await conn.execute(_sql["create_group"], params)).fetchone()
            if row is not None:
                (group_id,) = row
                await conn.execute(_sql["create_cursors"], {"group": group_id, "queue": queue.id})
                await self._move(conn, queue, group_id, start, None)

    async def _delete(self, conn: AsyncConnection[Any], group_id: int) -> None:
        for statement in ("lock_group", "lock_group_cursors", "delete_group", "delete_group_positions"):
            await conn.execute(_sql[statement], {"group": group_id})

    async def _lock_positions(self, conn: AsyncConnection[Any], group_id: int) -> None:
        """Lock all positions of the group. Acks do not lock the cursors, so a position may move meanwhile."""
        while True:
            row = await (await conn.execute(_sql["lock_positions"], {"group": group_id})).fetchone()
            locked, total = row or (0, 0)
            if locked == total:
                return

    async def _lock_queue(self, conn: AsyncConnection[Any], queue: Queue) -> Queue:
        locked = await self.catalog.lock_on(conn, queue)
        if locked is None or locked.id != queue.id:
            raise NotFound(f"queue {queue.name!r} was deleted meanwhile")
        return locked

    async def _move(
        self, conn: AsyncConnection[Any], queue: Queue, group_id: int, position: StartPosition, partition: str | None
    ) -> int:
        start_time = position if isinstance(position, datetime) else _END_OF_TIME
        statement = _sql.table("partition_bounds", queue.id, queue.segment)
        params = {"queue": queue.id, "name": partition, "time": start_time}
        rows = await (await conn.execute(statement, params)).fetchall()
        bounds = [_PartitionBounds._make(row) for row in rows]
        if not bounds:
            return 0
        offsets = await self._find_offsets(conn, queue, bounds, position)
        moves = {
            "group": group_id,
            "partitions": [bound.partition_id for bound in bounds],
            "offsets": offsets,
            "skew": self.clock.skew,
        }
        await conn.execute(_sql["move_positions"], moves)
        unread_epochs = [bound.epoch for bound, offset in zip(bounds, offsets, strict=True) if offset < bound.end]
        epoch = min(unread_epochs, default=queue.epoch)
        if partition is not None:
            row = await (await conn.execute(_sql["group_epoch"], {"group": group_id})).fetchone()
            if row is not None:
                (current_epoch,) = row
                epoch = min(epoch, current_epoch)
        await conn.execute(_sql["set_epoch"], {"group": group_id, "epoch": epoch})
        return len(bounds)

    async def _find_offsets(
        self, conn: AsyncConnection[Any], queue: Queue, bounds: list[_PartitionBounds], position: StartPosition
    ) -> list[int]:
        if position == "beginning":
            return [bound.start for bound in bounds]
        if position in ("end", "now"):
            return [bound.end for bound in bounds]
        if isinstance(position, int):
            return [min(max(position, bound.start), bound.end) for bound in bounds]
        offsets: dict[int, int] = {}
        for segment in {bound.segment for bound in bounds}:
            partition_ids = [bound.partition_id for bound in bounds if bound.segment == segment]
            statement = _sql.table("offsets_at", queue.id, queue.segment if segment is None else segment)
            params = {"partitions": partition_ids, "time": position}
            rows = await (await conn.execute(statement, params)).fetchall()
            offsets.update({partition_id: offset for partition_id, offset in rows})
        return [offsets.get(bound.partition_id, bound.end) for bound in bounds]

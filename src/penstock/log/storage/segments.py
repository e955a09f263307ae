"""Segments: the tables that hold a queue's chunks, one after the other.

An old or large segment is sealed and a new one is opened. Retention drops whole tables.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from penstock.core.clock import Clock
from penstock.core.formatting import counted
from penstock.db.statements import Statements
from penstock.log.catalog import Catalog
from penstock.log.options import check_partitioning
from penstock.log.queue import Queue

_sql = Statements("penstock.log.storage", "segments.sql")
_catalog = Statements("penstock.log", "catalog.sql")
_logger = logging.getLogger("penstock.log")

_MAX_SEGMENT_AGE = timedelta(days=1)
_MAX_SEGMENT_BYTES = 4 << 30
_IDLE_SECONDS = 5.0


class RetentionResult(NamedTuple):
    """How many segments were dropped, and how many were kept past their retention because a group has not read them."""

    dropped: int = 0
    waiting: int = 0


class _SegmentState(NamedTuple):
    age: timedelta
    size: int
    has_chunks: bool


@dataclass(slots=True, eq=False)
class Segments:
    """Rolls and drops segments, repartitions queues, and parks idle cursors."""

    pool: AsyncConnectionPool[Any]
    catalog: Catalog
    clock: Clock

    async def roll(self, queue: Queue) -> None:
        """Seal the open segment and open the next. Pushes to the queue wait for it."""
        async with self.pool.connection() as conn:
            await self.roll_on(conn, queue)

    async def roll_on(self, conn: AsyncConnection[Any], queue: Queue) -> Queue:
        """Seal the open segment and open the next. Return the current state of the queue."""
        async with conn.transaction():
            # A user's transaction may hold a lock on a partition for a long time, and all pushes wait behind this one.
            await conn.execute("SET LOCAL lock_timeout = '1s'")
            current = await self._lock_queue(conn, queue)
            if current is None:
                return queue
            if current.segment == queue.segment:
                await self._seal(conn, current)
        return await self.catalog.find_on(conn, queue.name) or queue

    async def repartition(self, queue: Queue, partitioning: str, partitions: int | None) -> Queue:
        """Start a new epoch of partitions. Groups read the old ones to the end first, so order per key is kept."""
        kind, count = check_partitioning(partitioning, partitions)
        async with self.pool.connection() as conn, conn.transaction():
            current = await self._lock_queue(conn, queue)
            if current is not None and (current.partitioning, current.partition_count) != (kind, count):
                epoch = current.epoch + 1
                params = {"queue": queue.id, "epoch": epoch, "partitioning": kind, "partition_count": count}
                await conn.execute(_sql["start_epoch"], params)
                if count is not None:
                    names = [str(i) for i in range(count)]
                    await self.catalog.create_partitions(conn, queue.id, epoch, names, is_key_partition=False)
        return await self.catalog.refresh(queue.name)

    async def is_due(self, conn: AsyncConnection[Any], queue: Queue) -> bool:
        """Whether the open segment is old or large enough to be sealed."""
        params = {"queue": queue.id, "segment": queue.segment, "skew": self.clock.skew}
        statement = _sql.table("segment_state", queue.id, queue.segment)
        row = await (await conn.execute(statement, params, prepare=False)).fetchone()
        if row is None:
            return False
        state = _SegmentState._make(row)
        max_age = _MAX_SEGMENT_AGE
        if queue.retention_seconds is not None:
            max_age = min(max_age, timedelta(seconds=min(queue.retention_seconds / 4, 1e9)))
        elif queue.dedup_window_seconds <= 0:
            max_age = timedelta.max  # nothing is ever dropped, so the age does not matter
        return state.has_chunks and (state.age > max_age or state.size > _MAX_SEGMENT_BYTES)

    async def apply_retention(self, conn: AsyncConnection[Any], queue: Queue) -> RetentionResult:
        """Drop the segments and the id tables whose time is over."""
        params = {"queue": queue.id, "skew": self.clock.skew, "seconds": queue.dedup_window_seconds}
        for (segment,) in await (await conn.execute(_sql["expired_ids"], params)).fetchall():
            async with conn.transaction():
                await self._drop_table(conn, "drop_ids_table", queue, segment)
                await conn.execute(_sql["delete_ids"], {"queue": queue.id, "segment": segment})
        if queue.retention_seconds is None:
            return RetentionResult()
        dropped = 0
        params["seconds"] = max(queue.retention_seconds, queue.dedup_window_seconds)
        for segment, has_unread in await (await conn.execute(_sql["expired_segments"], params)).fetchall():
            if has_unread and not queue.retention_drops_unread:
                # Groups read in order, so the later segments are unread, too.
                return RetentionResult(dropped, waiting=1)
            async with conn.transaction():
                await self._drop_segment(conn, queue, segment, has_unread=has_unread)
            dropped += 1
        return RetentionResult(dropped)

    async def park_idle(self, conn: AsyncConnection[Any], queue: Queue) -> int:
        """Park the cursors of drained and idle partitions, so that pops skip them. Return how many."""
        if queue.partitioning == "hash" and queue.epoch == 0:
            return 0  # hash partitions are few, and all in use
        params: dict[str, Any] = {"queue": queue.id, "skew": self.clock.skew, "seconds": _IDLE_SECONDS}
        idle = await (await conn.execute(_sql.table("idle_cursors", queue.id, queue.segment), params)).fetchall()
        if not idle:
            return 0
        async with conn.transaction():
            cursors = await (await conn.execute(_sql["try_lock_cursors"], _cursor_params(idle))).fetchall()
            partition_ids = sorted({partition_id for _group_id, partition_id in cursors})
            rows = await (await conn.execute(_sql["try_lock_partitions"], {"partitions": partition_ids})).fetchall()
            locked = {partition_id for (partition_id,) in rows}
            parkable = [(group_id, partition_id) for group_id, partition_id in cursors if partition_id in locked]
            statement = _sql.table("park", queue.id, queue.segment)
            return (await conn.execute(statement, _cursor_params(parkable))).rowcount

    async def _lock_queue(self, conn: AsyncConnection[Any], queue: Queue) -> Queue | None:
        """Lock the queue and all its partitions. No push is running, and no partition is created meanwhile."""
        current = await self.catalog.lock_on(conn, queue)
        await conn.execute(_sql["lock_partitions"], {"queue": queue.id})
        return current

    async def _seal(self, conn: AsyncConnection[Any], queue: Queue) -> None:
        params = {"queue": queue.id, "segment": queue.segment, "skew": self.clock.skew}
        await conn.execute(_sql.table("store_bounds", queue.id, queue.segment), params, prepare=False)
        await conn.execute(_sql["seal_partitions"], params)
        await conn.execute(_sql["seal_segment"], params)
        await conn.execute(_catalog.table("drop_append", queue.id, queue.segment), prepare=False)
        await self.catalog.create_segment(conn, queue.id, queue.segment + 1)
        await conn.execute(_sql["open_segment"], {"queue": queue.id, "segment": queue.segment + 1})

    async def _drop_segment(self, conn: AsyncConnection[Any], queue: Queue, segment: int, *, has_unread: bool) -> None:
        params = {"queue": queue.id, "segment": segment, "skew": self.clock.skew}
        if has_unread:
            await self._lock_positions_behind(conn, params)
            for group, count in await (await conn.execute(_sql["skip_dropped"], params)).fetchall():
                dropped = counted(count, "event")
                _logger.warning("queue %r: retention dropped %s that group %r had not read", queue.name, dropped, group)
        await self._drop_table(conn, "drop_chunks_table", queue, segment)
        await self._drop_table(conn, "drop_ids_table", queue, segment)
        await conn.execute(_sql["delete_segment"], params)

    async def _lock_positions_behind(self, conn: AsyncConnection[Any], params: Mapping[str, Any]) -> None:
        """Lock the positions of all groups in the segment's partitions. Acks may move a position meanwhile."""
        while True:
            row = await (await conn.execute(_sql["lock_positions_behind"], params)).fetchone()
            locked, total = row or (0, 0)
            if locked == total:
                return

    async def _drop_table(self, conn: AsyncConnection[Any], statement: str, queue: Queue, segment: int) -> None:
        # Do not wait for readers of the table, because pushes would wait behind. The next round tries again.
        await conn.execute("SET LOCAL lock_timeout = '200ms'")
        await conn.execute(_catalog.table(statement, queue.id, segment), prepare=False)


def _cursor_params(cursors: list[tuple[int, int]]) -> dict[str, list[int]]:
    return {
        "groups": [group_id for group_id, _partition_id in cursors],
        "partitions": [partition_id for _group_id, partition_id in cursors],
    }

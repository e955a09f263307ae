"""Segments: the tables that hold a queue's chunks, one after the other.

An old or large segment is sealed and a new one is opened. Retention drops whole segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from penstock.core.clock import Clock
from penstock.db.statements import Statements
from penstock.log.catalog import Catalog
from penstock.log.queue import Queue
from penstock.log.queue_options import check_partitioning

_sql = Statements("penstock.log.storage", "segments.sql")
_catalog = Statements("penstock.log", "catalog.sql")

_MAX_SEGMENT_AGE = timedelta(days=1)
_MAX_SEGMENT_BYTES = 4 << 30


class _SegmentState(NamedTuple):
    age: timedelta
    size: int
    has_chunks: bool


@dataclass(slots=True, eq=False)
class Segments:
    """Rolls segments, and repartitions queues."""

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

"""Reads of many partitions by offset, and the partitions that were written since a time. Positions stay unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import args_row
from psycopg_pool import AsyncConnectionPool

from penstock.core.clock import Clock
from penstock.core.errors import CorruptChunk
from penstock.db.statements import Statements
from penstock.log.catalog import Catalog
from penstock.log.event import Delivery, Event
from penstock.log.queue import Queue
from penstock.log.storage.chunk_reader import ChunkRange, find_segment, read_first_chunks

_sql = Statements("penstock.log.read", "offset_reads.sql")

#: The most events of one partition that one call returns.
_MAX_EVENTS = 10_000
_UNLIMITED = 1 << 62


class _Bounds(NamedTuple):
    id: int
    name: str
    is_key_partition: bool
    first: int
    end: int
    sealed_end: int


@dataclass(slots=True)
class PartitionRead:
    """The bounds of a partition and some of its events."""

    first: int
    end: int
    events: list[Event] = field(default_factory=list)


class ChangedPartition(NamedTuple):
    """A partition that was written: its bounds and the time of the last append."""

    id: int
    name: str
    end: int
    first: int
    last_at: datetime | None


@dataclass(slots=True, eq=False)
class OffsetReader:
    pool: AsyncConnectionPool[Any]
    catalog: Catalog
    clock: Clock

    async def read(
        self, name: str, offsets: Mapping[str, int], max_bytes: int, *, needs_first: bool = True
    ) -> dict[str, PartitionRead]:
        """Return events of the partitions of a queue from these offsets on, up to ``max_bytes`` together.

        With ``needs_first``, the first chunk is returned even if it is larger. One partition after the other is read.
        Partitions that do not exist are left out. Damaged chunks are skipped.
        """
        queue = await self.catalog.get(name)
        for attempt in range(2):
            try:
                async with self.pool.connection() as conn:
                    return await self._read_on(conn, queue, offsets, max_bytes, _UNLIMITED if needs_first else 0)
            except psycopg.errors.UndefinedTable:
                # The segment was dropped meanwhile. If the queue was deleted, this raises NotFound.
                if attempt:
                    raise
                queue = await self.catalog.refresh(name)
        raise AssertionError

    async def _read_on(
        self, conn: AsyncConnection[Any], queue: Queue, offsets: Mapping[str, int], max_bytes: int, first_bytes: int
    ) -> dict[str, PartitionRead]:
        params = {"names": list(offsets), "epoch": queue.epoch}
        async with conn.cursor(row_factory=args_row(_Bounds)) as cursor:
            await cursor.execute(_sql.table("bounds", queue.id, queue.segment), params)
            found = {bounds.name: bounds async for bounds in cursor}
        ranges: list[ChunkRange] = []
        for name, offset in offsets.items():
            bounds = found.get(name)
            if bounds is None or not bounds.first <= offset < bounds.end:
                continue
            segment, end = queue.segment, bounds.end
            if offset < bounds.sealed_end:
                segment, segment_end = await find_segment(conn, queue, bounds.id, offset)
                end = end if segment_end is None else segment_end
            ranges.append(ChunkRange(bounds.id, segment, offset, min(end, offset + _MAX_EVENTS)))
        damaged: list[CorruptChunk] = []
        chunks = (await read_first_chunks(conn, queue, ranges, damaged, max_bytes, first_bytes)).chunks
        stops = {wanted.partition_id: wanted.stop for wanted in ranges}
        reads: dict[str, PartitionRead] = {}
        for name, bounds in found.items():
            reads[name] = read = PartitionRead(bounds.first, bounds.end)
            delivery = Delivery(queue.name, bounds.name, bounds.id, bounds.is_key_partition)
            for stored in chunks.get(bounds.id, ()):
                # A redriven dead letter is for one group.
                if stored.target_group is None:
                    start, stop = max(stored.first, offsets[name]), min(stored.end, stops[bounds.id])
                    read.events += [Event(delivery, stored, offset) for offset in range(start, stop)]
        return reads

    async def safe_time(self, name: str) -> datetime:
        """Return a time before which all appends to a queue are committed. Call it before reading."""
        queue = await self.catalog.get(name)
        async with self.pool.connection() as conn:
            statement = _sql.table("oldest_append", queue.id, queue.segment)
            ((time,),) = await (await conn.execute(statement, {"skew": self.clock.skew})).fetchall()
        assert isinstance(time, datetime)  # noqa: S101 - for mypy
        return time

    async def changed(
        self, name: str, since: datetime | None, *, after: int = 0, limit: int = 1000
    ) -> list[ChangedPartition]:
        """Return the partitions with an append at this time or later, ordered by id, which come after an id."""
        queue = await self.catalog.refresh(name)
        params = {"epoch": queue.epoch, "since": since, "after": after, "limit": limit}
        async with self.pool.connection() as conn:
            rows = await (await conn.execute(_sql.table("changed", queue.id, queue.segment), params)).fetchall()
        return [ChangedPartition._make(row) for row in rows]

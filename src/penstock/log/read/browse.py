"""Reads events without consuming them: by offset, by filter or by id."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from penstock.core.errors import CorruptChunk, NotFound
from penstock.core.names import check_text
from penstock.db.scalar import fetch_scalar
from penstock.db.statements import Statements
from penstock.log.catalog import Catalog
from penstock.log.event import Delivery, Event
from penstock.log.partition_reader import read_events
from penstock.log.queue import Queue
from penstock.log.queue_options import MAX_COUNT, check_integer, check_timestamp
from penstock.log.storage.chunk import StoredChunk
from penstock.log.storage.chunk_reader import ChunkRow, decode_row
from penstock.log.storage.partitions import list_partitions

_sql = Statements("penstock.log.read", "browse.sql")
_logger = logging.getLogger("penstock.log")

#: The number of chunks that a browse reads at a time.
_PAGE_CHUNKS = 64
#: The number of pages of a table that are read at a time, from its end.
_TABLE_PAGES = 8
_MAX_EVENTS = 100_000


@dataclass(slots=True, eq=False)
class Browser:
    """Reads events and leaves every group's position unchanged."""

    pool: AsyncConnectionPool[Any]
    catalog: Catalog

    async def fetch(self, queue: Queue, partition: str, offset: int, limit: int) -> list[Event]:
        """Return events of a partition from an offset on. A negative offset counts from the end.

        The result ends before a damaged chunk. If it would start in one, CorruptChunk is raised.
        """
        check_text(partition, "the partition")
        check_integer("offset", offset, -MAX_COUNT, MAX_COUNT)
        check_integer("limit", limit, 1, _MAX_EVENTS)
        partitions = await list_partitions(self.pool, self.catalog, queue, name=partition)
        if not partitions:
            raise NotFound(f"queue {queue.name!r} has no partition {partition!r}")
        current = max(partitions, key=attrgetter("epoch"))
        first = max(current.first, current.end + offset if offset < 0 else offset)
        async with self.pool.connection() as conn:
            return await _read_undamaged(conn, queue, current.id, first, limit)

    async def read(self, queue: Queue, partition_id: int, offset: int, limit: int) -> list[Event]:
        check_integer("the number of a partition", partition_id, 0, MAX_COUNT)
        check_integer("offset", offset, 0, MAX_COUNT)
        check_integer("limit", limit, 1, _MAX_EVENTS)
        async with self.pool.connection() as conn:
            params = {"queue": queue.id, "partition": partition_id}
            if await (await conn.execute(_sql["is_of_queue"], params)).fetchone() is None:
                raise NotFound(f"queue {queue.name!r} has no partition with the number {partition_id}")
            return await _read_undamaged(conn, queue, partition_id, offset, limit)

    async def browse(
        self,
        queue: Queue,
        *,
        partition: str | None = None,
        key: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        matching: Callable[[Event], bool] | None = None,
        limit: int = 100,
    ) -> list[Event]:
        """Return the newest events that match, newest first. Damaged chunks are skipped and logged."""
        if partition is not None:
            check_text(partition, "the partition")
        if key is not None:
            check_text(key, "the key")
        check_timestamp("since", since)
        check_timestamp("until", until)
        check_integer("limit", limit, 1, MAX_COUNT)
        events: list[Event] = []
        if key is not None and partition is None and queue.epoch == 0:
            partition = queue.partition_for_key(key)
        # Close the generator here: if it is left to the garbage collector, it keeps its connection.
        async with aclosing(self._newest(queue, partition, since, until)) as newest:
            async for event in newest:
                if (key is None or event.key == key) and (matching is None or matching(event)):
                    events.append(event)
                    if len(events) >= limit:
                        break
        return events

    async def latest(self, queue: Queue, limit: int) -> list[Event]:
        """Return the newest events of all partitions, newest first.

        Chunks are only appended, so the newest are at the end of the table.
        """
        check_integer("limit", limit, 1, 10_000)
        events: list[Event] = []
        async with self.pool.connection() as conn:
            for segment in await _segments_between(conn, queue, None, None):
                try:
                    async for delivery, stored in self._from_table_end(conn, queue, segment):
                        first = max(stored.first, stored.end - limit + len(events))
                        events += [Event(delivery, stored, offset) for offset in range(stored.end - 1, first - 1, -1)]
                        if len(events) >= limit:
                            return events
                except psycopg.errors.UndefinedTable:
                    break  # retention has dropped this segment and the older ones
        return events

    async def find(
        self, queue: Queue, event_id: str, *, since: datetime | None = None, until: datetime | None = None
    ) -> Event | None:
        check_text(event_id, "the id")
        events = await self.browse(
            queue,
            since=since,
            until=until,
            matching=lambda e: e.given_id == event_id or (e.given_id is None and e.id == event_id),
            limit=1,
        )
        return events[0] if events else None

    async def _from_table_end(
        self, conn: AsyncConnection[Any], queue: Queue, segment: int
    ) -> AsyncIterator[tuple[Delivery, StoredChunk]]:
        last_page = int(await fetch_scalar(conn, _sql.table("table_pages", queue.id, segment)))
        chunk_statement = _sql.table("chunk", queue.id, segment)
        while last_page > 0:
            first_page = max(last_page - _TABLE_PAGES, 0)
            pages = {"first": f"({first_page},0)", "last": f"({last_page},0)"}
            statement = _sql.table("chunks_in_pages", queue.id, segment)
            rows = await (await conn.execute(statement, pages)).fetchall()
            for partition_id, name, is_key_partition, end_offset in rows:
                params = {"partition": partition_id, "end": end_offset}
                chunk_row = await (await conn.execute(chunk_statement, params, binary=True)).fetchone()
                stored = None if chunk_row is None else _decode_or_log(queue, segment, ChunkRow._make(chunk_row))
                if stored is not None:
                    yield Delivery(queue.name, name, partition_id, is_key_partition), stored
            last_page = first_page

    async def _newest(
        self, queue: Queue, partition: str | None, since: datetime | None, until: datetime | None
    ) -> AsyncGenerator[Event, None]:
        async with self.pool.connection() as conn:
            lowest: dict[int, int] = {}
            for segment in await _segments_between(conn, queue, since, until):
                statement = _sql.table("newest_chunks", queue.id, segment)
                page = 0
                while True:
                    params = {
                        "queue": queue.id,
                        "since": since,
                        "until": until,
                        "partition": partition,
                        "limit": _PAGE_CHUNKS,
                        "offset": page * _PAGE_CHUNKS,
                    }
                    try:
                        rows = await (await conn.execute(statement, params, binary=True)).fetchall()
                    except psycopg.errors.UndefinedTable:
                        return  # retention has dropped this segment and the older ones
                    for name, is_key_partition, *columns in rows:
                        row = ChunkRow._make(columns)
                        # Chunks that are appended meanwhile move others from one page to the next.
                        if row.end_offset >= lowest.get(row.partition_id, row.end_offset + 1):
                            continue
                        lowest[row.partition_id] = row.end_offset
                        stored = _decode_or_log(queue, segment, row)
                        if stored is None:
                            continue
                        delivery = Delivery(queue.name, name, row.partition_id, is_key_partition)
                        for offset in range(stored.end - 1, stored.first - 1, -1):
                            yield Event(delivery, stored, offset)
                    if len(rows) < _PAGE_CHUNKS:
                        break
                    page += 1


async def _segments_between(
    conn: AsyncConnection[Any], queue: Queue, since: datetime | None, until: datetime | None
) -> list[int]:
    params = {"queue": queue.id, "since": since, "until": until}
    rows = await (await conn.execute(_sql["segments_between"], params)).fetchall()
    return [segment for (segment,) in rows]


def _decode_or_log(queue: Queue, segment: int, row: ChunkRow) -> StoredChunk | None:
    try:
        return decode_row(queue, segment, row)
    except CorruptChunk as error:
        _logger.error("%s", error)
        return None


async def _read_undamaged(
    conn: AsyncConnection[Any], queue: Queue, partition_id: int, start: int, limit: int
) -> list[Event]:
    """Return the events before the first damaged chunk. Raise CorruptChunk if there are none."""
    damaged: list[CorruptChunk] = []
    events = await read_events(conn, queue, partition_id, start, limit, damaged)
    if not damaged:
        return events
    undamaged = [event for event in events if event.offset < damaged[0].start]
    if not undamaged:
        raise damaged[0]
    return undamaged

"""Reading without consuming: by offset, by filter, by id."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.core.errors import CorruptChunk, NotFound
from penstock.core.names import check_text
from penstock.db.statements import Statements
from penstock.log.event import Delivery, Event, StoredChunk
from penstock.log.options import MAX_COUNT, check_moment, check_whole
from penstock.log.read.reader import read_events, stored_chunk

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool

    from penstock.log.queue import Queue

_sql = Statements("penstock.log.read", "browse.sql")
_logger = logging.getLogger("penstock.log")

#: Chunks that are read at a time while browsing.
_PAGE = 64
#: Pages of the table that are read at a time from its end.
_PAGES = 8


class Browser:
    """Looks at events and leaves every group where it is."""

    def __init__(self, pool: AsyncConnectionPool[Any]) -> None:
        self._pool = pool

    async def fetch(self, queue: Queue, partition: str, offset: int, limit: int) -> list[Event]:
        """Events of a partition from an offset on; a negative offset counts from the end.

        They end before a damaged chunk; who asks for what is in it is told so, and where it ends.
        """
        check_text(partition, "the partition")
        check_whole("offset", offset, -MAX_COUNT, MAX_COUNT)
        check_whole("limit", limit, 1, 100_000)
        async with self._pool.connection() as conn:
            statement = _sql.table("lane", queue.id, queue.segment)
            row = await (await conn.execute(statement, {"queue": queue.id, "name": partition})).fetchone()
            if row is None:
                raise NotFound(f"queue {queue.name!r} has no partition {partition!r}")
            lane, start, end = row
            first = max(start, end + offset if offset < 0 else offset)
            return await _undamaged(conn, queue, lane, first, limit)

    async def read(self, queue: Queue, partition_id: int, offset: int, limit: int) -> list[Event]:
        """The same by the partition's number; none if it is another queue's."""
        check_whole("offset", offset, 0, MAX_COUNT)
        check_whole("limit", limit, 1, 100_000)
        async with self._pool.connection() as conn:
            where = {"queue": queue.id, "partition": partition_id}
            if await (await conn.execute(_sql["is_of_queue"], where)).fetchone() is None:
                raise NotFound(f"queue {queue.name!r} has no partition with the number {partition_id}")
            return await _undamaged(conn, queue, partition_id, offset, limit)

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
        """The newest events that match, newest first; a damaged chunk is passed over, and named in the log."""
        if partition is not None:
            check_text(partition, "the partition")
        if key is not None:
            check_text(key, "the key")
        check_moment("since", since)
        check_moment("until", until)
        check_whole("limit", limit, 1, MAX_COUNT)
        found: list[Event] = []
        if key is not None and partition is None and queue.epoch == 0:
            partition = queue.place(key)
        # Closed with the look: what it is left with in the middle would keep its connection for a while.
        async with aclosing(self._newest(queue, partition, since, until)) as newest:
            async for event in newest:
                if (key is None or event.key == key) and (matching is None or matching(event)):
                    found.append(event)
                    if len(found) >= limit:
                        break
        return found

    async def latest(self, queue: Queue, limit: int) -> list[Event]:
        """The newest events of all partitions, newest first.

        Chunks are only ever added, so the newest lie at the end of the table, whatever partitions they are of.
        """
        check_whole("limit", limit, 1, 10_000)
        events: list[Event] = []
        async with self._pool.connection() as conn:
            span = {"queue": queue.id, "since": None, "until": None}
            for (segment,) in await (await conn.execute(_sql["segments_between"], span)).fetchall():
                try:
                    async for name, is_lane, lane, stored in self._from_the_end(conn, queue, segment):
                        delivery = Delivery(queue.name, name, lane, is_lane)
                        first = max(stored.first, stored.end - limit + len(events))
                        events += [Event(delivery, stored, offset) for offset in range(stored.end - 1, first - 1, -1)]
                        if len(events) >= limit:
                            return events
                except psycopg.errors.UndefinedTable:
                    break  # retention was quicker, and what is older is gone too
        return events

    async def _from_the_end(
        self, conn: AsyncConnection[Any], queue: Queue, segment: int
    ) -> AsyncIterator[tuple[str, bool, int, StoredChunk]]:
        row = await (await conn.execute(_sql.table("pages", queue.id, segment))).fetchone()
        last = int(row[0]) if row is not None else 0
        while last > 0:
            first = max(last - _PAGES, 0)
            ends = {"first": f"({first},0)", "last": f"({last},0)"}
            found = await (await conn.execute(_sql.table("at_the_end", queue.id, segment), ends)).fetchall()
            for lane, name, is_lane, end in found:
                body = _sql.table("chunk", queue.id, segment)
                chunk = await (await conn.execute(body, {"partition": lane, "end": end}, binary=True)).fetchone()
                stored = None if chunk is None else _whole(queue, segment, lane, chunk)
                if stored is not None:
                    yield name, is_lane, lane, stored
            last = first

    async def find(
        self, queue: Queue, event_id: str, *, since: datetime | None = None, until: datetime | None = None
    ) -> Event | None:
        """The newest event with that id, appended in that time."""
        check_text(event_id, "the id")
        found = await self.browse(
            queue,
            since=since,
            until=until,
            matching=lambda e: e.given_id == event_id or (e.given_id is None and e.id == event_id),
            limit=1,
        )
        return found[0] if found else None

    async def _newest(
        self, queue: Queue, partition: str | None, since: datetime | None, until: datetime | None
    ) -> AsyncGenerator[Event, None]:
        async with self._pool.connection() as conn:
            span = {"queue": queue.id, "since": since, "until": until}
            segments = await (await conn.execute(_sql["segments_between"], span)).fetchall()
            lowest: dict[int, int] = {}
            for (segment,) in segments:
                page = 0
                while True:
                    params = {**span, "partition": partition, "limit": _PAGE, "offset": page * _PAGE}
                    statement = _sql.table("recent", queue.id, segment)
                    rows = await (await conn.execute(statement, params, binary=True)).fetchall()
                    for lane, name, is_lane, *row in rows:
                        if row[0] >= lowest.get(lane, row[0] + 1):
                            continue  # what is appended meanwhile pushes chunks from one page into the next
                        lowest[lane] = row[0]
                        stored = _whole(queue, segment, lane, row)
                        if stored is None:
                            continue
                        delivery = Delivery(queue.name, name, lane, is_lane)
                        for offset in range(stored.end - 1, stored.first - 1, -1):
                            yield Event(delivery, stored, offset)
                    if len(rows) < _PAGE:
                        break
                    page += 1


def _whole(queue: Queue, segment: int, partition_id: int, row: Sequence[Any]) -> StoredChunk | None:
    """A chunk from its row; None if it is damaged, which the log says."""
    try:
        end_offset, count, appended_at, target_group, body = row
        return stored_chunk(queue, segment, partition_id, (end_offset, count, appended_at, target_group, body))
    except CorruptChunk as error:
        _logger.error("%s", error)
        return None


async def _undamaged(
    conn: AsyncConnection[Any], queue: Queue, partition_id: int, start: int, limit: int
) -> list[Event]:
    """Events up to the first damaged chunk; if that is what they would begin with, it is raised."""
    damaged: list[CorruptChunk] = []
    events = await read_events(conn, queue, partition_id, start, limit, damaged)
    if not damaged:
        return events
    before = [event for event in events if event.offset < damaged[0].start]
    if not before:
        raise damaged[0]
    return before

"""Reading chunks by offset, wherever they lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.core.errors import CorruptChunk
from penstock.db.pg_arrays import numbers
from penstock.db.statements import Statements
from penstock.log.event import Delivery, Event, StoredChunk
from penstock.log.storage import chunk

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.log.queue import Queue

_sql = Statements("penstock.log.read", "reader.sql")

#: No chunk is larger.
ANY_SIZE = 1 << 62


class TooLarge(Exception):
    """A chunk that has to be read is larger than it may be."""

    def __init__(self, size: int) -> None:
        super().__init__(f"a chunk of {size:,} bytes")
        self.size = size


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets ``start`` to ``stop`` (not included) of a partition, all in one segment."""

    partition_id: int
    segment: int
    start: int
    stop: int


async def read_chunks(
    conn: AsyncConnection[Any], queue: Queue, ranges: Sequence[Range], damaged: list[CorruptChunk] | None = None
) -> dict[int, list[StoredChunk]]:
    """The chunks that hold the ranges, per partition and in order.

    Damaged chunks are left out and named in ``damaged``; without it the first is raised.
    """
    found: dict[int, list[StoredChunk]] = {}
    for segment, some in _by_segment(ranges).items():
        for partition_id, *row in await _rows(conn, queue, segment, some, "chunks_between"):
            try:
                stored = stored_chunk(queue, segment, partition_id, tuple(row))
            except CorruptChunk as error:
                if damaged is None:
                    raise
                damaged.append(error)
                continue
            found.setdefault(partition_id, []).append(stored)
    return found


async def read_first_chunks(
    conn: AsyncConnection[Any],
    queue: Queue,
    ranges: Sequence[Range],
    damaged: list[CorruptChunk],
    most_bytes: int,
    first_bytes: int,
) -> tuple[dict[int, list[StoredChunk]], dict[int, int]]:
    """The chunks that hold the ranges, as far as they fit so many bytes, and where those end that are cut short.

    A range is read to its end before the next one is begun. The first chunk of all is read if it has no more than
    ``first_bytes``, which may be more than all of them (0: there need not be one); else :class:`TooLarge` is raised.
    """
    at_least_one = first_bytes > 0
    found: dict[int, list[StoredChunk]] = {}
    cut_short: dict[int, int] = {}
    for segment, some in _by_segment(ranges).items():
        ends = {wanted.partition_id: wanted.start for wanted in some}
        # The ranges from here on have more than was read of them.
        unread = 0 if most_bytes <= 0 and not at_least_one else len(some)
        place = {wanted.partition_id: index for index, wanted in enumerate(some)}
        rows = await _rows(conn, queue, segment, some, "first_chunks_between", max(most_bytes, 0)) if unread else []
        if sum([len(row[5]) for row in rows]) > most_bytes:
            unread = place[rows[-1][0]]
        for partition_id, *row in rows:
            # What is compressed well is little to fetch, and may be too much to hold.
            size = chunk.size(row[4])
            if size > most_bytes and not at_least_one:
                unread = place[partition_id]
                break
            if size > max(most_bytes, first_bytes):
                raise TooLarge(size)
            most_bytes -= size
            ends[partition_id] = row[0]
            try:
                stored = stored_chunk(queue, segment, partition_id, tuple(row))
            except CorruptChunk as error:
                damaged.append(error)
                continue
            found.setdefault(partition_id, []).append(stored)
            at_least_one = False
        for wanted in some[unread:]:
            if ends[wanted.partition_id] < wanted.stop:
                cut_short[wanted.partition_id] = ends[wanted.partition_id]
    return found, cut_short


def _by_segment(ranges: Sequence[Range]) -> dict[int, list[Range]]:
    by_segment: dict[int, list[Range]] = {}
    for wanted in ranges:
        by_segment.setdefault(wanted.segment, []).append(wanted)
    return by_segment


async def _rows(
    conn: AsyncConnection[Any], queue: Queue, segment: int, ranges: Sequence[Range], name: str, most: int | None = None
) -> list[Any]:
    params = {
        "partitions": numbers([r.partition_id for r in ranges]),
        "starts": numbers([r.start for r in ranges]),
        "ends": numbers([r.stop for r in ranges]),
        "longest": chunk.MAX_EVENTS,
    }
    if most is not None:
        params["most"] = most
    try:
        return await (await conn.execute(_sql.table(name, queue.id, segment), params, binary=True)).fetchall()
    except psycopg.errors.UndefinedTable:
        return []  # retention was told to drop what is unread, and did


async def read_events(
    conn: AsyncConnection[Any],
    queue: Queue,
    partition_id: int,
    start: int,
    limit: int,
    damaged: list[CorruptChunk] | None = None,
) -> list[Event]:
    """Up to ``limit`` events of a partition from an offset on, across segments; of damaged chunks, see above."""
    row = await (await conn.execute(_sql["partition"], {"partition": partition_id})).fetchone()
    if row is None:
        return []
    delivery = Delivery(queue.name, row[0], partition_id, row[1])
    events: list[Event] = []
    while len(events) < limit:
        row = await (await conn.execute(_sql["segment_of"], {"partition": partition_id, "offset": start})).fetchone()
        segment, segment_end = row if row is not None else (queue.segment, None)
        stop = start + limit - len(events)
        if segment_end is not None:
            stop = min(stop, segment_end)
        broken: list[CorruptChunk] = []
        found = await read_chunks(conn, queue, [Range(partition_id, segment, start, stop)], broken)
        if broken and damaged is None:
            raise broken[0]
        if damaged is not None:
            damaged += broken
        stored = found.get(partition_id, [])
        for piece in stored:
            for offset in range(max(piece.first, start), min(piece.end, stop)):
                events.append(Event(delivery, piece, offset))
        if segment_end is None or not (stored or broken):
            break
        start = stop
    return events


def stored_chunk(
    queue: Queue, segment: int, partition_id: int, row: tuple[int, int, datetime, int | None, bytes]
) -> StoredChunk:
    """A chunk from its row (end offset, count, time, target, body); if it is damaged, the error names it."""
    end_offset, count, appended_at, target_group, body = row
    try:
        return StoredChunk(end_offset, count, appended_at, target_group, body)
    except CorruptChunk as error:
        raise named(error, queue.name, queue.id, segment, partition_id, row) from error


def named(
    error: CorruptChunk, queue: str, queue_id: int, segment: int, partition_id: int, row: Sequence[Any]
) -> CorruptChunk:
    """The error with what is damaged, and what to do."""
    end_offset, count, appended_at, target_group, *_ = row
    return CorruptChunk(
        f"queue {queue!r}, partition {partition_id}: offsets {end_offset - count} to {end_offset - 1} "
        f"(table penstock.chunks_{queue_id}_{segment}) are damaged: {error}; restore the table's row from a backup "
        f"and redrive their dead letters, or read on from offset {end_offset}",
        partition_id=partition_id,
        start=end_offset - count,
        end=end_offset,
        appended_at=appended_at,
        target_group=target_group,
        is_newer=error.is_newer,
    )

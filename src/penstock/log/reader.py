"""Reading chunks by offset, wherever they lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.core.errors import CorruptChunk
from penstock.db.arrays import numbers
from penstock.db.statements import Statements
from penstock.log import chunk
from penstock.log.event import Delivery, Event, StoredChunk

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.log.queue import Queue

_sql = Statements("penstock.log", "read.sql")

#: Of more events than this, so many chunks are read before it is known how large they are, and about so many bytes.
_FEW_EVENTS = 256
_FIRST_CHUNKS = 64
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets ``start`` to ``stop`` (not included) of a partition, all in one segment."""

    partition_id: int
    segment: int
    start: int
    stop: int


async def read_chunks(
    conn: AsyncConnection[Any],
    queue: Queue,
    ranges: Sequence[Range],
    damaged: list[CorruptChunk] | None = None,
    most: int | None = None,
) -> dict[int, list[StoredChunk]]:
    """The chunks that hold the ranges, per partition and in order; of each range the first ``most``, if that is given.

    Damaged chunks are left out and named in ``damaged``; without it the first is raised.
    """
    by_segment: dict[int, list[Range]] = {}
    for wanted in ranges:
        by_segment.setdefault(wanted.segment, []).append(wanted)
    found: dict[int, list[StoredChunk]] = {}
    for segment, some in by_segment.items():
        params = {
            "partitions": numbers([r.partition_id for r in some]),
            "starts": numbers([r.start for r in some]),
            "ends": numbers([r.stop for r in some]),
            "longest": chunk.MAX_EVENTS,
        }
        if most is not None:
            params["most"] = most
        name = "chunks_between" if most is None else "first_chunks_between"
        statement = _sql.table(name, queue.id, segment)
        try:
            rows = await (await conn.execute(statement, params, binary=True)).fetchall()
        except psycopg.errors.UndefinedTable:
            continue  # retention was told to drop what is unread, and did
        for partition_id, *row in rows:
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
    conn: AsyncConnection[Any], queue: Queue, ranges: Sequence[Range], damaged: list[CorruptChunk]
) -> tuple[dict[int, list[StoredChunk]], dict[int, int]]:
    """The chunks that hold the ranges, if they are not too much to hold, and where those end that are cut short.

    A chunk has about a megabyte at the most, unless one event has more. So of few events all are read; of many, some
    chunks are, and then as many as are likely to fit.
    """
    if sum([r.stop - r.start for r in ranges]) <= _FEW_EVENTS:
        return await read_chunks(conn, queue, ranges, damaged), {}
    found: dict[int, list[StoredChunk]] = {}
    most = max(1, _FIRST_CHUNKS // len(ranges))
    while True:
        broken: list[CorruptChunk] = []
        some = await read_chunks(conn, queue, ranges, broken, most)
        damaged += broken
        rest: list[Range] = []
        for wanted in ranges:
            stored = some.get(wanted.partition_id, [])
            found.setdefault(wanted.partition_id, []).extend(stored)
            ends = [c.end for c in stored] + [b.end for b in broken if b.partition_id == wanted.partition_id]
            if len(ends) >= most and max(ends) < wanted.stop:
                rest.append(replace(wanted, start=max(ends)))
        sizes = [len(c.columns.data) for chunks in found.values() for c in chunks]
        if not rest or sum(sizes) >= _MOST_BYTES:
            return found, {wanted.partition_id: wanted.start for wanted in rest}
        ranges, each = rest, max(sum(sizes) // max(len(sizes), 1), 1)
        most = max(1, (_MOST_BYTES - sum(sizes)) // each // len(rest))


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

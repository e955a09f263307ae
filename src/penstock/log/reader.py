"""Reading chunks by offset, wherever they lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    damaged: dict[int, CorruptChunk] | None = None,
) -> dict[int, list[StoredChunk]]:
    """The chunks that hold the ranges, per partition and in order.

    A damaged chunk ends its own partition's list and no other's: it is named in ``damaged``, or raised without it.
    """
    by_segment: dict[int, list[Range]] = {}
    for wanted in ranges:
        by_segment.setdefault(wanted.segment, []).append(wanted)
    found: dict[int, list[StoredChunk]] = {}
    broken: dict[int, CorruptChunk] = {} if damaged is None else damaged
    for segment, some in by_segment.items():
        params = {
            "partitions": numbers([r.partition_id for r in some]),
            "starts": numbers([r.start for r in some]),
            "ends": numbers([r.stop for r in some]),
            "longest": chunk.MAX_EVENTS,
        }
        statement = _sql.table("chunks_between", queue.id, segment)
        try:
            rows = await (await conn.execute(statement, params, binary=True)).fetchall()
        except psycopg.errors.UndefinedTable:
            continue  # retention was told to drop what is unread, and did
        for partition_id, *row in rows:
            if partition_id in broken:
                continue
            try:
                stored = stored_chunk(queue, segment, partition_id, tuple(row))
            except CorruptChunk as error:
                broken[partition_id] = error
                continue
            found.setdefault(partition_id, []).append(stored)
    if damaged is None:
        for problem in broken.values():
            raise problem
    return found


async def read_events(
    conn: AsyncConnection[Any], queue: Queue, partition_id: int, start: int, limit: int
) -> list[Event]:
    """Up to ``limit`` events of a partition from an offset on, across segments."""
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
        found = await read_chunks(conn, queue, [Range(partition_id, segment, start, stop)])
        stored = found.get(partition_id, [])
        for piece in stored:
            for offset in range(max(piece.first, start), min(piece.end, stop)):
                events.append(Event(delivery, piece, offset))
        if segment_end is None or not stored:
            break
        start = stop
    return events


def stored_chunk(
    queue: Queue, segment: int, partition_id: int, row: tuple[int, int, datetime, int | None, bytes]
) -> StoredChunk:
    """A chunk from its row (end offset, count, time, target, body); if it is damaged, the error names it."""
    end_offset, count, appended_at, target_group, body = row
    try:
        return StoredChunk(end_offset, appended_at, target_group, body)
    except CorruptChunk as error:
        raise CorruptChunk(
            f"queue {queue.name!r}, partition {partition_id}: offsets {end_offset - count} to {end_offset - 1} "
            f"(table penstock.chunks_{queue.id}_{segment}) are damaged: {error}; restore the table's row, or "
            f"seek the group to offset {end_offset} to go on without them"
        ) from error

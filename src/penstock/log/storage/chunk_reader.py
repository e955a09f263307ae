"""Reads chunks by offset, from any segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection

from penstock.core.errors import CorruptChunk
from penstock.db.pg_arrays import int_array
from penstock.db.statements import Statements
from penstock.log.queue import Queue
from penstock.log.storage import chunk
from penstock.log.storage.chunk import StoredChunk

_sql = Statements("penstock.log.storage", "chunk_reader.sql")


class ChunkTooLarge(Exception):
    """A chunk that has to be read exceeds the limit."""

    def __init__(self, size: int) -> None:
        super().__init__(f"a chunk of {size:,} bytes")
        self.size = size


class ChunkRow(NamedTuple):
    partition_id: int
    end_offset: int
    event_count: int
    appended_at: datetime
    target_group: int | None
    body: bytes


@dataclass(frozen=True, slots=True)
class ChunkRange:
    """The offsets from ``start`` to before ``stop`` of a partition, all in one segment."""

    partition_id: int
    segment: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class PartialRead:
    """Chunks by partition, and the partitions that were not read to their end with the offset that was reached."""

    chunks: dict[int, list[StoredChunk]] = field(default_factory=dict)
    cut_short: dict[int, int] = field(default_factory=dict)


async def read_chunks(
    conn: AsyncConnection[Any], queue: Queue, ranges: Sequence[ChunkRange], damaged: list[CorruptChunk] | None = None
) -> dict[int, list[StoredChunk]]:
    """Return the chunks that cover the ranges, by partition and in order of their offsets.

    Damaged chunks are left out and added to ``damaged``. Without that list, the first one is raised.
    """
    chunks: dict[int, list[StoredChunk]] = {}
    for segment, segment_ranges in _by_segment(ranges).items():
        for row in await _fetch_rows(conn, queue, segment, segment_ranges, "chunks_between"):
            try:
                stored = decode_row(queue, segment, row)
            except CorruptChunk as error:
                if damaged is None:
                    raise
                damaged.append(error)
                continue
            chunks.setdefault(row.partition_id, []).append(stored)
    return chunks


async def read_first_chunks(
    conn: AsyncConnection[Any],
    queue: Queue,
    ranges: Sequence[ChunkRange],
    damaged: list[CorruptChunk],
    max_bytes: int,
    first_bytes: int,
) -> PartialRead:
    """Return the first chunks of the ranges, up to ``max_bytes`` together.

    A range is read to its end before the next one starts. The very first chunk may have up to ``first_bytes``, even if
    that is more than ``max_bytes``; if it has more, ChunkTooLarge is raised. With ``first_bytes`` 0 the result may be
    empty.
    """
    needs_first = first_bytes > 0
    result = PartialRead()
    for segment, segment_ranges in _by_segment(ranges).items():
        reached = {wanted.partition_id: wanted.start for wanted in segment_ranges}
        # The index of the first range that was not read to its end.
        first_unread = 0 if max_bytes <= 0 and not needs_first else len(segment_ranges)
        range_index = {wanted.partition_id: index for index, wanted in enumerate(segment_ranges)}
        rows: list[ChunkRow] = []
        if first_unread:
            rows = await _fetch_rows(conn, queue, segment, segment_ranges, "first_chunks_between", max(max_bytes, 0))
        if sum([len(row.body) for row in rows]) > max_bytes:
            first_unread = range_index[rows[-1].partition_id]
        for row in rows:
            # The limit applies to the decompressed size, which the statement does not know.
            size = chunk.decoded_size(row.body)
            if size > max_bytes and not needs_first:
                first_unread = range_index[row.partition_id]
                break
            if size > max(max_bytes, first_bytes):
                raise ChunkTooLarge(size)
            max_bytes -= size
            reached[row.partition_id] = row.end_offset
            try:
                stored = decode_row(queue, segment, row)
            except CorruptChunk as error:
                damaged.append(error)
                continue
            result.chunks.setdefault(row.partition_id, []).append(stored)
            needs_first = False
        for wanted in segment_ranges[first_unread:]:
            if reached[wanted.partition_id] < wanted.stop:
                result.cut_short[wanted.partition_id] = reached[wanted.partition_id]
    return result


async def find_segment(
    conn: AsyncConnection[Any], queue: Queue, partition_id: int, offset: int
) -> tuple[int, int | None]:
    """Return the segment that holds an offset, and the end of the partition in it (None: it is the open segment)."""
    params = {"partition": partition_id, "offset": offset}
    row = await (await conn.execute(_sql["sealed_segment"], params)).fetchone()
    return (queue.segment, None) if row is None else row


def decode_row(queue: Queue, segment: int, row: ChunkRow) -> StoredChunk:
    """Decode a row, or raise CorruptChunk with the location of the chunk."""
    try:
        return StoredChunk(row.end_offset, row.event_count, row.appended_at, row.target_group, row.body)
    except CorruptChunk as error:
        raise add_location(error, queue.name, queue.id, segment, row) from error


def add_location(error: CorruptChunk, queue: str, queue_id: int, segment: int, row: ChunkRow) -> CorruptChunk:
    """Return the error with the location of the chunk and with advice."""
    start, end = row.end_offset - row.event_count, row.end_offset
    return CorruptChunk(
        f"queue {queue!r}, partition {row.partition_id}: offsets {start} to {end - 1} "
        f"(table penstock.chunks_{queue_id}_{segment}) are damaged: {error}; restore the table's row from a backup "
        f"and redrive their dead letters, or read on from offset {end}",
        partition_id=row.partition_id,
        start=start,
        end=end,
        appended_at=row.appended_at,
        target_group=row.target_group,
        is_newer=error.is_newer,
    )


def _by_segment(ranges: Sequence[ChunkRange]) -> dict[int, list[ChunkRange]]:
    by_segment: dict[int, list[ChunkRange]] = {}
    for wanted in ranges:
        by_segment.setdefault(wanted.segment, []).append(wanted)
    return by_segment


async def _fetch_rows(
    conn: AsyncConnection[Any],
    queue: Queue,
    segment: int,
    ranges: Sequence[ChunkRange],
    statement: str,
    max_bytes: int | None = None,
) -> list[ChunkRow]:
    params: dict[str, Any] = {
        "partitions": int_array([wanted.partition_id for wanted in ranges]),
        "starts": int_array([wanted.start for wanted in ranges]),
        "ends": int_array([wanted.stop for wanted in ranges]),
        "longest": chunk.MAX_EVENTS,
    }
    if max_bytes is not None:
        params["max_bytes"] = max_bytes
    try:
        cursor = await conn.execute(_sql.table(statement, queue.id, segment), params, binary=True)
        return [ChunkRow._make(row) for row in await cursor.fetchall()]
    except psycopg.errors.UndefinedTable:
        return []  # retention has dropped the segment although it was unread (retention_drops_unread)

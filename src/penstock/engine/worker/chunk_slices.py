"""Reads the chunks of a task from PostgreSQL and cuts them to the planned offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from msgspec import structs

from penstock.core.clock import to_micros
from penstock.core.errors import CorruptChunk
from penstock.db.pg_arrays import int_array
from penstock.db.statements import Statements
from penstock.engine.cycle_plan import PartitionRange, SegmentRange
from penstock.engine.worker.spark_task import translate_database_errors
from penstock.engine.worker.task_reports import EventFailure, PartitionReport
from penstock.log.dead_letters.dead_letter import DAMAGED_STAGE
from penstock.log.storage import chunk, chunk_reader

#: Fewer strings are unpacked as fast one by one.
_MIN_STRINGS = 32
#: MessagePack puts one byte before a string of up to 31 bytes: this value plus the length.
_SHORT_STRING, _SHORT_STRING_LIMIT = 0xA0, 32

_LENGTH_BYTES = bytes(range(_SHORT_STRING, 0x100))


def decode_strings(packed: chunk.PackedStrings) -> Sequence[str | None] | pa.StringArray:
    """An Arrow column, without a Python object for each string, or a list if there are only a few strings."""
    if len(packed) < _MIN_STRINGS:
        return packed.unpacked()
    return _decode_short_strings(packed) or pa.array(packed.unpacked(), pa.string())


def _decode_short_strings(packed: chunk.PackedStrings) -> pa.StringArray | None:
    """Decode short ASCII strings; None if others are among them. No ASCII character looks like a length byte."""
    data = np.frombuffer(packed.items, np.uint8)
    starts = np.flatnonzero(data >= _SHORT_STRING)
    if len(starts) != len(packed) or starts[0]:
        return None
    lengths = np.diff(starts, append=len(data)) - 1
    characters = data.tobytes().translate(None, _LENGTH_BYTES)
    is_short = lengths.max() < _SHORT_STRING_LIMIT and (data[starts] == _SHORT_STRING + lengths).all()
    if not is_short or not characters.isascii():
        return None
    offsets = np.append(0, lengths).cumsum(dtype=np.int32)
    return pa.StringArray.from_buffers(len(packed), pa.py_buffer(offsets), pa.py_buffer(characters))


_sql = Statements("penstock.log.storage", "chunk_reader.sql")
#: Rows fetched at a time. libpq before version 17 can only fetch one.
_FETCH_ROWS = 32 if psycopg.capabilities.has_stream_chunked() else 1


@dataclass(slots=True)
class ChunkSlice:
    """Consecutive events of one chunk."""

    partition: PartitionRange
    start_offset: int
    appended_us: int
    is_redriven: bool
    columns: chunk.ChunkColumns


def read_chunk_slices(
    conn: psycopg.Connection[Any],
    queues: Mapping[int, str],
    partitions: Mapping[int, PartitionRange],
    reports: Mapping[int, PartitionReport],
    failures: list[EventFailure],
) -> Iterator[ChunkSlice]:
    """Read the planned offsets of the partitions, chunk by chunk, and update their reports.

    Each event of a damaged chunk is added to the failures.
    """
    by_segment: dict[tuple[int, int], dict[int, SegmentRange]] = {}
    for partition in partitions.values():
        for part in partition.segments:
            by_segment.setdefault((partition.queue_id, part.segment), {})[partition.partition_id] = part
    for (queue_id, segment), planned in sorted(by_segment.items()):
        params = {
            "partitions": int_array(list(planned)),
            "starts": int_array([part.start for part in planned.values()]),
            "ends": int_array([part.stop for part in planned.values()]),
            "longest": chunk.MAX_EVENTS,
        }
        statement = _sql.table("chunks_between", queue_id, segment)
        for partition_id, end, count, appended_at, target_group, body in _stream_rows(conn, statement, params):
            partition = partitions[partition_id]
            chunk_start = end - count
            start, stop = max(planned[partition_id].start, chunk_start), min(planned[partition_id].stop, end)
            report = reports[partition_id]
            report.offsets_read += stop - start
            appended_us = to_micros(appended_at)
            report.first_appended_us = report.first_appended_us or appended_us
            if target_group is not None and target_group != partition.group_id:
                continue  # redriven to another group only
            report.events += stop - start
            try:
                columns = chunk.decode(body, count, lazily=True)
                if isinstance(columns.keys, chunk.PackedStrings):
                    columns = structs.replace(columns, keys=decode_strings(columns.keys))
            except CorruptChunk as error:
                row = chunk_reader.ChunkRow(partition_id, end, count, appended_at, target_group, body)
                problem = chunk_reader.add_location(error, queues.get(queue_id, ""), queue_id, segment, row)
                if problem.is_newer:
                    raise problem from error
                failures += [
                    EventFailure(partition_id, offset, DAMAGED_STAGE, str(problem)) for offset in range(start, stop)
                ]
                continue
            if stop - start < count:
                columns = _slice_columns(columns, start - chunk_start, stop - chunk_start)
            yield ChunkSlice(partition, start, appended_us, target_group is not None, columns)


def _stream_rows(conn: psycopg.Connection[Any], statement: str, params: dict[str, Any]) -> Iterator[Any]:
    with translate_database_errors():
        yield from conn.cursor().stream(statement, params, binary=True, size=_FETCH_ROWS)


def _slice_columns(columns: chunk.ChunkColumns, start: int, stop: int) -> chunk.ChunkColumns:
    def cut(column: Sequence[Any] | None) -> Sequence[Any] | None:
        return None if column is None else column[start:stop]

    return chunk.ChunkColumns(
        b"\n".join(columns.lines()[start:stop]),
        stop - start,
        cut(columns.keys),
        cut(columns.ids),
        cut(columns.times),
        cut(columns.headers),
    )


def batch_slices(slices: Iterator[ChunkSlice], max_events: int, max_bytes: int) -> Iterator[list[ChunkSlice]]:
    """Group slices into batches of about ``max_events`` events or ``max_bytes`` of JSON."""
    batch: list[ChunkSlice] = []
    events = size = 0
    for piece in slices:
        batch.append(piece)
        events += piece.columns.count
        size += len(piece.columns.data)
        if events >= max_events or size >= max_bytes:
            yield batch
            batch, events, size = [], 0, 0
    if batch:
        yield batch

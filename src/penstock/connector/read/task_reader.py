"""Reads the ranges of a task as Arrow batches, in a Spark worker."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from penstock.connector.database_url import Conninfo
from penstock.connector.read.columns import OutputColumns
from penstock.connector.read.data_loss import LostRange, handle_loss
from penstock.connector.read.task_ranges import TaskRanges
from penstock.core.errors import CorruptChunk, InvalidEvent
from penstock.core.formatting import counted
from penstock.engine.cycle_plan import PartitionRange
from penstock.engine.worker.chunk_slices import ChunkSlice, batch_slices, read_chunk_slices
from penstock.engine.worker.event_metadata import EventMetadata
from penstock.engine.worker.json_columns import JsonColumnDecoder
from penstock.engine.worker.spark_task import translate_database_errors, worker_connection
from penstock.engine.worker.task_reports import EventFailure, PartitionReport

_logger = logging.getLogger("penstock.connector")

#: The events and the bytes of JSON of a batch.
_BATCH_EVENTS = 1 << 15
_BATCH_BYTES = 16 << 20

_UTC = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class TaskReader:
    """The configuration of a reader's tasks."""

    database: Conninfo
    output: OutputColumns
    mode: str
    #: None: events of all keys.
    keys: frozenset[str] | None
    fail_on_loss: bool

    def read(self, ranges: TaskRanges) -> Iterator[pa.RecordBatch]:
        """Return the events, in order per partition."""
        builder = _BatchBuilder(self, ranges.queues)
        waiting = ranges.ranges()
        while waiting:
            # One range per partition at a time.
            current = {each.partition_id: each for each in reversed(waiting)}
            waiting = [each for each in waiting if current[each.partition_id] is not each]
            yield from self._read(current, builder)

    def _read(self, ranges: dict[int, PartitionRange], builder: _BatchBuilder) -> Iterator[pa.RecordBatch]:
        with translate_database_errors():
            conn = worker_connection(self.database.reveal())
        damaged: list[EventFailure] = []
        missing: list[LostRange] = []
        slices = _read_slices(conn, builder.queues, ranges, damaged, missing)
        for batch in batch_slices(slices, _BATCH_EVENTS, _BATCH_BYTES):
            yield from builder.build(batch)
        if damaged and self.fail_on_loss:
            raise CorruptChunk(damaged[0].error)
        if damaged:
            _logger.warning("continuing without %s: %s", counted(len(damaged), "event"), damaged[0].error)
        handle_loss(missing, ", ".join(builder.queues.values()), fail=self.fail_on_loss)


def _read_slices(
    conn: psycopg.Connection[Any],
    queues: Mapping[int, str],
    ranges: dict[int, PartitionRange],
    damaged: list[EventFailure],
    missing: list[LostRange],
) -> Iterator[ChunkSlice]:
    """Return the events, one table at a time: retention may drop a table after the read was planned."""
    for _, in_table in sorted(_by_table(ranges.values()).items()):
        progress = {
            partition_id: PartitionReport(partition_id, each.high_us) for partition_id, each in in_table.items()
        }
        with suppress(psycopg.errors.UndefinedTable):
            yield from read_chunk_slices(conn, dict(queues), in_table, progress, damaged)
        missing += [
            LostRange(partition_id, each.start, each.stop)
            for partition_id, each in in_table.items()
            if progress[partition_id].offsets_read != each.events
        ]


def _by_table(ranges: Iterable[PartitionRange]) -> dict[tuple[int, int], dict[int, PartitionRange]]:
    """Return the ranges by partition for each segment of each queue."""
    by_table: dict[tuple[int, int], dict[int, PartitionRange]] = {}
    for each in ranges:
        for segment in each.segments:
            in_segment = structs.replace(each, segments=[segment])
            by_table.setdefault((each.queue_id, segment.segment), {})[each.partition_id] = in_segment
    return by_table


class _BatchBuilder:
    """Builds Arrow batches from slices of chunks."""

    def __init__(self, task: TaskReader, queues: Mapping[int, str]) -> None:
        self._mode = task.mode
        self.queues = queues
        self._output = task.output
        self._decoder = JsonColumnDecoder(task.output.fields)
        self._keys = None if task.keys is None else pa.array(sorted(task.keys), pa.string())

    def build(self, slices: list[ChunkSlice]) -> Iterator[pa.RecordBatch]:
        rows = sum(chunk.columns.count for chunk in slices)
        data = b"\n".join(chunk.columns.data for chunk in slices)
        metadata = EventMetadata(slices)
        fields, problems = self._decoder.decode(data, rows)
        if problems and self._mode == "failfast":
            self._fail(metadata, problems)
        arrays = [
            self._column(name, slices, metadata, data) if name in self._output.events else fields.column(name)
            for name in self._output.schema.names
        ]
        mask = self._mask(metadata, problems, rows)
        table = pa.Table.from_arrays(arrays, schema=self._output.schema)
        yield from (table if mask is None else table.filter(mask)).combine_chunks().to_batches()

    def _mask(self, metadata: EventMetadata, problems: Mapping[int, str], rows: int) -> pa.Array | None:
        """Return which events are selected; None if all are."""
        mask = None if self._keys is None else pc.is_in(metadata.keys, self._keys)
        if problems and self._mode == "dropmalformed":
            is_valid = np.ones(rows, dtype=bool)
            is_valid[list(problems)] = False
            mask = pa.array(is_valid) if mask is None else pc.and_(mask, pa.array(is_valid))
        return mask

    def _fail(self, metadata: EventMetadata, problems: Mapping[int, str]) -> None:
        index = min(problems)
        about = metadata.to_dict(index, dict(self.queues))
        raise InvalidEvent(
            f"in queue {about['queue']!r}, partition {about['partition_id']}, offset {about['offset']}: "
            f"{problems[index]}. With the mode permissive its fields are null",
            index=index,
            field="data",
        )

    def _column(self, name: str, slices: list[ChunkSlice], metadata: EventMetadata, data: bytes) -> pa.Array:
        if name == "key":
            return metadata.keys
        if name == "value":
            return _lines(data, len(metadata.offsets))
        if name == "queue":
            return _repeated([self.queues[chunk.partition.queue_id] for chunk in slices], slices)
        if name == "partition":
            return pa.array(metadata.partition_ids)
        if name == "offset":
            return pa.array(metadata.offsets)
        if name == "timestamp":
            return pa.array(metadata.appended_times()).cast(_UTC)
        if name == "eventTime":
            return pa.array(metadata.producer_times()).cast(_UTC)
        if name == "id":
            return pa.array(_ids(slices), pa.string())
        kind = self._output.schema.field(name).type
        return pa.concat_arrays([_headers(chunk, kind) for chunk in slices])


def _repeated(values: list[str], slices: list[ChunkSlice]) -> pa.Array:
    indexes = np.repeat(np.arange(len(slices), dtype=np.int32), [chunk.columns.count for chunk in slices])
    return pa.DictionaryArray.from_arrays(pa.array(indexes), pa.array(values, pa.string())).dictionary_decode()


def _lines(data: bytes, rows: int) -> pa.Array:
    """Return the lines as an Arrow array, without a Python object for each."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 0x0A)
    texts = data.replace(b"\n", b"")
    offsets = np.empty(rows + 1, dtype=np.int32)
    offsets[0], offsets[-1] = 0, len(texts)
    offsets[1:-1] = ends - np.arange(rows - 1)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(texts))


def _ids(slices: list[ChunkSlice]) -> list[str]:
    """Return the id of each event: the producer's, or partition and offset."""
    ids = []
    for chunk in slices:
        partition_id, start = chunk.partition.partition_id, chunk.start_offset
        given = chunk.columns.ids or [None] * chunk.columns.count
        ids += [id_ or f"{partition_id}-{start + index}" for index, id_ in enumerate(given)]
    return ids


def _headers(chunk: ChunkSlice, kind: pa.DataType) -> pa.Array:
    if chunk.columns.headers is None:
        return pa.nulls(chunk.columns.count, kind)
    return pa.array([None if headers is None else list(headers.items()) for headers in chunk.columns.headers], kind)

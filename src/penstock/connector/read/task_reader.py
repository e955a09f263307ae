"""In a Spark worker: from the ranges of a task to Arrow batches."""

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

from penstock.connector.database import Conninfo
from penstock.connector.read.columns import Output
from penstock.connector.read.offsets import Lost
from penstock.connector.read.ranges import Ranges, lose
from penstock.core.errors import CorruptChunk, InvalidEvent
from penstock.engine.plan import Lane
from penstock.engine.worker.chunk_reader import Progress, Slice, slices_of
from penstock.engine.worker.decode import Meta
from penstock.engine.worker.json_columns import Parser
from penstock.engine.worker.task import asking, connection
from penstock.engine.worker.udf import Failure

_logger = logging.getLogger("penstock.connector")

#: A batch is handed on when it has so many events, or was made of so many bytes.
_BATCH_EVENTS = 1 << 15
_BATCH_BYTES = 16 << 20

_UTC = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class Task:
    """How every task of a reader reads."""

    database: Conninfo
    output: Output
    mode: str
    #: None: whatever their key.
    keys: frozenset[str] | None
    fail_on_loss: bool

    def read(self, ranges: Ranges) -> Iterator[pa.RecordBatch]:
        """The events, in the order of each partition."""
        columns = _Columns(self, ranges.queues)
        waiting = ranges.lanes()
        while waiting:
            # One piece of each partition at a time.
            now = {lane.partition_id: lane for lane in reversed(waiting)}
            waiting = [lane for lane in waiting if now[lane.partition_id] is not lane]
            yield from self._read(now, columns)

    def _read(self, lanes: dict[int, Lane], columns: _Columns) -> Iterator[pa.RecordBatch]:
        with asking():
            conn = connection(self.database.reveal())
        slices: list[Slice] = []
        events = size = 0
        damaged: list[Failure] = []
        missing: list[Lost] = []
        for piece in _slices(conn, columns.queues, lanes, damaged, missing):
            slices.append(piece)
            events += piece.columns.count
            size += len(piece.columns.data)
            if events >= _BATCH_EVENTS or size >= _BATCH_BYTES:
                yield from columns.batches(slices)
                slices, events, size = [], 0, 0
        if slices:
            yield from columns.batches(slices)
        if damaged and self.fail_on_loss:
            raise CorruptChunk(damaged[0].error)
        if damaged:
            _logger.warning("going on without %d events: %s", len(damaged), damaged[0].error)
        lose(missing, ", ".join(columns.queues.values()), fail=self.fail_on_loss)


def _slices(
    conn: psycopg.Connection[Any],
    queues: Mapping[int, str],
    lanes: dict[int, Lane],
    damaged: list[Failure],
    missing: list[Lost],
) -> Iterator[Slice]:
    """The events, table by table: retention may drop one after the read was planned, and leaves the others."""
    for _, some in sorted(_by_table(lanes.values()).items()):
        progress = {partition: Progress(lane) for partition, lane in some.items()}
        with suppress(psycopg.errors.UndefinedTable):
            yield from slices_of(conn, dict(queues), some, progress, damaged)
        missing += [
            Lost(partition, lane.start, lane.stop)
            for partition, lane in some.items()
            if progress[partition].offsets != lane.stop - lane.start
        ]


def _by_table(lanes: Iterable[Lane]) -> dict[tuple[int, int], dict[int, Lane]]:
    """What is read of each segment of each queue, by partition."""
    found: dict[tuple[int, int], dict[int, Lane]] = {}
    for lane in lanes:
        for stretch in lane.stretches:
            part = structs.replace(lane, stretches=[stretch])
            found.setdefault((lane.queue_id, stretch.segment), {})[lane.partition_id] = part
    return found


class _Columns:
    """Makes batches of slices."""

    def __init__(self, task: Task, queues: Mapping[int, str]) -> None:
        self._task = task
        self.queues = queues
        self._output = task.output
        self._parser = Parser(task.output.fields)
        self._keys = None if task.keys is None else pa.array(sorted(task.keys), pa.string())

    def batches(self, slices: list[Slice]) -> Iterator[pa.RecordBatch]:
        rows = sum(piece.columns.count for piece in slices)
        data = b"\n".join(piece.columns.data for piece in slices)
        meta = Meta(slices, rows)
        fields, problems = self._parser.parse(data, rows)
        if problems and self._task.mode == "failfast":
            self._fail(meta, problems)
        arrays = [
            self._column(name, slices, meta, data) if name in self._output.events else fields.column(name)
            for name in self._output.schema.names
        ]
        kept = self._kept(meta, problems, rows)
        table = pa.Table.from_arrays(arrays, schema=self._output.schema)
        yield from (table if kept is None else table.filter(kept)).combine_chunks().to_batches()

    def _kept(self, meta: Meta, problems: Mapping[int, str], rows: int) -> pa.Array | None:
        """Which events are given; None, if all are."""
        kept = None if self._keys is None else pc.is_in(meta.keys(), self._keys)
        if problems and self._task.mode == "dropmalformed":
            good = np.ones(rows, dtype=bool)
            good[list(problems)] = False
            kept = pa.array(good) if kept is None else pc.and_(kept, pa.array(good))
        return kept

    def _fail(self, meta: Meta, problems: Mapping[int, str]) -> None:
        place = min(problems)
        about = meta.describe(place, dict(self.queues))
        raise InvalidEvent(
            f"in queue {about['queue']!r}, partition {about['partition_id']}, offset {about['offset']}: "
            f"{problems[place]}. With the mode permissive its fields are null",
            index=place,
            field="data",
        )

    def _column(self, name: str, slices: list[Slice], meta: Meta, data: bytes) -> pa.Array:
        if name == "key":
            return meta.keys()
        if name == "value":
            return _lines(data, len(meta.offset))
        if name == "queue":
            return _repeated([self.queues[s.lane.queue_id] for s in slices], slices)
        if name == "partition":
            return pa.array(meta.partition)
        if name == "offset":
            return pa.array(meta.offset)
        if name == "timestamp":
            return pa.array(meta.times(None)).cast(_UTC)
        if name == "eventTime":
            return pa.array(meta.times(True)).cast(_UTC)
        if name == "id":
            return pa.array(_ids(slices), pa.string())
        kind = self._output.schema.field(name).type
        return pa.concat_arrays([_headers(piece, kind) for piece in slices])


def _repeated(values: list[str], slices: list[Slice]) -> pa.Array:
    places = np.repeat(np.arange(len(slices), dtype=np.int32), [s.columns.count for s in slices])
    return pa.DictionaryArray.from_arrays(pa.array(places), pa.array(values, pa.string())).dictionary_decode()


def _lines(data: bytes, rows: int) -> pa.Array:
    """The lines as text, cut without making an object of each."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 0x0A)
    texts = data.replace(b"\n", b"")
    offsets = np.empty(rows + 1, dtype=np.int32)
    offsets[0], offsets[-1] = 0, len(texts)
    offsets[1:-1] = ends - np.arange(rows - 1)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(texts))


def _ids(slices: list[Slice]) -> list[str]:
    """The id that each event was given, or the one that its place is."""
    ids = []
    for piece in slices:
        lane, first = piece.lane.partition_id, piece.first
        given = piece.columns.ids or [None] * piece.columns.count
        ids += [each or f"{lane}-{first + i}" for i, each in enumerate(given)]
    return ids


def _headers(piece: Slice, kind: pa.DataType) -> pa.Array:
    if piece.columns.headers is None:
        return pa.nulls(piece.columns.count, kind)
    return pa.array([None if each is None else list(each.items()) for each in piece.columns.headers], kind)

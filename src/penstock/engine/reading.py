"""In a Spark worker: from the offsets of a task to typed columns.

Chunks come from PostgreSQL as they are stored, their JSON is decoded straight into Arrow columns, and Python callables
that come first in a stream run here, before Spark sees an event.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
import pyarrow as pa
from psycopg.pq import TransactionStatus

from penstock.core import json
from penstock.db.arrays import numbers
from penstock.db.blocking import connect
from penstock.db.patience import LOST
from penstock.db.statements import Statements
from penstock.engine import moments, reports
from penstock.engine.callables import Batch, Failure, Item, encode_items, run_steps
from penstock.engine.fields import Parser
from penstock.engine.moments import EPOCH, NEVER
from penstock.engine.plan import CyclePlan, Lane
from penstock.engine.reports import Mark, Report
from penstock.log import chunk
from penstock.log.event import Event
from penstock.log.queue import DEFAULT_KEY
from penstock.stream.expression import takes_context
from penstock.stream.steps import Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_read = Statements("penstock.log", "read.sql")
_sql = Statements("penstock.engine", "reports.sql")

#: A batch of columns is handed on when it has so many events, or was made of so many bytes.
_BATCH_EVENTS = 1 << 16
_BATCH_BYTES = 16 << 20

#: The columns that go with every event, whatever is done to it.
META = pa.schema(
    [
        ("__partition", pa.int64()),
        ("__offset", pa.int64()),
        ("__key", pa.string()),
        ("__time", pa.int64()),
        # Windows that end (with their grace) at or before it are closed for this event.
        ("__bound", pa.int64()),
        ("__redriven", pa.bool_()),
    ]
)
#: The whole event as JSON, where somebody wants it.
DATA = "__data"
#: The local property of a job that says which cycle it is for.
CYCLE = "penstock.cycle"


@dataclass(frozen=True)
class Reading:
    """How the tasks of a query read: sent to every worker."""

    conninfo: str
    query: int
    query_name: str
    fence: int
    #: Declared and inferred types of the fields that come out of here.
    fields: pa.Schema
    #: Queue names by id, for callables that ask.
    queues: dict[int, str]
    event_time: Any
    lateness_us: int
    #: Callables that come before anything that Spark does.
    steps: tuple[Step, ...]
    with_data: bool

    @property
    def schema(self) -> pa.Schema:
        """The columns that come out."""
        whole = [pa.field(DATA, pa.string())] if self.with_data else []
        return pa.schema([*META, *whole, *self.fields])


@dataclass(slots=True)
class _Slice:
    """Consecutive events of one partition, out of one chunk."""

    lane: Lane
    first: int
    appended_us: int
    redriven: bool
    columns: chunk.Columns


class _Progress:
    """What is known of a partition while it is read."""

    __slots__ = ("events", "first", "high", "last", "offsets")

    def __init__(self, lane: Lane) -> None:
        self.high = NEVER if lane.high_us is None else lane.high_us
        self.first = self.last = 0
        self.offsets = 0
        self.events = 0


def read_task(reading: Reading, plan: CyclePlan, task: int, attempt: int) -> Iterator[pa.RecordBatch]:
    """The events of one task, in the order of each partition, and a report at the end."""
    lanes = {lane.partition_id: lane for lane in plan.lanes_of(task)}
    progress = {lane.partition_id: _Progress(lane) for lane in lanes.values()}
    failures: list[Failure] = []
    work = _Columns(reading, progress, failures)
    with asking():
        conn = connection(reading.conninfo)
    slices: list[_Slice] = []
    events = size = 0
    for piece in _slices(conn, lanes, progress):
        slices.append(piece)
        events += piece.columns.count
        size += len(piece.columns.data)
        if events >= _BATCH_EVENTS or size >= _BATCH_BYTES:
            yield from work.batches(slices)
            slices, events, size = [], 0, 0
    if slices:
        yield from work.batches(slices)
    marks = [
        Mark(p, seen.offsets, seen.events, None if seen.high == NEVER else seen.high, seen.last, seen.first)
        for p, seen in progress.items()
    ]
    send_report(reading, plan.cycle, 0, task, attempt, Report(marks, failures, {}))


@dataclass(frozen=True)
class Reader:
    """What Spark calls in a worker: gets numbers of tasks, and gives their events of the cycle that the job is for."""

    reading: Reading

    def frame(self, spark: SparkSession, tasks: int) -> DataFrame:
        """The events of whichever cycle a job of this frame is for, read by so many tasks."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return spark.range(0, tasks, 1, tasks).mapInArrow(self, from_arrow_schema(self.reading.schema))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The events of the tasks that are numbered."""
        from pyspark import TaskContext

        context = TaskContext.get()
        said = None if context is None else context.getLocalProperty(CYCLE)
        for batch in batches:
            for task in batch.column(0).to_pylist():
                if context is not None and said is not None:
                    plan = load_plan(self.reading, int(said))
                    if task < len(plan.tasks):
                        yield from read_task(self.reading, plan, task, context.taskAttemptId())


def columns_of(reading: Reading, events: Sequence[Event]) -> tuple[pa.Table, list[Failure]]:
    """The columns of events that are at hand, as a task would give them, and what failed."""
    lanes: dict[int, list[Event]] = {}
    for event in events:
        lanes.setdefault(event.partition_id, []).append(event)
    slices = []
    for partition_id, some in lanes.items():
        delivery = some[0].delivery
        lane = Lane(partition_id, 0, 0, delivery.partition, delivery.is_lane, [])
        for event in sorted(some, key=lambda e: e.offset):
            times = None if event.event_time is None else [moments.micros(event.event_time)]
            columns = chunk.Columns(event.raw, 1, [event.key], [event.given_id], times, [event.headers])
            appended = moments.micros(event.appended_at)
            slices.append(_Slice(lane, event.offset, appended, event.is_redriven, columns))
    failures: list[Failure] = []
    progress = {piece.lane.partition_id: _Progress(piece.lane) for piece in slices}
    work = _Columns(reading, progress, failures)
    batches = list(work.batches(slices)) if slices else []
    return pa.Table.from_batches(batches, schema=reading.schema), failures


def send_report(reading: Reading, cycle: int, stage: int, task: int, attempt: int, report: Report) -> None:
    """Tell the driver what there is to tell beside the data."""
    params = {
        "query": reading.query,
        "fence": reading.fence,
        "cycle": cycle,
        "stage": stage,
        "task": task,
        "attempt": attempt,
        "report": reports.encode(report),
    }
    with asking():
        connection(reading.conninfo).execute(_sql["send"], params)


def report_failures(reading: Reading, stage: int, failures: list[Failure]) -> None:
    """Tell the driver what failed in a stage after the reader, at the end of its task; nothing, outside a cycle."""
    from pyspark import TaskContext

    context = TaskContext.get()
    said = None if context is None else context.getLocalProperty(CYCLE)
    if context is not None and said is not None:
        task, attempt = context.partitionId(), context.taskAttemptId()
        send_report(reading, int(said), stage, task, attempt, Report([], failures, {}))


def load_plan(reading: Reading, cycle: int) -> CyclePlan:
    """The plan of a cycle, out of the ledger."""
    from penstock.engine.plan import decode

    params = {"query": reading.query, "fence": reading.fence, "cycle": cycle}
    with asking():
        row = connection(reading.conninfo).execute(_sql["plan"], params, binary=True).fetchone()
    if row is None:
        raise RuntimeError(f"cycle {cycle} of query {reading.query_name!r} is not in the ledger: another driver has it")
    return decode(row[0])


class DatabaseLost(Exception):
    """PostgreSQL was away while a task ran: no event is to blame for that."""


@contextmanager
def asking() -> Iterator[None]:
    """Around what a task asks of PostgreSQL; the driver knows the error by its name."""
    try:
        yield
    except LOST as error:
        raise DatabaseLost(str(error).strip()) from error


_connections: dict[str, psycopg.Connection[Any]] = {}


def connection(conninfo: str) -> psycopg.Connection[Any]:
    """This worker's connection; Spark uses a worker again for the tasks that follow."""
    conn = _connections.get(conninfo)
    if conn is not None and _is_cut(conn):
        conn.close()
    if conn is None or conn.closed:
        conn = connect(conninfo, "worker")
        # What a worker writes is only for the cycle that it is in.
        conn.execute("SET synchronous_commit = off")
        _connections[conninfo] = conn
    return conn


def _is_cut(conn: psycopg.Connection[Any]) -> bool:
    """Whether the server has ended it while the worker waited: it does not speak unasked for any other reason."""
    if conn.closed or conn.broken:
        return True
    if conn.info.transaction_status != TransactionStatus.IDLE:
        return False
    socket = select.poll()
    socket.register(conn.fileno(), select.POLLIN)
    return bool(socket.poll(0))


def _slices(conn: psycopg.Connection[Any], lanes: dict[int, Lane], progress: dict[int, _Progress]) -> Iterator[_Slice]:
    wanted: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for lane in lanes.values():
        for stretch in lane.stretches:
            wanted.setdefault((lane.queue_id, stretch.segment), []).append(
                (lane.partition_id, stretch.start, stretch.stop)
            )
    for (queue_id, segment), ranges in sorted(wanted.items()):
        params = {
            "partitions": numbers([p for p, _, _ in ranges]),
            "starts": numbers([start for _, start, _ in ranges]),
            "ends": numbers([stop for _, _, stop in ranges]),
            "longest": chunk.MAX_EVENTS,
        }
        limits = {p: (start, stop) for p, start, stop in ranges}
        statement = _read.table("chunks_between", queue_id, segment)
        for partition_id, end, count, appended_at, target, body in _stream(conn, statement, params):
            lane = lanes[partition_id]
            start, stop = limits[partition_id]
            first = max(start, end - count)
            last = min(stop, end)
            seen = progress[partition_id]
            seen.offsets += last - first
            seen.last = micros = (appended_at - EPOCH) // timedelta(microseconds=1)
            seen.first = seen.first or micros
            if target is not None and target != lane.group_id:
                continue  # sent back to another group alone
            seen.events += last - first
            columns = chunk.decode(body)
            if last - first < count:
                columns = _cut(columns, first - (end - count), last - (end - count))
            yield _Slice(lane, first, micros, target is not None, columns)


def _stream(conn: psycopg.Connection[Any], statement: str, params: dict[str, Any]) -> Iterator[Any]:
    with asking():
        yield from conn.cursor().stream(statement, params, binary=True)


def _cut(columns: chunk.Columns, lo: int, hi: int) -> chunk.Columns:
    def part(column: Sequence[Any] | None) -> Sequence[Any] | None:
        return None if column is None else column[lo:hi]

    return chunk.Columns(
        b"\n".join(columns.lines()[lo:hi]),
        hi - lo,
        part(columns.keys),
        part(columns.ids),
        part(columns.times),
        part(columns.headers),
    )


class _Columns:
    """Makes columns of slices."""

    def __init__(self, reading: Reading, progress: dict[int, _Progress], failures: list[Failure]) -> None:
        self._reading = reading
        self._progress = progress
        self._failures = failures
        self._time_path = reading.event_time.split(".") if isinstance(reading.event_time, str) else None
        if self._time_path is not None and not reading.steps and self._time_path[0] not in reading.fields.names:
            raise ValueError(f"the type of {self._time_path[0]!r} is not known")
        self._parser = Parser(reading.fields)

    def batches(self, slices: list[_Slice]) -> Iterator[pa.RecordBatch]:
        """The slices' events, less those that failed."""
        rows = sum(piece.columns.count for piece in slices)
        data = b"\n".join(piece.columns.data for piece in slices)
        meta = _Meta(slices, rows)
        if self._reading.steps or callable(self._reading.event_time):
            table, places, times = self._through_python(slices, meta, data.split(b"\n"))
        else:
            table, places, times = self._straight(meta, data, rows)
        times = self._bounded(slices, times, meta)
        table = self._assemble(meta, table, places)
        yield from table.to_batches()

    def _straight(self, meta: _Meta, data: bytes, rows: int) -> tuple[pa.Table, Any, Any]:
        """Nothing but decoding."""
        table, problems = self._parser.parse(data, rows)
        for place, problem in problems.items():
            self._fail(meta, place, "parse", problem)
        times, missing = self._times(meta, table, rows)
        for place, problem in missing.items():
            if place not in problems:
                self._fail(meta, place, "event time", problem)
        if self._reading.with_data:
            table = table.append_column(DATA, pa.array(data.decode().split("\n"), pa.string()))
        bad = problems.keys() | missing.keys()
        if bad:
            places = np.array([i for i in range(rows) if i not in bad], dtype=np.int64)
            return table.take(places), places, times
        return table, None, times

    def _through_python(self, slices: list[_Slice], meta: _Meta, lines: list[bytes]) -> tuple[pa.Table, Any, Any]:
        """Decode each event, run the callables, decode what comes out into columns."""
        values = [json.decode(line) for line in lines]
        times = meta.times(self._reading.event_time)
        batch = Batch(
            self._reading.query_name,
            [],
            lambda place: (int(meta.partition[place]), int(meta.offset[place])),
            lambda place: meta.describe(place, self._reading.queues),
        )
        if times is None:
            times = np.full(len(values), NEVER, dtype=np.int64)
            read = self._time_reader(batch)
            for place, value in enumerate(values):
                try:
                    times[place] = moments.of_value(read(place, value))
                except Exception as error:
                    batch.fail(place, "event time", error, 1)
        failed = {(f.partition, f.offset) for f in batch.failures}
        batch.items = [
            Item(place, value) for place, value in enumerate(values) if not failed or batch.where(place) not in failed
        ]
        run_steps(self._reading.steps, batch)
        last = self._reading.steps[-1].name if self._reading.steps else "event time"
        out, sources = encode_items(batch, last)
        self._failures += batch.failures
        table, problems = self._parser.parse(b"\n".join(out), len(out))
        if problems:
            misfits = {sources[place] for place in problems}
            for place, problem in problems.items():
                self._fail(meta, sources[place], last, f"what it returned does not fit: {problem}")
            keep = [i for i, source in enumerate(sources) if source not in misfits]
            table, out, sources = table.take(keep), [out[i] for i in keep], [sources[i] for i in keep]
        if self._reading.with_data:
            table = table.append_column(DATA, pa.array([line.decode() for line in out], pa.string()))
        return table, np.array(sources, dtype=np.int64), times

    def _time_reader(self, batch: Batch) -> Callable[[int, Any], Any]:
        event_time = self._reading.event_time
        if self._time_path is not None:
            path = self._time_path

            def read(place: int, value: Any) -> Any:
                for name in path:
                    value = value.get(name) if isinstance(value, dict) else None
                return value

            return read
        if takes_context(event_time):
            return lambda place, value: event_time(value, batch.context("event time", place))
        return lambda place, value: event_time(value)

    def _times(self, meta: _Meta, table: pa.Table, rows: int) -> tuple[Any, dict[int, str]]:
        times = meta.times(self._reading.event_time)
        if times is not None:
            return times, {}
        path = self._time_path or []
        column = table.column(path[0])
        for name in path[1:]:
            column = pa.compute.struct_field(column, name)
        return moments.of_column(column)

    def _bounded(self, slices: list[_Slice], times: Any, meta: _Meta) -> Any:
        """For each event, up to where windows were closed before it, by the rule that does not depend on batching."""
        bounds = np.empty(len(times), dtype=np.int64)
        place = 0
        for piece in slices:
            upto = place + piece.columns.count
            seen = self._progress[piece.lane.partition_id]
            running = np.maximum.accumulate(np.concatenate(([seen.high], times[place:upto])))
            floor = NEVER if piece.lane.floor_us is None else piece.lane.floor_us
            bounds[place:upto] = np.maximum(running[:-1] - self._reading.lateness_us, floor)
            seen.high = int(running[-1])
            place = upto
        meta.time, meta.bound = times, bounds
        return times

    def _assemble(self, meta: _Meta, table: pa.Table, places: Any) -> pa.Table:
        columns = {
            "__partition": pa.array(meta.partition if places is None else meta.partition[places]),
            "__offset": pa.array(meta.offset if places is None else meta.offset[places]),
            "__key": meta.keys() if places is None else meta.keys().take(pa.array(places)),
            "__time": pa.array(meta.time if places is None else meta.time[places]),
            "__bound": pa.array(meta.bound if places is None else meta.bound[places]),
            "__redriven": pa.array(meta.redriven() if places is None else meta.redriven()[places]),
        }
        schema = self._reading.schema
        arrays = [columns[name] if name in columns else table.column(name) for name in schema.names]
        return pa.Table.from_arrays(arrays, schema=schema).combine_chunks()

    def _fail(self, meta: _Meta, place: int, stage: str, error: str) -> None:
        self._failures.append(Failure(int(meta.partition[place]), int(meta.offset[place]), stage, error))


class _Meta:
    """Where each event of some slices stands."""

    def __init__(self, slices: list[_Slice], rows: int) -> None:
        self._slices = slices
        counts = [piece.columns.count for piece in slices]
        self._counts = counts
        self.partition = np.repeat(np.array([s.lane.partition_id for s in slices], dtype=np.int64), counts)
        self.offset = np.concatenate([np.arange(s.first, s.first + s.columns.count, dtype=np.int64) for s in slices])
        self.time = self.bound = np.empty(0, dtype=np.int64)
        self._keys: pa.Array | None = None

    def keys(self) -> pa.Array:
        """Each event's key, or null."""
        if self._keys is None:
            self._keys = pa.concat_arrays([_keys(piece) for piece in self._slices])
        return self._keys

    def redriven(self) -> np.ndarray[Any, Any]:
        """Whether each event is a dead letter that was sent back."""
        return np.repeat(np.array([s.redriven for s in self._slices], dtype=bool), self._counts)

    def times(self, event_time: Any) -> np.ndarray[Any, Any] | None:
        """The times that need no look at the data: of appending, or what producers said beside it."""
        if event_time is not None and event_time is not True:
            return None
        appended = np.repeat(np.array([s.appended_us for s in self._slices], dtype=np.int64), self._counts)
        if event_time is True:
            place = 0
            for piece in self._slices:
                if piece.columns.times is not None:
                    for i, said in enumerate(piece.columns.times):
                        if said is not None:
                            appended[place + i] = said
                place += piece.columns.count
        return appended

    def describe(self, place: int, queues: dict[int, str]) -> dict[str, Any]:
        """All about one event, for a callable that asks."""
        rest = place
        for piece in self._slices:
            if rest < piece.columns.count:
                break
            rest -= piece.columns.count
        columns = piece.columns
        given = None if columns.ids is None else columns.ids[rest]
        said = None if columns.times is None else columns.times[rest]
        appended = EPOCH + timedelta(microseconds=piece.appended_us)
        return {
            "queue": queues.get(piece.lane.queue_id),
            "partition": piece.lane.name,
            "partition_id": piece.lane.partition_id,
            "offset": piece.first + rest,
            "key": self.keys()[place].as_py(),
            "id": given or f"{piece.lane.partition_id}-{piece.first + rest}",
            "time": appended if said is None else EPOCH + timedelta(microseconds=said),
            "appended_at": appended,
            "headers": (columns.headers[rest] if columns.headers else None) or {},
            "is_redriven": piece.redriven,
        }


def _keys(piece: _Slice) -> pa.Array:
    if piece.lane.is_lane and piece.lane.name != DEFAULT_KEY:
        return pa.array([piece.lane.name] * piece.columns.count, pa.string())
    if piece.columns.keys is None:
        return pa.nulls(piece.columns.count, pa.string())
    return pa.array(piece.columns.keys, pa.string())

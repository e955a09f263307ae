"""In a Spark worker: from the offsets of a task to typed columns, and a report at the end.

Chunks come from PostgreSQL as they are stored, their JSON is decoded straight into Arrow columns, and Python callables
that come first in a stream run here, before Spark sees an event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.core.timestamps import to_micros
from penstock.engine.plan import CyclePlan, Lane
from penstock.engine.worker.chunk_reader import Progress, Slice, slices_of
from penstock.engine.worker.decode import Columns
from penstock.engine.worker.event_time import NEVER
from penstock.engine.worker.preaggregate import combined, packed
from penstock.engine.worker.read_config import Reading
from penstock.engine.worker.reports import Mark, Report
from penstock.engine.worker.task import Job, asking, connection, current_task, load_plan, send_report
from penstock.engine.worker.udf import Failure
from penstock.log.event import Event
from penstock.log.storage import chunk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: A batch of columns is handed on when it has so many events, or was made of so many bytes.
_BATCH_EVENTS = 1 << 16
_BATCH_BYTES = 16 << 20


def read_task(reading: Reading, job: Job, plan: CyclePlan, task: int, attempt: int) -> Iterator[pa.RecordBatch]:
    """The events of one task, in the order of each partition, and a report at the end."""
    lanes = {lane.partition_id: lane for lane in plan.lanes_of(task) if lane.queue_id in reading.queues}
    progress = {lane.partition_id: Progress(lane) for lane in lanes.values()}
    failures: list[Failure] = []
    work = Columns(reading, progress, failures)
    with asking():
        conn = connection(reading.conninfo)
    tables = _tables(work, slices_of(conn, reading.queues, lanes, progress, failures))
    if reading.combining is None:
        for table in tables:
            yield from table.to_batches()
    else:
        yield from combined(reading.combining, tables)
    marks = [
        Mark(p, seen.offsets, seen.events, None if seen.high == NEVER else seen.high, seen.last, seen.first)
        for p, seen in progress.items()
    ]
    send_report(reading, job, reading.number, task, attempt, Report(marks, failures, dict(work.dropped)))


def _tables(work: Columns, pieces: Iterator[Slice]) -> Iterator[pa.Table]:
    """The events of the slices, many at a time."""
    slices: list[Slice] = []
    events = size = 0
    for piece in pieces:
        slices.append(piece)
        events += piece.columns.count
        size += len(piece.columns.data)
        if events >= _BATCH_EVENTS or size >= _BATCH_BYTES:
            yield work.table(slices)
            slices, events, size = [], 0, 0
    if slices:
        yield work.table(slices)


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
        current = current_task()
        for batch in batches:
            for task in batch.column(0).to_pylist():
                if current is not None:
                    context, job = current
                    plan = load_plan(self.reading, job)
                    if task < len(plan.tasks):
                        yield from read_task(self.reading, job, plan, task, context.taskAttemptId())


def columns_of(spark: SparkSession, reading: Reading, events: Sequence[Event]) -> pa.Table:
    """The columns of events that are at hand, as a task would give them.

    Callables run in a worker here too: one that ends its process, or hangs, does not do so to the driver.
    """
    slices = slices_at_hand(reading.queues, events)
    if not slices:
        return reading.events.empty_table()
    if not reading.steps and not callable(reading.event_time):
        return _columns(reading, slices)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            block = pa.array([packed(_columns(reading, slices))], pa.binary())
            yield pa.RecordBatch.from_arrays([block], names=["events"])

    row = spark.range(0, 1, 1, 1).mapInArrow(run, "events binary").toArrow().to_pylist()[0]
    return pa.ipc.open_stream(row["events"]).read_all()


def slices_at_hand(named: Mapping[int, str], events: Sequence[Event]) -> list[Slice]:
    """Events as a task would read them, one to a slice, each partition in order. Queues have names by their ids."""
    queues = {name: queue_id for queue_id, name in named.items()}
    lanes: dict[int, list[Event]] = {}
    for event in events:
        lanes.setdefault(event.partition_id, []).append(event)
    slices = []
    for partition_id, some in lanes.items():
        delivery = some[0].delivery
        lane = Lane(partition_id, queues.get(some[0].queue, 0), 0, delivery.partition, delivery.is_lane, [])
        for event in sorted(some, key=lambda e: e.offset):
            times = None if event.event_time is None else [to_micros(event.event_time)]
            columns = chunk.Columns(event.raw, 1, [event.key], [event.given_id], times, [event.headers])
            appended = to_micros(event.appended_at)
            slices.append(Slice(lane, event.offset, appended, event.is_redriven, columns))
    return slices


def _columns(reading: Reading, slices: list[Slice]) -> pa.Table:
    failures: list[Failure] = []
    progress = {piece.lane.partition_id: Progress(piece.lane) for piece in slices}
    table = Columns(reading, progress, failures).table(slices)
    if reading.failed is not None:
        reading.failed.add(failures)
    return table

"""Reads the events of a task: from the planned offsets to typed columns, with a report at the end.

The chunks come from PostgreSQL as they are stored, and their JSON is decoded directly into Arrow columns. Functions at
the start of a stream run here, before Spark gets the events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.core.clock import to_micros
from penstock.engine.cycle_plan import CyclePlan, PartitionRange
from penstock.engine.worker.chunk_slices import ChunkSlice, batch_slices, read_chunk_slices
from penstock.engine.worker.event_decoder import EventDecoder
from penstock.engine.worker.preaggregate import preaggregate_batches, to_ipc
from penstock.engine.worker.read_config import ReadConfig
from penstock.engine.worker.spark_task import (
    CycleJob,
    current_task,
    load_plan,
    send_report,
    translate_database_errors,
    worker_connection,
)
from penstock.engine.worker.task_reports import EventFailure, PartitionReport, TaskReport
from penstock.log.event import Event
from penstock.log.storage import chunk

_BATCH_EVENTS = 1 << 16
_BATCH_BYTES = 16 << 20


def read_task(config: ReadConfig, job: CycleJob, plan: CyclePlan, task: int, attempt: int) -> Iterator[pa.RecordBatch]:
    """Read the events of one task, each partition in order, and send the report at the end."""
    planned = [partition for partition in plan.partitions_of_task(task) if partition.queue_id in config.queues]
    partitions = {partition.partition_id: partition for partition in planned}
    reports = {
        partition.partition_id: PartitionReport(partition.partition_id, partition.high_us) for partition in planned
    }
    failures: list[EventFailure] = []
    decoder = EventDecoder(config, reports, failures)
    with translate_database_errors():
        conn = worker_connection(config.conninfo)
    slices = read_chunk_slices(conn, config.queues, partitions, reports, failures)
    tables = map(decoder.decode, batch_slices(slices, _BATCH_EVENTS, _BATCH_BYTES))
    if config.preaggregation is None:
        for table in tables:
            yield from table.to_batches()
    else:
        yield from preaggregate_batches(config.preaggregation, tables)
    report = TaskReport(list(reports.values()), failures, dict(decoder.dropped))
    send_report(config, job, config.stage, task, attempt, report)


@dataclass(frozen=True)
class EventReader:
    """The function that Spark calls in a worker: takes task numbers and returns the events of these tasks."""

    config: ReadConfig

    def frame(self, spark: SparkSession, tasks: int) -> DataFrame:
        """A DataFrame of the events of a cycle, read by ``tasks`` tasks. The running job tells which cycle."""

        return spark.range(0, tasks, 1, tasks).mapInArrow(self, from_arrow_schema(self.config.output_schema))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        current = current_task()
        for batch in batches:
            for task in batch.column(0).to_pylist():
                if current is not None:
                    context, job = current
                    plan = load_plan(self.config, job)
                    if task < len(plan.tasks):
                        yield from read_task(self.config, job, plan, task, context.taskAttemptId())


def decode_events(spark: SparkSession, config: ReadConfig, events: Sequence[Event]) -> pa.Table:
    """Decode events that were read before, as a task would.

    Functions run in a worker here too: one that ends its process or hangs must not harm the driver.
    """
    slices = to_chunk_slices(config.queues, events)
    if not slices:
        return config.event_schema.empty_table()
    if not config.steps and not callable(config.event_time):
        return _decode_slices(config, slices)

    (block,) = run_in_worker(spark, lambda: [to_ipc(_decode_slices(config, slices))])
    return pa.ipc.open_stream(block).read_all()


def run_in_worker(spark: SparkSession, function: Callable[[], list[bytes]]) -> list[bytes]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.record_batch({"value": pa.array(function(), pa.binary())})

    table = spark.range(0, 1, 1, 1).mapInArrow(work, "value binary").toArrow()
    values: list[bytes] = table.column(0).to_pylist()
    return values


def to_chunk_slices(queues: Mapping[int, str], events: Sequence[Event]) -> list[ChunkSlice]:
    """One slice for each event, each partition in order. ``queues`` has the queue names by id."""
    queue_ids = {name: queue_id for queue_id, name in queues.items()}
    by_partition: dict[int, list[Event]] = {}
    for event in events:
        by_partition.setdefault(event.partition_id, []).append(event)
    slices = []
    for partition_id, members in by_partition.items():
        delivery = members[0].delivery
        queue_id = queue_ids.get(members[0].queue, 0)
        partition = PartitionRange(partition_id, queue_id, 0, delivery.partition, delivery.is_key_partition, [])
        for event in sorted(members, key=lambda member: member.offset):
            times = None if event.event_time is None else [to_micros(event.event_time)]
            columns = chunk.ChunkColumns(event.raw, 1, [event.key], [event.given_id], times, [event.headers])
            appended_us = to_micros(event.appended_at)
            slices.append(ChunkSlice(partition, event.offset, appended_us, event.is_redriven, columns))
    return slices


def _decode_slices(config: ReadConfig, slices: Sequence[ChunkSlice]) -> pa.Table:
    failures: list[EventFailure] = []
    partition_ids = {piece.partition.partition_id for piece in slices}
    reports = {partition_id: PartitionReport(partition_id, None) for partition_id in partition_ids}
    table = EventDecoder(config, reports, failures).decode(slices)
    if config.failed_events is not None:
        config.failed_events.add(failures)
    return table

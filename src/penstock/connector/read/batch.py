"""``spark.read.format("penstock").option("queue", ...)``: reads a range of a queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.connector.database_url import RetryingConnection
from penstock.connector.options import ReadOptions
from penstock.connector.read.data_loss import LostRange, handle_loss
from penstock.connector.read.offsets import QueueOffsets
from penstock.connector.read.pushdown import EventFilter, FilterPushdown, count_hash_partitions
from penstock.connector.read.task_ranges import TaskRanges, make_tasks, resolve_offset_spec
from penstock.connector.read.task_reader import TaskReader

if TYPE_CHECKING:
    import pyarrow as pa


class QueueBatchReader(DataSourceReader):
    """Plans in the driver's Python process and reads in the tasks."""

    def __init__(self, options: ReadOptions, task_reader: TaskReader) -> None:
        self._options = options
        self._task_reader = task_reader
        self._pushdown = FilterPushdown(frozenset(task_reader.output.events), EventFilter(keys=options.keys))
        self.pushFilters = self._pushdown  # type: ignore[method-assign]  # see FilterPushdown

    def partitions(self) -> list[InputPartition]:
        with closing(RetryingConnection(self._task_reader.database)) as connection:
            return connection.run(self._plan)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TaskRanges)  # noqa: S101 - partitions() returns these
        return replace(self._task_reader, keys=self._pushdown.filter.keys).read(partition)

    def _plan(self, conn: psycopg.Connection[Any]) -> list[InputPartition]:
        options, event_filter = self._options, self._pushdown.filter
        offsets = QueueOffsets(conn, options.queues)
        partitions = offsets.partitions()
        starts = resolve_offset_spec(offsets, "startingOffsets", options.starting, partitions, "earliest")
        ends = resolve_offset_spec(offsets, "endingOffsets", options.ending, partitions, "latest")
        lost = [
            LostRange(id_, starts[id_], partition.first)
            for id_, partition in partitions.items()
            if starts[id_] < partition.first
        ]
        counts = count_hash_partitions(partitions)
        selected = {
            id_: partition
            for id_, partition in partitions.items()
            if event_filter.may_match(partition, offsets.names[partition.queue_id], counts)
        }
        # Times grow with offsets, so a range of times is a range of offsets.
        low, high = event_filter.offsets
        since = {} if event_filter.since is None else offsets.offsets_at(selected, event_filter.since)
        until = {} if event_filter.until is None else offsets.offsets_at(selected, event_filter.until)
        ranges = {
            id_: (
                max(starts[id_], partition.first, low, since.get(id_, low)),
                min(ends[id_], high, until.get(id_, high)),
            )
            for id_, partition in selected.items()
        }
        resolved, deleted = offsets.resolve(partitions, ranges, {})
        handle_loss(lost or deleted, ", ".join(options.queues), fail=options.fail_on_loss)
        # For an empty list, Spark makes one task with another kind of partition.
        return [*make_tasks(resolved, offsets.names, options.min_partitions)] or [TaskRanges([], {})]

"""``spark.read.format("penstock").option("queue", ...)``: reads a range of a queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.connector.options import ReadOptions
from penstock.connector.read.offsets import LostRange, PartitionOffsets, QueueOffsets
from penstock.connector.read.pushdown import EventFilter, FilterPushdown, count_hash_partitions
from penstock.connector.read.ranges import TaskRanges, handle_loss, make_tasks, resolve_offset_spec
from penstock.connector.read.task_reader import TaskReader
from penstock.connector.retrying_connection import RetryingConnection

if TYPE_CHECKING:
    import pyarrow as pa


class QueueBatchReader(DataSourceReader):
    """Plans in the driver's Python process and reads in the tasks."""

    def __init__(self, options: ReadOptions, task_reader: TaskReader) -> None:
        self._options = options
        self._task_reader = task_reader
        self._pushdown = FilterPushdown(frozenset(task_reader.output.events))
        self.pushFilters = self._pushdown  # type: ignore[method-assign]  # see FilterPushdown

    def partitions(self) -> list[InputPartition]:
        with closing(RetryingConnection(self._task_reader.database)) as connection:
            return connection.run(self._plan)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TaskRanges)  # noqa: S101 - partitions() returns these
        return replace(self._task_reader, keys=self._filter.keys).read(partition)

    @property
    def _filter(self) -> EventFilter:
        """The filters of Spark with the keys of the options."""
        pushed, keys = self._pushdown.filter, self._options.keys
        if keys is None or pushed.keys is None:
            return replace(pushed, keys=pushed.keys if keys is None else keys)
        return replace(pushed, keys=pushed.keys & keys)

    def _plan(self, conn: psycopg.Connection[Any]) -> list[InputPartition]:
        options, event_filter = self._options, self._filter
        offsets = QueueOffsets(conn, options.queues)
        partitions = offsets.partitions()
        ranges = self._ranges(offsets, partitions)
        lost = [
            LostRange(id_, start, partitions[id_].first)
            for id_, (start, _) in ranges.items()
            if start < partitions[id_].first
        ]
        counts = count_hash_partitions(partitions)
        selected = {
            partition_id: (start, stop)
            for partition_id, partition in partitions.items()
            if event_filter.may_match(partition, offsets.names[partition.queue_id], counts)
            for start, stop in [self._narrow(ranges[partition_id], partition)]
            if start < stop
        }
        if event_filter.since is not None or event_filter.until is not None:
            selected = self._narrow_by_time(offsets, partitions, selected)
        resolved, deleted = offsets.resolve(partitions, selected, 0)
        handle_loss(lost or deleted, ", ".join(options.queues), fail=options.fail_on_loss)
        # For an empty list, Spark makes one task with another kind of partition.
        return [*make_tasks(resolved, offsets.names, options.min_partitions)] or [TaskRanges([], {})]

    def _ranges(self, offsets: QueueOffsets, partitions: Mapping[int, PartitionOffsets]) -> dict[int, tuple[int, int]]:
        """Return the range of each partition that the options select."""
        options = self._options
        if options.starting_time is not None:
            starts = offsets.offsets_at(partitions, options.starting_time)
        else:
            starts = resolve_offset_spec("startingOffsets", options.starting, partitions, "earliest")
        if options.ending_time is not None:
            ends = offsets.offsets_at(partitions, options.ending_time)
        else:
            ends = resolve_offset_spec("endingOffsets", options.ending, partitions, "latest")
        return {partition_id: (starts[partition_id], ends[partition_id]) for partition_id in partitions}

    def _narrow(self, range_: tuple[int, int], partition: PartitionOffsets) -> tuple[int, int]:
        (start, stop), (low, high) = range_, self._pushdown.filter.offsets
        return max(start, low, partition.first), min(stop, high)

    def _narrow_by_time(
        self,
        offsets: QueueOffsets,
        partitions: Mapping[int, PartitionOffsets],
        ranges: Mapping[int, tuple[int, int]],
    ) -> dict[int, tuple[int, int]]:
        """Narrow ranges to the times of the filter. Times grow with offsets."""
        pushed = self._pushdown.filter
        selected = {partition_id: partitions[partition_id] for partition_id in ranges}
        since = offsets.offsets_at(selected, pushed.since) if pushed.since is not None else {}
        until = offsets.offsets_at(selected, pushed.until) if pushed.until is not None else {}
        narrowed = {
            partition_id: (max(start, since.get(partition_id, start)), min(stop, until.get(partition_id, stop)))
            for partition_id, (start, stop) in ranges.items()
        }
        return {partition_id: (start, stop) for partition_id, (start, stop) in narrowed.items() if start < stop}

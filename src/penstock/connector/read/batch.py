"""``spark.read.format("penstock").option("queue", ...)``: a range of a queue, as it is when the read is planned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.connector.options import Read
from penstock.connector.read.offsets import Head, Lost, Places
from penstock.connector.read.pushdown import Pushdown, Wanted, hash_counts
from penstock.connector.read.ranges import Ranges, edge_offsets, lose, tasks
from penstock.connector.read.task_reader import Task
from penstock.connector.retrying_connection import Line

if TYPE_CHECKING:
    import pyarrow as pa


class QueueReader(DataSourceReader):
    """Plans in the driver's Python, reads in the tasks'; what Spark filters on is left to PostgreSQL if it can."""

    def __init__(self, read: Read, task: Task) -> None:
        self._read = read
        self._task = task
        self._pushed = Pushdown(frozenset(task.output.events))
        self.pushFilters = self._pushed  # type: ignore[method-assign]  # see there

    def partitions(self) -> list[InputPartition]:
        """The tasks."""
        with closing(Line(self._task.database)) as line:
            return line.ask(self._plan)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of one task."""
        assert isinstance(partition, Ranges)  # noqa: S101 - Spark hands out what partitions() gave
        return replace(self._task, keys=self._wanted.keys).read(partition)

    @property
    def _wanted(self) -> Wanted:
        """What the filters and the options leave."""
        wanted = self._pushed.wanted
        keys = self._read.keys
        if keys is None or wanted.keys is None:
            return replace(wanted, keys=wanted.keys if keys is None else keys)
        return replace(wanted, keys=wanted.keys & keys)

    def _plan(self, conn: psycopg.Connection[Any]) -> list[InputPartition]:
        read, wanted = self._read, self._wanted
        places = Places(conn, read.queues)
        heads = places.heads()
        ranges = self._ranges(places, heads)
        lost = [Lost(p, start, heads[p].first) for p, (start, _) in ranges.items() if start < heads[p].first]
        counts = hash_counts(heads)
        chosen = {
            partition: span
            for partition, head in heads.items()
            if wanted.keeps(head, places.names[head.queue], counts)
            and (span := self._narrowed(ranges[partition], head))[0] < span[1]
        }
        if wanted.since is not None or wanted.until is not None:
            chosen = self._timed(places, heads, chosen)
        lanes, gone = places.lanes(heads, chosen, 0)
        lose(lost or gone, ", ".join(read.queues), fail=read.fail_on_loss)
        # Spark makes one task of an empty list, and hands it something else.
        return [*tasks(lanes, places.names, read.min_partitions)] or [Ranges([], {})]

    def _ranges(self, places: Places, heads: dict[int, Head]) -> dict[int, tuple[int, int]]:
        """What the options say, of each partition."""
        read = self._read
        if read.starting_time is not None:
            starts = places.at(heads, read.starting_time)
        else:
            starts = edge_offsets("startingOffsets", read.starting, heads, "earliest")
        if read.ending_time is not None:
            ends = places.at(heads, read.ending_time)
        else:
            ends = edge_offsets("endingOffsets", read.ending, heads, "latest")
        return {partition: (starts[partition], ends[partition]) for partition in heads}

    def _narrowed(self, span: tuple[int, int], head: Head) -> tuple[int, int]:
        start, stop = self._pushed.wanted.offsets
        return max(span[0], start, head.first), min(span[1], stop)

    def _timed(
        self, places: Places, heads: dict[int, Head], ranges: dict[int, tuple[int, int]]
    ) -> dict[int, tuple[int, int]]:
        """The part of the ranges that was appended in the time that is filtered on: time grows with the offsets."""
        wanted = self._pushed.wanted
        some = {partition: heads[partition] for partition in ranges}
        since = places.at(some, wanted.since) if wanted.since is not None else {}
        until = places.at(some, wanted.until) if wanted.until is not None else {}
        timed = {
            partition: (max(start, since.get(partition, start)), min(stop, until.get(partition, stop)))
            for partition, (start, stop) in ranges.items()
        }
        return {partition: span for partition, span in timed.items() if span[0] < span[1]}

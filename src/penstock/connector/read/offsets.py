"""The offsets of queues: where partitions begin and end, and the first offset at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import psycopg

from penstock.connector.read.data_loss import LostRange, find_gaps
from penstock.core.errors import NotFound
from penstock.db.statements import Statements
from penstock.engine.cycle_plan import PartitionRange
from penstock.engine.planning.segment_ranges import OffsetRange, resolve_segments

_sql = Statements("penstock.connector.read", "offsets.sql")
_groups = Statements("penstock.log", "groups.sql")


class PartitionOffsets(NamedTuple):
    """A partition with its offsets from ``first`` to ``end`` (exclusive)."""

    queue_id: int
    #: The open segment of the queue.
    open_segment: int
    partition_id: int
    name: str
    is_key_partition: bool
    epoch: int
    #: Offsets below this one are in sealed segments, the others in the open segment.
    sealed_end: int
    first: int
    end: int


class QueueRow(NamedTuple):
    id: int
    open_segment: int


class QueueOffsets:
    """Reads the offsets of the queues of one reader."""

    def __init__(self, conn: psycopg.Connection[Any], queues: Sequence[str]) -> None:
        self._conn = conn
        self._queues = queues
        #: The names of the queues by id, as of the last call of ``partitions``.
        self.names: dict[int, str] = {}

    def partitions(self) -> dict[int, PartitionOffsets]:
        """Return all partitions by id, those of older epochs first."""
        self.names = {}
        return {partition.partition_id: partition for name in self._queues for partition in self._partitions(name)}

    def find_queue(self, name: str) -> QueueRow:
        row = self._conn.execute(_sql["queue"], {"name": name}).fetchone()
        if row is None:
            raise NotFound(f"there is no queue {name!r}; create it with `penstock queue create {name}`")
        return QueueRow._make(row)

    def _partitions(self, name: str) -> list[PartitionOffsets]:
        while True:
            queue = self.find_queue(name)
            self.names[queue.id] = name
            try:
                statement = _sql.table("partitions", queue.id, queue.open_segment)
                rows = self._conn.execute(statement, {"queue": queue.id}).fetchall()
            except psycopg.errors.UndefinedTable:
                continue  # the segment was dropped meanwhile, or the queue, which find_queue notices
            return [PartitionOffsets(queue.id, queue.open_segment, *row) for row in rows]

    def offsets_at(self, partitions: Mapping[int, PartitionOffsets], time: datetime) -> dict[int, int]:
        """Return the first offset of each partition that was appended at a time or later, or its end."""
        offsets = {partition_id: partition.end for partition_id, partition in partitions.items()}
        by_table: dict[tuple[int, int], list[int]] = {}
        for queue_id in {partition.queue_id for partition in partitions.values()}:
            sealed = dict(self._conn.execute(_sql["segments_at"], {"queue": queue_id, "time": time}).fetchall())
            for partition_id, partition in partitions.items():
                if partition.queue_id == queue_id:
                    segment = sealed.get(partition_id, partition.open_segment)
                    by_table.setdefault((queue_id, segment), []).append(partition_id)
        for (queue_id, segment), partition_ids in by_table.items():
            statement = _groups.table("offsets_at", queue_id, segment)
            params = {"partitions": partition_ids, "time": time}
            for partition_id, offset in self._conn.execute(statement, params).fetchall():
                partition = partitions[partition_id]
                offsets[partition_id] = min(max(offset, partition.first), partition.end)
        return offsets

    def resolve(
        self,
        partitions: Mapping[int, PartitionOffsets],
        ranges: Mapping[int, tuple[int, int]],
        group_ids: Mapping[int, int],
    ) -> tuple[list[PartitionRange], list[LostRange]]:
        """Resolve ranges of offsets to segment tables, and return the offsets that are deleted.

        ``group_ids`` are the ids of the group by the id of the queue, if the reader has a group.
        """
        ranges = {partition_id: (start, stop) for partition_id, (start, stop) in ranges.items() if start < stop}
        resolved = resolve_segments(
            self._conn,
            [
                OffsetRange(id_, start, stop, partitions[id_].sealed_end, partitions[id_].open_segment)
                for id_, (start, stop) in ranges.items()
            ],
        )
        found, lost = [], []
        for partition_id, (start, stop) in ranges.items():
            partition, segments = partitions[partition_id], resolved[partition_id]
            lost += find_gaps(partition_id, start, stop, segments)
            if segments:
                found.append(
                    PartitionRange(
                        partition_id,
                        partition.queue_id,
                        group_ids.get(partition.queue_id, 0),
                        partition.name,
                        partition.is_key_partition,
                        segments,
                    )
                )
        return found, lost

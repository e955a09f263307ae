"""``spark.readStream.format("penstock").option("queue", ...)``: reads a queue as a stream.

Spark's checkpoint stores the next offset of each partition by id. A partition without an entry is at its beginning, so
that new partitions are read from there. The same range always returns the same events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from penstock.connector.database_url import Conninfo, RetryingConnection
from penstock.connector.log_session import open_log
from penstock.connector.options import ReadOptions
from penstock.connector.read.data_loss import LostRange, handle_loss
from penstock.connector.read.offsets import PartitionOffsets, QueueOffsets
from penstock.connector.read.pushdown import EventFilter, count_hash_partitions
from penstock.connector.read.task_ranges import TaskRanges, limit_offsets, make_tasks, resolve_offset_spec
from penstock.connector.read.task_reader import TaskReader
from penstock.core.errors import GroupBusy, InvalidRequest
from penstock.db.statements import Statements
from penstock.log.groups import PartitionPosition

if TYPE_CHECKING:
    import pyarrow as pa


_sql = Statements("penstock.connector.read", "offsets.sql")
_groups = Statements("penstock.log", "groups.sql")


class GroupProgress:
    """Publishes the position of a stream as that of a group. The stream itself continues from its checkpoint."""

    def __init__(self, database: Conninfo, queues: tuple[str, ...], name: str) -> None:
        self._database = database
        self._queues = queues
        self._name = name

    def subscribe(self) -> None:
        """Create the group if it does not exist."""
        asyncio.run(self._subscribe())

    async def _subscribe(self) -> None:
        async with open_log(self._database) as log:
            for name in self._queues:
                group = await log.consumer_groups.subscribe(await log.queue(name), self._name)
                if group.query_id is not None:
                    raise GroupBusy(
                        f"group {self._name!r} of queue {name!r} belongs to the query {group.query_id!r}: choose "
                        "another name for the option 'group'"
                    )

    def find_ids(self, conn: psycopg.Connection[Any], offsets: QueueOffsets) -> dict[int, int]:
        """Return the id of the group by the id of the queue."""
        ids = {}
        for queue_id in offsets.names:
            row = conn.execute(_sql["group"], {"queue": queue_id, "name": self._name}).fetchone()
            if row is not None:
                (ids[queue_id],) = row
        return ids

    def publish(self, conn: psycopg.Connection[Any], offsets: QueueOffsets, next_offsets: Mapping[int, int]) -> None:
        """Move the group forward to these offsets. It never moves back."""
        open_segments = {partition.queue_id: partition.open_segment for partition in offsets.partitions().values()}
        for queue_id, group_id in self.find_ids(conn, offsets).items():
            if queue_id in open_segments:
                with conn.transaction():
                    self._move(conn, queue_id, open_segments[queue_id], group_id, next_offsets)

    def _move(
        self,
        conn: psycopg.Connection[Any],
        queue_id: int,
        open_segment: int,
        group_id: int,
        next_offsets: Mapping[int, int],
    ) -> None:
        params = {"group": group_id, "skew": timedelta()}
        conn.execute(_groups["lock_group"], params)
        conn.execute(_groups["lock_group_cursors"], params)
        self._lock_positions(conn, params)
        rows = conn.execute(_groups.table("group_positions", queue_id, open_segment), params).fetchall()
        positions = [PartitionPosition(*row) for row in rows]
        targets = {
            each.partition_id: max(each.next_offset, next_offsets.get(each.partition_id, 0)) for each in positions
        }
        moved = [each.partition_id for each in positions if targets[each.partition_id] > each.next_offset]
        if moved:
            moves = {"partitions": moved, "offsets": [targets[partition_id] for partition_id in moved]}
            conn.execute(_groups["move_positions"], {**params, **moves})
        unread_epochs = [each.epoch for each in positions if targets[each.partition_id] < each.end_offset]
        newest_epoch = max((each.epoch for each in positions), default=0)
        conn.execute(_groups["set_epoch"], {"group": group_id, "epoch": min(unread_epochs, default=newest_epoch)})
        conn.execute(_groups["record_activity"], params)

    def _lock_positions(self, conn: psycopg.Connection[Any], params: Mapping[str, Any]) -> None:
        """Lock all positions of the group. A position that moves while the statement waits is not locked."""
        while (row := conn.execute(_groups["lock_positions"], params).fetchone()) is not None:
            locked, total = row
            if locked == total:
                return


#: How long latestOffset waits for new events. Short, because the query may have other sources.
_WAIT_SECONDS = 0.2


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in a Python process of the driver, which runs as long as the stream, and reads in the tasks."""

    def __init__(self, options: ReadOptions, task_reader: TaskReader) -> None:
        self._options = options
        self._task_reader = task_reader
        self._connection = RetryingConnection(task_reader.database)
        self._group = (
            None if options.group is None else GroupProgress(task_reader.database, options.queues, options.group)
        )
        self._is_subscribed = False
        #: The end of a run with the trigger availableNow.
        self._target: dict[int, int] | None = None
        self._last_partitions: dict[int, PartitionOffsets] | None = None
        #: Losses that were handled.
        self._known_losses: set[LostRange] = set()

    def initialOffset(self) -> dict[str, int]:
        """Return the start of a stream without a checkpoint."""
        return self._connection.run(self._start)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._options.max_records is None else ReadMaxRows(self._options.max_records)

    def prepareForTriggerAvailableNow(self) -> None:
        """Store the current end of the queue."""
        self._target = _ends(self._connection.run(self._partitions))

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return the end of the next batch; ``start`` if there are no new events."""
        starts = _decode(start)
        self._subscribe(starts)
        ends = self._connection.run(lambda conn: self._advance(conn, starts, limit))
        if ends == starts and self._target is None:
            self._connection.wait_for_push(_WAIT_SECONDS)
            ends = self._connection.run(lambda conn: self._advance(conn, starts, limit))
        return start if ends == starts else _encode(ends)

    def reportLatestOffset(self) -> dict[str, int] | None:
        """Return the end of the queue as of the last batch, from which Spark computes the lag."""
        return None if self._last_partitions is None else _encode(_ends(self._last_partitions))

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        starts, ends = _decode(start), _decode(end)
        return self._connection.run(lambda conn: self._plan(conn, starts, ends))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TaskRanges)  # noqa: S101 - partitions() returns these
        return self._task_reader.read(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Move the group to the end of a batch that Spark has completed."""
        self._publish(_decode(end))

    def stop(self) -> None:
        self._connection.close()

    def _offsets(self, conn: psycopg.Connection[Any]) -> QueueOffsets:
        return QueueOffsets(conn, self._options.queues)

    def _partitions(self, conn: psycopg.Connection[Any]) -> dict[int, PartitionOffsets]:
        return self._offsets(conn).partitions()

    def _start(self, conn: psycopg.Connection[Any]) -> dict[str, int]:
        offsets = self._offsets(conn)
        partitions = offsets.partitions()
        return _encode(resolve_offset_spec(offsets, "startingOffsets", self._options.starting, partitions, "earliest"))

    def _advance(self, conn: psycopg.Connection[Any], starts: dict[int, int], limit: ReadLimit) -> dict[int, int]:
        partitions = self._last_partitions = self._partitions(conn)
        self._check_loss(partitions, starts)
        # After a restore from a backup, a partition may end before the stream's position.
        current = {
            id_: min(max(starts.get(id_, 0), partition.first), partition.end) for id_, partition in partitions.items()
        }
        target = _ends(partitions) if self._target is None else self._target
        ends = {id_: max(current[id_], min(partition.end, target.get(id_, 0))) for id_, partition in partitions.items()}
        if _without_zeros(ends) == _without_zeros(starts):
            return starts
        return ends if isinstance(limit, ReadAllAvailable) else limit_offsets(current, ends, partitions, _rows(limit))

    def _check_loss(self, partitions: Mapping[int, PartitionOffsets], starts: Mapping[int, int]) -> None:
        """Handle offsets that were deleted, or that belong to another queue of the same name."""
        lost = [
            LostRange(id_, starts.get(id_, 0), partition.first)
            for id_, partition in partitions.items()
            if starts.get(id_, 0) < partition.first
        ]
        for id_, offset in starts.items():
            end = partitions[id_].end if id_ in partitions else 0
            if offset > end:
                lost.append(LostRange(id_, end, offset))
        self._handle_loss(lost)

    def _handle_loss(self, lost: Sequence[LostRange]) -> None:
        """Fail, or log a warning once per loss: Spark plans the same range more than once."""
        new = [each for each in lost if each not in self._known_losses]
        handle_loss(new, ", ".join(self._options.queues), fail=self._options.fail_on_loss)
        self._known_losses.update(new)

    def _plan(
        self, conn: psycopg.Connection[Any], starts: Mapping[int, int], ends: Mapping[int, int]
    ) -> Sequence[InputPartition]:
        offsets = self._offsets(conn)
        partitions = offsets.partitions()
        group_ids = {} if self._group is None else self._group.find_ids(conn, offsets)
        lost = [
            LostRange(id_, starts.get(id_, 0), stop)
            for id_, stop in ends.items()
            if id_ not in partitions and starts.get(id_, 0) < stop
        ]
        event_filter, counts = EventFilter(keys=self._options.keys), count_hash_partitions(partitions)
        ranges = {
            id_: (starts.get(id_, 0), min(ends[id_], partition.end))
            for id_, partition in partitions.items()
            if id_ in ends and event_filter.may_match(partition, offsets.names[partition.queue_id], counts)
        }
        resolved, deleted = offsets.resolve(partitions, ranges, group_ids)
        self._handle_loss([*lost, *deleted])
        return make_tasks(resolved, offsets.names, self._options.min_partitions)

    def _subscribe(self, starts: Mapping[int, int]) -> None:
        if self._group is not None and not self._is_subscribed:
            self._group.subscribe()
            self._is_subscribed = True
            self._publish(starts)

    def _publish(self, positions: Mapping[int, int]) -> None:
        group = self._group
        if group is not None:
            self._connection.run(lambda conn: group.publish(conn, self._offsets(conn), positions))


def _rows(limit: ReadLimit) -> int:
    if not isinstance(limit, ReadMaxRows):
        raise InvalidRequest(f"a queue can be read up to a number of events, not by {type(limit).__name__}")
    return limit.max_rows


def _ends(partitions: Mapping[int, PartitionOffsets]) -> dict[int, int]:
    return {partition_id: partition.end for partition_id, partition in partitions.items()}


def _decode(offset: Mapping[str, int]) -> dict[int, int]:
    return {int(partition_id): next_offset for partition_id, next_offset in offset.items()}


def _encode(offsets: Mapping[int, int]) -> dict[str, int]:
    """Return offsets as Spark stores them, sorted, so that equal offsets have equal texts."""
    return {str(partition_id): offset for partition_id, offset in sorted(_without_zeros(offsets).items())}


def _without_zeros(offsets: Mapping[int, int]) -> dict[int, int]:
    """Return offsets without those of partitions at their beginning, which are the default."""
    return {partition_id: offset for partition_id, offset in offsets.items() if offset}

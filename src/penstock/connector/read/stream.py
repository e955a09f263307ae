"""``spark.readStream.format("penstock").option("queue", ...)``: a queue as a stream, with Spark's own checkpoint.

The offset that Spark keeps has the next offset of each partition by its number; partitions that are not in it are at
their beginning, so that new lanes are read from there. Asked for the same range again it gives the same events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from penstock.connector.options import Read
from penstock.connector.read.group_progress import Standing
from penstock.connector.read.offsets import Head, Lost, Places
from penstock.connector.read.pushdown import Wanted, hash_counts
from penstock.connector.read.ranges import Ranges, edge_offsets, limited, lose, tasks
from penstock.connector.read.task_reader import Task
from penstock.connector.retrying_connection import Line
from penstock.core.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

#: How long Spark is kept waiting before it is told that there is nothing new. Short: it may have other sources.
_WAIT_SECONDS = 0.2


class QueueStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in a Python process of the driver's that lasts as long as the stream, reads in the tasks'."""

    def __init__(self, read: Read, task: Task) -> None:
        self._read = read
        self._task = replace(task, keys=read.keys)
        self._line = Line(task.database)
        self._standing = None if read.group is None else Standing(task.database, read.queues, read.group)
        self._is_subscribed = False
        #: Where a run that reads what is there ends.
        self._target: dict[int, int] | None = None
        self._seen: dict[int, Head] | None = None
        #: What was said to be lost.
        self._missed: set[Lost] = set()

    def initialOffset(self) -> dict[str, int]:
        """Where a stream without a checkpoint begins."""
        return self._line.ask(self._begin)

    def getDefaultReadLimit(self) -> ReadLimit:
        """As many events as the option says."""
        return ReadAllAvailable() if self._read.max_records is None else ReadMaxRows(self._read.max_records)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note where the queue ends now."""
        self._target = {p: head.end for p, head in self._line.ask(self._heads).items()}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """How far the next batch goes; the start, when there is nothing new."""
        begun = _parsed(start)
        self._subscribe(begun)
        reached = self._line.ask(lambda conn: self._advance(conn, begun, limit))
        if reached == begun and self._target is None:
            self._line.wait(_WAIT_SECONDS)
            reached = self._line.ask(lambda conn: self._advance(conn, begun, limit))
        return start if reached == begun else _spelt(reached)

    def reportLatestOffset(self) -> dict[str, int] | None:
        """Where the queue ended at the last look, for Spark to show how far behind it is."""
        return None if self._seen is None else _spelt({p: head.end for p, head in self._seen.items()})

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """The tasks of a batch."""
        begun, reached = _parsed(start), _parsed(end)
        return self._line.ask(lambda conn: self._plan(conn, begun, reached))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of one task."""
        assert isinstance(partition, Ranges)  # noqa: S101 - Spark hands out what partitions() gave
        return self._task.read(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Spark is done with what is before: tell those who look at the group."""
        self._publish(_parsed(end))

    def stop(self) -> None:
        """Let go of the connection."""
        self._line.close()

    def _places(self, conn: psycopg.Connection[Any]) -> Places:
        return Places(conn, self._read.queues)

    def _heads(self, conn: psycopg.Connection[Any]) -> dict[int, Head]:
        return self._places(conn).heads()

    def _begin(self, conn: psycopg.Connection[Any]) -> dict[str, int]:
        places = self._places(conn)
        heads = places.heads()
        if self._read.starting_time is not None:
            return _spelt(places.at(heads, self._read.starting_time))
        starts = edge_offsets("startingOffsets", self._read.starting, heads, "earliest")
        return _spelt(starts)

    def _advance(self, conn: psycopg.Connection[Any], begun: dict[int, int], limit: ReadLimit) -> dict[int, int]:
        heads = self._seen = self._heads(conn)
        self._check_loss(heads, begun)
        # What ends before where the stream stands, as after a restore from a backup, is gone on from at its end.
        here = {p: min(max(begun.get(p, 0), head.first), head.end) for p, head in heads.items()}
        target = {p: head.end for p, head in heads.items()} if self._target is None else self._target
        ends = {p: max(here[p], min(head.end, target.get(p, 0))) for p, head in heads.items()}
        if _moved(ends) == _moved(begun):
            return begun
        return ends if isinstance(limit, ReadAllAvailable) else limited(here, ends, heads, _rows(limit))

    def _check_loss(self, heads: dict[int, Head], begun: dict[int, int]) -> None:
        """Offsets that cannot be gone on from: dropped, or of another queue of the same name."""
        lost = [Lost(p, begun.get(p, 0), head.first) for p, head in heads.items() if begun.get(p, 0) < head.first]
        lost += [Lost(p, heads[p].end, offset) for p, offset in begun.items() if p in heads and offset > heads[p].end]
        lost += [Lost(p, 0, offset) for p, offset in begun.items() if p not in heads and offset]
        self._lose(lost)

    def _lose(self, lost: Sequence[Lost]) -> None:
        """Refuse to go on over gaps, or say how large they are, once: Spark asks more than once for the same."""
        new = [gap for gap in lost if gap not in self._missed]
        lose(new, ", ".join(self._read.queues), fail=self._read.fail_on_loss)
        self._missed.update(new)

    def _plan(
        self, conn: psycopg.Connection[Any], begun: dict[int, int], reached: dict[int, int]
    ) -> Sequence[InputPartition]:
        places = self._places(conn)
        heads = places.heads()
        groups = {} if self._standing is None else self._standing.ids(conn, places)
        lost = [Lost(p, begun.get(p, 0), stop) for p, stop in reached.items() if p not in heads]
        lost = [gap for gap in lost if gap.start < gap.stop]
        lanes = []
        wanted, counts = Wanted(keys=self._read.keys), hash_counts(heads)
        for queue, name in places.names.items():
            ranges = {
                p: (begun.get(p, 0), min(stop, heads[p].end))
                for p, stop in reached.items()
                if p in heads and heads[p].queue == queue and begun.get(p, 0) < min(stop, heads[p].end)
                if wanted.keeps(heads[p], name, counts)
            }
            found, gone = places.lanes(heads, ranges, groups.get(queue, 0))
            lanes += found
            lost += gone
        self._lose(lost)
        return tasks(lanes, places.names, self._read.min_partitions)

    def _subscribe(self, begun: dict[int, int]) -> None:
        if self._standing is not None and not self._is_subscribed:
            self._standing.subscribe()
            self._is_subscribed = True
            self._publish(begun)

    def _publish(self, offsets: dict[int, int]) -> None:
        standing = self._standing
        if standing is not None:
            self._line.ask(lambda conn: standing.publish(conn, self._places(conn), offsets))


def _rows(limit: ReadLimit) -> int:
    if not isinstance(limit, ReadMaxRows):
        raise InvalidRequest(f"a queue can be read up to a number of events, not by {type(limit).__name__}")
    return limit.max_rows


def _parsed(offset: dict[str, int]) -> dict[int, int]:
    return {int(partition): next_offset for partition, next_offset in offset.items()}


def _spelt(offsets: dict[int, int]) -> dict[str, int]:
    """As Spark keeps it: always in the same order, so that the same offsets are the same text."""
    return {str(partition): offset for partition, offset in sorted(_moved(offsets).items())}


def _moved(offsets: dict[int, int]) -> dict[int, int]:
    """Without the partitions that are at their beginning, as those are that nothing is known of."""
    return {partition: offset for partition, offset in offsets.items() if offset}

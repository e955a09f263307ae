"""Where the partitions of queues begin and end, and where a moment lies in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from penstock.core.errors import NotFound
from penstock.db.pg_arrays import numbers
from penstock.db.statements import Statements
from penstock.engine.plan import Lane, Stretch

_sql = Statements("penstock.connector.read", "offsets.sql")
_plan = Statements("penstock.engine.planning", "planner.sql")
_groups = Statements("penstock.log", "groups.sql")


@dataclass(frozen=True, slots=True)
class Head:
    """A partition: the offsets from ``first`` to before ``end`` are there, those before ``sealed_end`` in segments."""

    queue: int
    #: The queue's open segment.
    segment: int
    partition: int
    name: str
    is_lane: bool
    epoch: int
    sealed_end: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Lost:
    """Offsets of a partition that are no longer there."""

    partition: int
    start: int
    stop: int


class Places:
    """Looks up partitions. The queues are those of one reader."""

    def __init__(self, conn: psycopg.Connection[Any], queues: Sequence[str]) -> None:
        self._conn = conn
        self._queues = queues
        #: The names of the queues by their numbers, as of the last look.
        self.names: dict[int, str] = {}

    def heads(self) -> dict[int, Head]:
        """All partitions by number, those of older epochs first."""
        found: dict[int, Head] = {}
        self.names = {}
        for name in self._queues:
            for head in self._heads(name):
                found[head.partition] = head
        return found

    def queue(self, name: str) -> tuple[int, int]:
        """The number of a queue, and that of its open segment."""
        row = self._conn.execute(_sql["queue"], {"name": name}).fetchone()
        if row is None:
            raise NotFound(f"there is no queue {name!r}; create it with `penstock queue create {name}`")
        return row[0], row[1]

    def _heads(self, name: str) -> list[Head]:
        while True:
            queue, segment = self.queue(name)
            self.names[queue] = name
            try:
                rows = self._conn.execute(_sql.table("heads", queue, segment), {"queue": queue}).fetchall()
            except psycopg.errors.UndefinedTable:
                continue  # its segment was dropped since, or the queue as a whole, which the next look finds out
            return [Head(queue, segment, *head) for head in rows]

    def at(self, heads: Mapping[int, Head], moment: datetime) -> dict[int, int]:
        """The first offset of each partition that was appended at a moment or later; its end, if there is none."""
        found = {partition: head.end for partition, head in heads.items()}
        by_table: dict[tuple[int, int], list[int]] = {}
        for queue in {head.queue for head in heads.values()}:
            sealed = dict(self._conn.execute(_sql["segments_at"], {"queue": queue, "time": moment}).fetchall())
            for partition, head in heads.items():
                if head.queue == queue:
                    by_table.setdefault((queue, sealed.get(partition, head.segment)), []).append(partition)
        for (queue, segment), partitions in by_table.items():
            statement = _groups.table("offsets_at", queue, segment)
            params = {"partitions": partitions, "time": moment}
            for partition, offset in self._conn.execute(statement, params).fetchall():
                found[partition] = min(max(offset, heads[partition].first), heads[partition].end)
        return found

    def lanes(
        self, heads: Mapping[int, Head], ranges: Mapping[int, tuple[int, int]], group: int
    ) -> tuple[list[Lane], list[Lost]]:
        """The ranges as the tables hold them, and what of them is gone."""
        sealed = self._sealed(heads, ranges)
        lanes, lost = [], []
        for partition, (start, stop) in ranges.items():
            head = heads[partition]
            stretches = sealed.get(partition, [])
            if stop > head.sealed_end:
                stretches = [*stretches, Stretch(head.segment, max(start, head.sealed_end), stop)]
            lost += gaps(partition, start, stop, stretches)
            if stretches:
                lanes.append(Lane(partition, head.queue, group, head.name, head.is_lane, stretches))
        return lanes, lost

    def _sealed(self, heads: Mapping[int, Head], ranges: Mapping[int, tuple[int, int]]) -> dict[int, list[Stretch]]:
        some = {p: r for p, r in ranges.items() if r[0] < heads[p].sealed_end}
        if not some:
            return {}
        params = {
            "partitions": numbers(some),
            "starts": numbers(start for start, _ in some.values()),
            "stops": numbers(stop for _, stop in some.values()),
        }
        found: dict[int, list[Stretch]] = {}
        for partition, segment, first, end in self._conn.execute(_plan["stretches"], params).fetchall():
            start, stop = some[partition]
            # What was sealed since is in the open segment that was seen, by the same name.
            stop = min(stop, heads[partition].sealed_end, end)
            if max(start, first) < stop:
                found.setdefault(partition, []).append(Stretch(segment, max(start, first), stop))
        return found


def gaps(partition: int, start: int, stop: int, stretches: Iterable[Stretch]) -> list[Lost]:
    """What is missing between the stretches of a range."""
    lost = []
    for stretch in stretches:
        if stretch.start > start:
            lost.append(Lost(partition, start, stretch.start))
        start = max(start, stretch.stop)
    if start < stop:
        lost.append(Lost(partition, start, stop))
    return lost

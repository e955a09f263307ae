"""Deciding what the next cycle of a gated query brings to hand: of each lane about what can pass in a few seconds."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from penstock.db.pg_arrays import numbers
from penstock.db.statements import Statements
from penstock.engine.plan import Lane, Stretch
from penstock.engine.planning.planner import Planner, Planning, Seen

_sql = Statements("penstock.engine.gates", "release.sql")
_plan = Statements("penstock.engine.planning", "planner.sql")

#: No more than so many events are at hand, of all lanes together.
MOST_AT_HAND = 100_000
#: However much is at hand, so much is read for lanes of which there is nothing.
_LEAST_ROOM = 1_000
#: After so many full cycles in a row they may grow.
_FULL_CYCLES = 8
#: Of so many lanes it is remembered how far they were read, without a look at which are drained.
_MOST_READ = 10_000
#: What is at hand is looked after so often.
_LOOK_SECONDS = 0.25


@dataclass(frozen=True)
class GatedPlanning(Planning):
    """What the planner of a gated query is told."""

    #: How many events of a lane of which nothing is known yet are wanted at hand.
    wants: int = 1_000


class GatedPlanner(Planner):
    """Plans cycles that read ahead of the group's position."""

    def __init__(self, planning: GatedPlanning) -> None:
        super().__init__(planning)
        self._wants = planning.wants
        self._queues = {str(queue_id) for queue_id, _ in planning.groups}
        #: Up to where each lane was read, and by which cycle; and as it was before the last one.
        self._read: dict[int, tuple[int, int]] = {}
        self._before: dict[int, tuple[int, int] | None] = {}
        self._positions: dict[int, int] = {}
        #: How many lanes may be remembered before those of which nothing is at hand are forgotten.
        self._most_read = _MOST_READ
        self._fair = MOST_AT_HAND
        self._full = 0
        self._cycle: int | None = None

    def _lanes(self, seen: Seen) -> list[Lane]:
        self._settle()
        ((queue_id, group_id),) = self._planning.groups
        self._wake_lanes(group_id)
        row = self._conn.execute(_plan["queue"], {"queue": queue_id}).fetchone()
        if row is None:
            return []
        heads = self._conn.execute(_sql.table("heads", queue_id, row[1]), self._params(group=group_id)).fetchall()
        self._note(heads, group_id)
        found = [(queue_id, group_id, head) for head in self._unread(heads)]
        if not found:
            return []
        found, limit = self._narrowed(found, seen.suspects)
        room = min(limit, max(_LEAST_ROOM, MOST_AT_HAND - sum(self._at_hand(head[0]) for head in heads)))
        chosen = []
        # Those with the least at hand first, each as much as the others, so that all lanes begin to pass together.
        for place, (_, _, head) in enumerate(sorted(found, key=lambda each: self._at_hand(each[2][0]))):
            fair = -(-room // (len(found) - place))
            share = min(head[5] - head[4], self._wanted(head) - self._at_hand(head[0]), fair)
            if share > 0:
                chosen.append((head, share))
                room -= share
        sealed = self._stretches([(head, share) for head, share in chosen if head[4] < head[3]])
        lanes = []
        for head, share in chosen:
            partition_id, name, is_lane, sealed_end, start = head[:5]
            stretches = sealed.get(partition_id, [])
            if start + share > sealed_end:
                stretches = [*stretches, Stretch(row[1], max(start, sealed_end), start + share)]
            lanes.append(Lane(partition_id, queue_id, group_id, name, is_lane, stretches))
        return lanes

    def _adapt(self, now: float) -> None:
        """Grow cycles only for a backlog that lasts: the first large one takes seconds, and buckets run over then."""
        full = self._previous is not None and self._previous[1] >= self._limit * 0.9
        self._full = self._full + 1 if full else 0
        if self._full >= _FULL_CYCLES:
            super()._adapt(now)
        else:
            self._previous = None

    def _begin(self, lanes: list[Lane], alone: int = 0) -> int:
        cycle = super()._begin(lanes, alone)
        self._cycle, self._before = cycle, {lane.partition_id: self._read.get(lane.partition_id) for lane in lanes}
        self._read.update({lane.partition_id: (lane.stop, cycle) for lane in lanes})
        return cycle

    def _settle(self) -> None:
        """What a cycle has read is at hand, unless it failed: then it is to be read again."""
        if self._cycle is None:
            return
        row = self._conn.execute(_sql["is_taken"], self._params(cycle=self._cycle)).fetchone()
        if row is None or not row[0]:
            for partition, read in self._before.items():
                self._read.pop(partition, None)
                if read is not None:
                    self._read[partition] = read
        self._cycle, self._before = None, {}

    def _note(self, heads: list[Any], group_id: int) -> None:
        """Where the lanes stand. One that was sent or put back is read again; one that is drained begins there."""
        for partition, _, _, _, position, *_, put_back in heads:
            read = self._read.get(partition)
            if read is not None and (position < self._positions.get(partition, 0) or put_back >= read[1]):
                del self._read[partition]
        self._positions = now = {head[0]: head[4] for head in heads}
        self._fair = max(1, MOST_AT_HAND // max(1, len(now)))
        if len(self._read) > self._most_read:
            self._forget_drained(group_id)

    def _forget_drained(self, group_id: int) -> None:
        """Forget how far lanes were read of which nothing is at hand: not those that wait, and are."""
        params = self._params(group=group_id, partitions=numbers(list(self._read)))
        rows = self._conn.execute(_sql["positions"], params).fetchall()
        self._read = {
            lane: self._read[lane]
            for lane, position, put_back in rows
            if position < self._read[lane][0] and put_back < self._read[lane][1]
        }
        self._most_read = 2 * len(self._read) + _MOST_READ

    def _at_hand(self, partition: int) -> int:
        return max(0, self._upto(partition) - self._positions[partition])

    def _upto(self, partition: int) -> int:
        read = self._read.get(partition)
        return 0 if read is None else read[0]

    def _wanted(self, head: Any) -> int:
        """No more than its share: lanes that wait for long must not keep others from being read at all."""
        return min(int(head[8] or self._wants), self._fair)

    def _unread(self, heads: list[Any]) -> list[Any]:
        """The lanes of which too little is at hand; each from where it has not been read."""
        stops = self._planning.stops
        found = []
        for head in heads:
            start = max(head[4], self._upto(head[0]))
            end = head[5] if stops is None else min(head[5], stops.get(head[0], 0))
            if start < end and 2 * self._at_hand(head[0]) < self._wanted(head):
                found.append((*head[:4], start, end, *head[6:]))
        return found

    def _wake_lanes(self, group_id: int) -> None:
        """Take up lanes whose time has come and of which nothing is at hand."""
        rows = self._conn.execute(_sql["waking"], self._params()).fetchall()
        if not rows:
            return
        some = {"partitions": numbers([partition for (partition,) in rows])}
        with self._conn.transaction():
            self._conn.execute(_sql["lock_query"], self._params())
            self._conn.execute(_sql["wake"], self._params(**some))
            self._conn.execute(_sql["take_up"], {"group": group_id, **some})

    def _wait(self, seconds: float) -> None:
        """Wait for a push to the queue; what is appended to the sink concerns nobody here."""
        until = time.monotonic() + min(seconds, _LOOK_SECONDS)
        while (left := until - time.monotonic()) > 0:
            for notice in self._conn.notifies(timeout=left, stop_after=1):
                if notice.payload in self._queues:
                    return

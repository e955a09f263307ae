"""Plans the cycles of a gated query: of each partition about what its gates release in a few seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.db.pg_arrays import int_array
from penstock.db.statements import Statements
from penstock.engine.plan import CyclePlan, PartitionRange
from penstock.engine.planning.planner import Planner, PlannerConfig, UnreadPartition
from penstock.engine.planning.poison_search import PoisonSearch

_sql = Statements("penstock.engine.gates", "planner.sql")
_state = Statements("penstock.engine.gates", "gate_state.sql")

#: The release buffer holds at most so many events of all partitions together.
MAX_BUFFERED = 100_000
#: A full buffer still takes so many events of partitions that have none in it.
_MIN_ROOM = 1_000
#: Cycles grow after so many full ones in a row: the first large cycle takes seconds, in which buckets overflow.
_GROW_AFTER = 8
#: The buffer is checked this often for partitions that run low.
_REFILL_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True)
class GatedPlannerConfig(PlannerConfig):
    """What the planner of a gated query needs to know."""

    #: How many events to buffer of a partition whose consumption is not known yet.
    initial_buffer: int = 1_000
    #: The planner remembers the read positions of so many partitions before it drops those with an empty buffer.
    remembered_partitions: int = 10_000


class _ReadAhead(NamedTuple):
    """The offset up to which a partition was read into the buffer, and the cycle that read it."""

    offset: int
    cycle: int


class GatedPlanner(Planner):
    """Plans cycles that read ahead of the group's position, into the release buffer."""

    def __init__(self, config: GatedPlannerConfig) -> None:
        super().__init__(config, grow_after=_GROW_AFTER)
        self._initial_buffer = config.initial_buffer
        self._remembered = config.remembered_partitions
        self._max_remembered = config.remembered_partitions
        self.read_ahead: dict[int, _ReadAhead] = {}
        #: The same before the last cycle, to restore if it fails.
        self._read_before: dict[int, _ReadAhead | None] = {}
        self._positions: dict[int, int] = {}
        self._fair_share = MAX_BUFFERED

    def cycle_failed(self) -> None:
        for partition_id, read in self._read_before.items():
            self.read_ahead.pop(partition_id, None)
            if read is not None:
                self.read_ahead[partition_id] = read
        self._read_before = {}

    def _next_partitions(self, search: PoisonSearch | None) -> list[PartitionRange]:
        (group,) = self._config.groups
        self._resume_due_partitions(group.group_id)
        segment = self._open_segment(group.queue_id)
        if segment is None:
            return []
        heads = self._fetch_unread(_sql.table("unread_partitions", group.queue_id, segment), group)
        self._note_positions(heads, group.group_id)
        unread, limit = self._narrow(self._running_low(heads), search)
        buffered = sum(self._buffered(head.partition_id) for head in heads)
        room = min(limit, max(_MIN_ROOM, MAX_BUFFERED - buffered))
        chosen = []
        # Those with the fewest buffered events first, in equal shares, so that all partitions start together.
        for index, each in enumerate(sorted(unread, key=lambda each: self._buffered(each.partition_id))):
            fair = -(-room // (len(unread) - index))
            share = min(each.events, self._wanted(each) - self._buffered(each.partition_id), fair)
            if share > 0:
                chosen.append((each, share))
                room -= share
        return self._resolve(chosen)

    def _begin(self, partitions: list[PartitionRange], expired_rows: int = 0) -> CyclePlan:
        plan = super()._begin(partitions, expired_rows)
        self._read_before = {each.partition_id: self.read_ahead.get(each.partition_id) for each in partitions}
        self.read_ahead.update({each.partition_id: _ReadAhead(each.stop, plan.cycle) for each in partitions})
        return plan

    def _wait_for_push(self, seconds: float) -> bool:
        return super()._wait_for_push(min(seconds, _REFILL_SECONDS))

    def _note_positions(self, heads: Sequence[UnreadPartition], group_id: int) -> None:
        """Forget the read-ahead of partitions that were moved back or that were evicted."""
        for head in heads:
            read = self.read_ahead.get(head.partition_id)
            if read is not None and (
                head.next_offset < self._positions.get(head.partition_id, 0) or head.evicted_cycle >= read.cycle
            ):
                del self.read_ahead[head.partition_id]
        self._positions = {head.partition_id: head.next_offset for head in heads}
        self._fair_share = max(1, MAX_BUFFERED // max(1, len(heads)))
        if len(self.read_ahead) > self._max_remembered:
            self._forget_drained(group_id)

    def _forget_drained(self, group_id: int) -> None:
        """Forget the read-ahead of partitions that have nothing buffered; parked partitions with events keep theirs."""
        params = self._params(group=group_id, partitions=int_array(list(self.read_ahead)))
        self.read_ahead = {
            partition_id: self.read_ahead[partition_id]
            for partition_id, position, evicted_cycle in self._conn.execute(_sql["positions"], params)
            if position < self.read_ahead[partition_id].offset and evicted_cycle < self.read_ahead[partition_id].cycle
        }
        self._max_remembered = 2 * len(self.read_ahead) + self._remembered

    def _buffered(self, partition_id: int) -> int:
        return max(0, self._read_offset(partition_id) - self._positions[partition_id])

    def _read_offset(self, partition_id: int) -> int:
        read = self.read_ahead.get(partition_id)
        return 0 if read is None else read.offset

    def _wanted(self, partition: UnreadPartition) -> int:
        """How many events of a partition to buffer: at most its fair share, so that waiting ones leave room."""
        return min(partition.wanted or self._initial_buffer, self._fair_share)

    def _running_low(self, heads: Sequence[UnreadPartition]) -> list[UnreadPartition]:
        """The unread rest of partitions whose buffer is less than half full."""
        stops = self._config.stop_offsets
        low = []
        for head in heads:
            start = max(head.next_offset, self._read_offset(head.partition_id))
            end = head.end_offset if stops is None else min(head.end_offset, stops.get(head.partition_id, 0))
            if start < end and 2 * self._buffered(head.partition_id) < self._wanted(head):
                low.append(head._replace(next_offset=start, end_offset=end))
        return low

    def _resume_due_partitions(self, group_id: int) -> None:
        """Resume parked partitions whose time has come and that have nothing buffered."""
        rows = self._conn.execute(_sql["due_partitions"], self._params()).fetchall()
        if not rows:
            return
        partitions = int_array([partition_id for (partition_id,) in rows])
        with self._conn.transaction():
            self._conn.execute(_sql["lock_query"], self._params())
            self._conn.execute(_sql["clear_wake_times"], self._params(partitions=partitions))
            self._conn.execute(_state["resume"], {"group": group_id, "partitions": partitions})

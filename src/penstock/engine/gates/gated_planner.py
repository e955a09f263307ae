"""Plans the cycles of a gated query: of each partition about what its gates release in a few seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.db.pg_arrays import int_array
from penstock.db.statements import Statements
from penstock.engine.cycle_plan import PartitionRange
from penstock.engine.gates.release_buffer import BufferedPartition, ReleaseBuffer
from penstock.engine.planning.planner import Planner, PlannerConfig, UnreadPartition
from penstock.engine.planning.poison_search import PoisonSearch

_sql = Statements("penstock.engine.gates", "gated_planner.sql")
_state = Statements("penstock.engine.gates", "gate_state.sql")

#: The release buffer holds at most so many events of all partitions together.
MAX_BUFFERED = 100_000
#: A full buffer still takes so many events of partitions that have none in it.
_MIN_ROOM = 1_000
#: Cycles grow after so many full ones in a row: the first large cycle takes seconds, in which buckets overflow.
_GROW_AFTER = 8
#: The buffer is checked this often for partitions that run low.
_REFILL_SECONDS = 0.25


class GatedPlanner(Planner):
    """Plans cycles that read ahead of the group's position, into the release buffer.

    ``initial_buffer`` is how many events to buffer of a partition whose consumption is not known yet.
    """

    def __init__(self, config: PlannerConfig, buffer: ReleaseBuffer, initial_buffer: int) -> None:
        super().__init__(config, grow_after=_GROW_AFTER)
        self._buffer = buffer
        self._initial_buffer = initial_buffer

    def _next_partitions(self, search: PoisonSearch | None) -> list[PartitionRange]:
        (group,) = self._config.groups
        self._resume_due_partitions(group.group_id)
        # Before the positions are read: a partition that is not buffered has none that a release could still move.
        partitions = self._buffer.begin_cycle()
        heads = self._unread_partitions()
        buffered = {head.partition_id: _count_buffered(head, partitions) for head in heads}
        wanted = self._wanted(heads)
        low = [
            head._replace(next_offset=head.next_offset + buffered[head.partition_id])
            for head in heads
            if buffered[head.partition_id] < min(head.events, wanted[head.partition_id] / 2)
        ]
        unread, limit = self._narrow(low, search)
        room = min(limit, max(_MIN_ROOM, MAX_BUFFERED - sum(buffered.values())))
        chosen = []
        # Those with the fewest buffered events first, in equal shares, so that all partitions start together.
        for index, each in enumerate(sorted(unread, key=lambda each: buffered[each.partition_id])):
            fair = -(-room // (len(unread) - index))
            share = min(each.events, wanted[each.partition_id] - buffered[each.partition_id], fair)
            if share > 0:
                chosen.append((each, share))
                room -= share
        return self._resolve(chosen)

    def _wait_for_push(self, seconds: float) -> bool:
        return super()._wait_for_push(min(seconds, _REFILL_SECONDS))

    def _wanted(self, heads: Sequence[UnreadPartition]) -> dict[int, int]:
        """How many events of each partition to buffer: at most its fair share, so that waiting ones leave room."""
        params = self._params(partitions=int_array([head.partition_id for head in heads]))
        known = dict(self._conn.execute(_sql["wanted"], params).fetchall())
        fair_share = max(1, MAX_BUFFERED // max(1, len(heads)))
        return {
            head.partition_id: min(known.get(head.partition_id, self._initial_buffer), fair_share) for head in heads
        }

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


def _count_buffered(head: UnreadPartition, partitions: Mapping[int, BufferedPartition]) -> int:
    partition = partitions.get(head.partition_id)
    return 0 if partition is None else max(0, partition.read_end - head.next_offset)

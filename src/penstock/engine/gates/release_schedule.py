"""The times at which buffered partitions are due for their next release, by the database's clock."""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping

from penstock.engine.gates.release_buffer import BufferedPartition

#: The due time of a partition that only a change of its limits or an ack can release.
NEVER_US = 2**62
#: Outdated entries of the heap are removed once there are so many more entries than partitions.
_SLACK = 1_000
#: A larger difference means that one of the clocks was set.
_JUMP_US = 2_000_000
#: A response that arrives late makes the database's clock look slow, so the estimate decreases by small steps only.
_MAX_DECREASE_US = 1_000


def local_us() -> int:
    """Return the time of this process's monotonic clock, in microseconds."""
    return time.monotonic_ns() // 1000


class DatabaseClock:
    """The database's clock, as the offset from this process's monotonic clock.

    It is behind the database's clock until the first release corrects it. New partitions are due at time 0.
    """

    def __init__(self) -> None:
        self._offset_us = 0

    def now_us(self) -> int:
        return local_us() + self._offset_us

    def adjust(self, database_us: int, read_us: int) -> None:
        """Correct the clock by a time that was read from the database at ``read_us`` of the local clock."""
        offset_us = database_us - read_us
        if abs(offset_us - self._offset_us) <= _JUMP_US:
            offset_us = max(offset_us, self._offset_us - _MAX_DECREASE_US)
        self._offset_us = offset_us


class ReleaseSchedule:
    """A heap of due times. An entry is outdated if the partition is gone or has another due time by now."""

    def __init__(self, partitions: Mapping[int, BufferedPartition]) -> None:
        self._partitions = partitions
        self._heap: list[tuple[int, int]] = []

    @property
    def next_us(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def push(self, partition: BufferedPartition) -> None:
        heapq.heappush(self._heap, (partition.due_us, partition.partition_id))
        if len(self._heap) > 4 * len(self._partitions) + _SLACK:
            self._heap = [entry for entry in set(self._heap) if self._is_current(*entry)]
            heapq.heapify(self._heap)

    def pop_due(self, now_us: int, limit: int | None = None) -> dict[int, None]:
        """Remove and return the ids of partitions that are due, in the order of their due times."""
        due: dict[int, None] = {}
        while self._heap and self._heap[0][0] <= now_us and (limit is None or len(due) < limit):
            due_us, partition_id = heapq.heappop(self._heap)
            if self._is_current(due_us, partition_id):
                due[partition_id] = None
        return due

    def _is_current(self, due_us: int, partition_id: int) -> bool:
        partition = self._partitions.get(partition_id)
        return partition is not None and partition.due_us == due_us

"""The plan of a cycle: which offsets of which partitions each task reads, for which groups. The ledger stores it."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class SourceGroup:
    """A source queue of a query, and the query's consumer group on it."""

    queue: str
    queue_id: int
    group: str
    group_id: int


class SegmentRange(msgspec.Struct, array_like=True, frozen=True):
    """Offsets ``start`` to ``stop`` (exclusive) in the table of one segment."""

    segment: int
    start: int
    stop: int


class PartitionRange(msgspec.Struct, array_like=True, frozen=True):
    """The offsets that a cycle reads of one partition, and the partition's event times before the cycle."""

    partition_id: int
    queue_id: int
    group_id: int
    name: str
    #: True if the partition belongs to one key, whose name it has.
    is_keyed: bool
    segments: list[SegmentRange]
    #: The highest event time read so far.
    high_us: int | None = None
    #: Events before this time are late.
    floor_us: int | None = None

    @property
    def start(self) -> int:
        return self.segments[0].start

    @property
    def stop(self) -> int:
        return self.segments[-1].stop

    @property
    def events(self) -> int:
        return self.stop - self.start


class CyclePlan(msgspec.Struct, array_like=True, frozen=True):
    """Everything that a cycle reads. A plan without partitions only closes windows."""

    cycle: int
    #: One task reads a small cycle, with a Spark plan that is built once.
    is_small: bool
    partitions: list[PartitionRange]
    #: For each task, the indexes of its partitions.
    tasks: list[list[int]]
    #: In an outer join: how many expired rows that found no match the cycle emits.
    expired_rows: int = 0
    #: The time of the plan, by the clock of the database.
    time_us: int = 0
    #: In a view: rows of events that have not changed for its time to live expire.
    is_expiry: bool = False
    #: The watermark of all partitions together.
    closed_us: int | None = None
    #: In an outer join: the rows without a match are emitted up to this time and number. None if none was looked for.
    expired_until: tuple[int, int] | None = None

    @property
    def events(self) -> int:
        return sum(partition.events for partition in self.partitions)

    def partitions_of_task(self, task: int) -> list[PartitionRange]:
        return [self.partitions[index] for index in self.tasks[task]]


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(CyclePlan).decode


def assign_tasks(partitions: list[PartitionRange], tasks: int) -> list[list[int]]:
    """Assign partitions to tasks, balanced by events. A partition is never split, which keeps its order."""
    loads = [(0, task) for task in range(max(1, min(tasks, len(partitions))))]
    assigned: list[list[int]] = [[] for _ in loads]
    for index in sorted(range(len(partitions)), key=lambda i: -partitions[i].events):
        load, task = heapq.heappop(loads)
        assigned[task].append(index)
        heapq.heappush(loads, (load + partitions[index].events, task))
    return assigned

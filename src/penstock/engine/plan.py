"""A cycle's plan: which offsets of which partitions, in which tables, by which task. Stored in the ledger."""

from __future__ import annotations

import heapq

import msgspec


class Stretch(msgspec.Struct, array_like=True, frozen=True):
    """Offsets ``start`` to ``stop`` (not included) in one segment's table."""

    segment: int
    start: int
    stop: int


class Lane(msgspec.Struct, array_like=True, frozen=True):
    """What a cycle reads of one partition, and how far its time had come before."""

    partition_id: int
    queue_id: int
    group_id: int
    name: str
    is_lane: bool
    stretches: list[Stretch]
    high_us: int | None = None
    floor_us: int | None = None

    @property
    def start(self) -> int:
        """The first offset."""
        return self.stretches[0].start

    @property
    def stop(self) -> int:
        """The offset after the last."""
        return self.stretches[-1].stop


class CyclePlan(msgspec.Struct, array_like=True, frozen=True):
    """All that a cycle reads. A small one is read by one task; a plan without lanes only closes windows."""

    cycle: int
    is_small: bool
    lanes: list[Lane]
    #: The lanes of each task.
    tasks: list[list[int]]
    #: In a join that sends on what is in no pair: so many of those events at the most.
    alone: int = 0

    @property
    def events(self) -> int:
        """How many offsets it covers."""
        return sum(lane.stop - lane.start for lane in self.lanes)

    def lanes_of(self, task: int) -> list[Lane]:
        """What one task reads."""
        return [self.lanes[place] for place in self.tasks[task]]


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(CyclePlan).decode


def spread(lanes: list[Lane], tasks: int) -> list[list[int]]:
    """The lanes over so many tasks, as evenly as they allow; a lane is never split, so its order is kept."""
    loads = [(0, task) for task in range(max(1, min(tasks, len(lanes))))]
    spread: list[list[int]] = [[] for _ in loads]
    for place in sorted(range(len(lanes)), key=lambda i: lanes[i].start - lanes[i].stop):
        load, task = heapq.heappop(loads)
        spread[task].append(place)
        heapq.heappush(loads, (load + lanes[place].stop - lanes[place].start, task))
    return spread

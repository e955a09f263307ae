"""The fair queue serves all partitions of a shared gate, also if they do not fit into one release."""

from __future__ import annotations

import pytest

from penstock.engine.gates.allocation import Allocation, PartitionAllocation, PartitionDemand, allocate
from penstock.engine.gates.fair_queue import FairQueue
from penstock.engine.gates.limit_overrides import build_meter
from penstock.engine.gates.rate_limiters import LEVEL_UNITS, Limit, MeterState
from penstock.stream.gates import NANOS_PER_TOKEN as TOKEN

SECOND = 1_000_000


@pytest.mark.parametrize(("tokens", "is_uniform"), [(3, True), (25, True), (40, True), (7, False)])
def test_partitions_are_served_in_turn_in_several_batches(tokens: int, is_uniform: bool) -> None:
    costs = [1 if is_uniform or index % 7 else 5 for index in range(30)]
    limit = Limit("token_bucket", 50 * TOKEN, rate=tokens * TOKEN)
    queue, due, state, next_partition, now = FairQueue(10), set(range(1, 31)), MeterState(0), 0, 0
    got, deficits = dict.fromkeys(due, 0), dict.fromkeys(due, 0)
    for _ in range(3000):
        batch = queue.take_batch(due, got, now)
        if not batch:
            now, due = now + SECOND, set(got)
            batch = queue.take_batch(due, got, now)
        due = set()
        shared = build_meter(limit, state, now, 0)
        demands = [
            PartitionDemand(partition, 50, [costs[partition - 1] * TOKEN], [None], 1, deficits[partition])
            for partition in batch
        ]
        allocation = allocate(demands, [shared], next_partition, single_round=queue.has_more)
        next_partition, state = allocation.next_partition, shared.state() or state
        queue.apply(allocation, now)
        for demand in demands:
            allocated = allocation.partitions[demand.partition_id]
            got[demand.partition_id] += allocated.released * costs[demand.partition_id - 1]
            deficits[demand.partition_id] = demand.deficit
            if allocated.next_us is None:
                due.add(demand.partition_id)
    assert now > 400 * SECOND
    assert sum(got.values()) >= now // SECOND * tokens - 50
    assert max(got.values()) - min(got.values()) <= 20


def test_blocked_partitions_are_not_asked_during_a_reservation() -> None:
    limit = Limit("token_bucket", 5 * TOKEN, rate=TOKEN)
    partitions, queue, state, next_partition, now = range(1, 201), FairQueue(10), MeterState(0), 0, 0
    due_times, got, asked = dict.fromkeys(partitions, 0), dict.fromkeys(partitions, 0), 0
    while now < 400 * SECOND:
        due = {partition for partition, at in due_times.items() if at <= now}
        for partition in due:
            del due_times[partition]
        batch = queue.take_batch(due, got, now)
        if not batch:
            now = min([*due_times.values(), *([] if queue.next_us is None else [queue.next_us])])
            continue
        asked += len(batch)
        shared = build_meter(limit, state, now, 0)
        demands = [PartitionDemand(partition, 50, [TOKEN], [None]) for partition in batch]
        allocation = allocate(demands, [shared], next_partition, single_round=queue.has_more)
        next_partition, state = allocation.next_partition, shared.state() or state
        queue.apply(allocation, now)
        for partition, allocated in allocation.partitions.items():
            got[partition] += allocated.released
            if not allocated.blocked_by:
                due_times[partition] = now + 1
    assert sum(got.values()) >= 399
    assert max(got.values()) - min(got.values()) <= 1
    assert asked < 12 * 400 + 400, "a batch for each token, and each partition once to learn what it needs"


class SharedGate:
    """Partitions that share a token bucket, served like the release loop serves them."""

    def __init__(self, costs: dict[int, int], tokens: int, batch_size: int = 10) -> None:
        self.costs = costs
        self.state = MeterState(0, level=tokens * TOKEN * LEVEL_UNITS)
        self.limit = Limit("token_bucket", 100 * TOKEN, rate=TOKEN)
        self.queue, self.next_partition = FairQueue(batch_size), 0
        self.paused: set[int] = set()
        self.released = dict.fromkeys(costs, 0)

    def release(self, due: set[int], now_us: int) -> list[int]:
        """Release one batch, and return its partitions."""
        batch = self.queue.take_batch(due, self.costs, now_us)
        if not batch:
            return []
        shared = build_meter(self.limit, self.state, now_us, 0)
        demands = [PartitionDemand(n, 50, [self.costs[n] * TOKEN], [None], is_paused=n in self.paused) for n in batch]
        allocation = allocate(demands, [shared], self.next_partition, single_round=self.queue.has_more)
        self.next_partition, self.state = allocation.next_partition, shared.state() or self.state
        self.queue.apply(allocation, now_us)
        for partition, allocated in allocation.partitions.items():
            self.released[partition] += allocated.released
        return batch


def test_a_reservation_ends_at_once_when_its_partition_is_paused() -> None:
    gate = SharedGate({1: 90, 2: 1, 3: 1}, tokens=5)
    assert gate.release({1, 2, 3}, 0) == [1, 2, 3]
    assert (gate.queue.next_us, gate.queue.reserved_for) == (85 * SECOND, (1,))
    assert gate.release(set(), SECOND) == [], "no partition is asked during the reservation"
    gate.paused.add(1)
    assert gate.release({1}, SECOND) == [1]
    assert gate.release(set(), SECOND) == [2, 3]
    assert gate.released == {1: 0, 2: 3, 3: 3}


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_a_raised_shared_limit_is_used_at_once(partitions: int) -> None:
    gate = SharedGate(dict.fromkeys(range(1, partitions + 1), 1), tokens=0)
    for _ in range(5):
        assert len(gate.release(set(gate.costs), 0)) == partitions
    gate.state = MeterState(0, level=100 * TOKEN * LEVEL_UNITS)
    gate.release(set(gate.costs), 0)
    assert sum(gate.released.values()) == min(100, 50 * partitions), "the whole budget, in one release"
    assert gate.queue.has_more == (partitions == 3)


def test_the_end_of_a_reservation_unblocks_only_partitions_that_need_its_gate() -> None:
    queue = FairQueue(10)
    queue.take_batch({1, 2, 3, 4}, range(10), 0)
    blocked_by = {1: (0,), 2: (0,), 3: (1,), 4: (1,)}
    blocked = {partition: PartitionAllocation(0, 9, blocked_by=gates) for partition, gates in blocked_by.items()}
    queue.apply(Allocation(blocked, 1, (1, 3), {0: 9 * SECOND, 1: 60 * SECOND}), 0)
    assert queue.take_batch(set(), range(10), SECOND) == []
    assert queue.take_batch({1}, range(10), SECOND) == [1, 3]
    served = {1: PartitionAllocation(0), 3: PartitionAllocation(0, 9, blocked_by=(1,))}
    queue.apply(Allocation(served, 1, (3,), {1: 60 * SECOND}), SECOND)
    assert queue.take_batch(set(), range(10), SECOND) == [2, 3]
    queue.discard([4])
    assert not queue.has_more

"""Allocations compared with ideal limiters, for random arrivals, costs, limits, crashes, take-overs and clock jumps."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from penstock.engine.gates.allocation import PartitionAllocation, PartitionDemand, allocate
from penstock.engine.gates.limit_overrides import build_meter
from penstock.engine.gates.rate_limiters import Limit, MeterState
from penstock.stream.gates import NANOS_PER_TOKEN as TOKEN
from tests.engine.gates import ideal_limiter
from tests.engine.gates.ideal_limiter import Grant

SECOND = 1_000_000


@dataclass
class SimulatedPartition:
    """Events that arrive, and those that were released, with the state that the database stores at each commit."""

    arrivals: list[int]
    costs: list[list[int]]
    limits: list[Limit]
    released: list[int] = field(default_factory=list)
    states: list[MeterState | None] = field(default_factory=list)
    next_us: int | None = None

    def __post_init__(self) -> None:
        self.states = [None] * len(self.limits)

    def grants(self, gate: int) -> list[Grant]:
        return list(zip(self.released, self.costs[gate], strict=False))

    def release(self, now: int, *, crashes: bool = False) -> PartitionAllocation:
        """Allocate, and commit unless the driver is killed before."""
        first = len(self.released)
        arrived = sum(1 for at in self.arrivals if at <= now) - first
        meters = [build_meter(limit, state, now, 0) for limit, state in zip(self.limits, self.states, strict=True)]
        demand = PartitionDemand(1, max(0, arrived), [costs[first:] for costs in self.costs], meters)
        allocation = allocate([demand]).partitions[1]
        if not crashes:
            stamp = max([now, *self.released[-1:]])
            self.released += [stamp] * allocation.released
            if allocation.released:
                self.states = [meter.state() for meter in meters]
            self.next_us = allocation.next_us
        return allocation

    def ideal_time(self, index: int) -> int:
        """The earliest time at which the event could have been released, given the releases before it."""
        at = max([self.arrivals[index], *self.released[index - 1 : index]])
        for _ in self.limits:
            for gate, limit in enumerate(self.limits):
                grants, cost = self.grants(gate)[:index], self.costs[gate][index]
                if limit.kind == "token_bucket":
                    at = max(at, ideal_limiter.bucket_free_at(grants, limit.amount, limit.rate, cost, at))
                else:
                    at = max(at, ideal_limiter.window_free_at(grants, limit.amount, limit.window_us, cost, at))
        return at

    def respects_limits(self) -> bool:
        for gate, limit in enumerate(self.limits):
            if limit.kind == "token_bucket":
                if not ideal_limiter.respects_bucket(self.grants(gate), limit.amount, limit.rate):
                    return False
            elif not ideal_limiter.respects_window(self.grants(gate), limit.amount, limit.window_us):
                return False
        return True


def random_limit(chance: random.Random) -> Limit:
    amount = chance.choice([1, 2, 5, 10, 40]) * TOKEN + chance.choice([0, 0, 1, TOKEN // 3])
    if chance.random() < 0.5:
        return Limit(
            "token_bucket",
            amount,
            rate=chance.choice(
                [
                    TOKEN // 7,
                    TOKEN,
                    3 * TOKEN,
                    17 * TOKEN + 1,
                    200 * TOKEN,
                ]
            ),
        )
    return Limit("sliding_window", amount, window_us=chance.choice([1, 50_000, SECOND, 5 * SECOND]))


def random_partition(chance: random.Random) -> SimulatedPartition:
    limits = [random_limit(chance) for _ in range(chance.choice([1, 1, 2, 3]))]
    count = chance.randint(1, 30)
    arrivals, at = [], 0
    for _ in range(count):
        at += chance.choice([0, 0, 0, 1, 1000, SECOND // 3, 4 * SECOND])
        arrivals.append(at)
    costs = []
    for limit in limits:
        same = chance.random() < 0.4
        costs.append([min(TOKEN, limit.amount) if same else chance.randint(0, limit.amount) for _ in range(count)])
    return SimulatedPartition(arrivals, costs, limits)


@pytest.mark.parametrize("seed", range(8))
def test_all_events_are_released_in_order_within_two_releases_of_the_ideal_time(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(40):
        partition = random_partition(chance)
        period, now, releases = chance.choice([7_000, 100_000, 400_000]), 0, []
        while len(partition.released) < len(partition.arrivals):
            # As in the release loop: a release starts when an event may fit, takes some time, and some are lost.
            next_us = partition.next_us
            if next_us is None:
                next_us = min([at for at in partition.arrivals if at > now], default=now)
            waits = len(partition.released) or partition.next_us
            now = max(now + chance.randint(1, period), next_us if waits else 0)
            crashes = chance.random() < 0.1
            before = len(partition.released)
            partition.release(now, crashes=crashes)
            if not crashes:
                releases.append(now)
            for index in range(before, len(partition.released)):
                ideal = partition.ideal_time(index)
                slack = max([1 + limit.window_us // 1000 for limit in partition.limits])
                later = [at for at in releases if at >= ideal + slack]
                assert len(later) <= 2, (seed, index)
            assert len(releases) < 5_000
        assert partition.released == sorted(partition.released)
        assert partition.respects_limits(), seed


@pytest.mark.parametrize("seed", range(6))
def test_a_clock_that_jumps_never_releases_more_than_the_limit(seed: int) -> None:
    chance = random.Random(1000 + seed)
    for _ in range(40):
        partition = random_partition(chance)
        partition.arrivals = [0] * len(partition.arrivals)
        now = 1
        for _ in range(200):
            now = max(1, now + chance.choice([1, 1000, 100_000, SECOND, 30 * SECOND, -SECOND, -20 * SECOND]))
            partition.release(now, crashes=chance.random() < 0.2)
        assert partition.released == sorted(partition.released)
        assert partition.respects_limits(), seed


def test_next_us_is_the_first_microsecond_at_which_the_event_is_released() -> None:
    chance = random.Random(7)
    checked = 0
    for _ in range(150):
        partition = random_partition(chance)
        partition.arrivals = [0] * len(partition.arrivals)
        allocation, now = partition.release(1), 1
        while allocation.next_us is not None:
            checked += 1
            assert allocation.next_us > now
            assert partition.release(allocation.next_us - 1).released == 0, "a microsecond too early"
            now, before = allocation.next_us, len(partition.released)
            allocation = partition.release(now)
            assert len(partition.released) > before
        assert len(partition.released) == len(partition.arrivals)
    assert checked > 200


def test_the_long_run_rate_of_a_bucket_is_exact_for_any_release_times() -> None:
    chance = random.Random(3)
    limit, count = Limit("token_bucket", 200 * TOKEN, rate=100 * TOKEN), 5_000
    partition = SimulatedPartition([0] * count, [[TOKEN] * count], [limit])
    now = 0
    while len(partition.released) < count:
        now += chance.randint(1, 400_000)
        partition.release(now)
    ideal = (count - 200) * SECOND // 100
    assert ideal <= partition.released[-1] - partition.released[0] <= ideal + 800_000


def test_an_event_is_charged_to_all_gates_or_to_none() -> None:
    wide, narrow = (
        Limit("token_bucket", 10 * TOKEN, rate=TOKEN),
        Limit("sliding_window", 3 * TOKEN, window_us=SECOND),
    )
    partition = SimulatedPartition([0] * 20, [[TOKEN] * 20, [TOKEN] * 20], [wide, narrow])
    assert partition.release(0).released == 3
    bucket = build_meter(wide, partition.states[0], 0, 0)
    assert bucket.budget == 7 * TOKEN, "events that the window denies are not taken from the bucket"


def serve(weights: list[int], rounds: int, *, costs: list[int] | None = None, budget: int = 1) -> list[int]:
    """Release from a shared budget that never suffices, and return what each partition got."""
    limit = Limit("token_bucket", max(budget, *(costs or [1])) * TOKEN, rate=budget * TOKEN)
    state, next_partition, got, now = MeterState(0), 0, [0] * len(weights), 0
    deficits = [0] * len(weights)
    for _ in range(rounds):
        now += SECOND
        shared = build_meter(limit, state, now, 0)
        demands = [
            PartitionDemand(index + 1, 50, [(costs[index] if costs else 1) * TOKEN], [None], weight, deficits[index])
            for index, weight in enumerate(weights)
        ]
        allocation = allocate(demands, [shared], next_partition)
        next_partition, state = allocation.next_partition, shared.state() or state
        for index, demand in enumerate(demands):
            got[index] += allocation.partitions[index + 1].released * (costs[index] if costs else 1)
            deficits[index] = demand.deficit
    return got


def test_partitions_with_a_shared_budget_are_served_in_turn() -> None:
    assert serve([1, 1, 1, 1], 400) == [100, 100, 100, 100]


def test_a_partition_gets_its_weight_of_a_shared_budget() -> None:
    assert serve([1, 2, 5], 800) == [100, 200, 500]


def test_a_shared_budget_is_divided_by_cost_and_not_by_events() -> None:
    expensive, cheap = serve([1, 1], 1000, costs=[5, 1], budget=2)
    assert abs(expensive - cheap) <= 10
    assert expensive + cheap >= 1990


def test_a_shared_budget_is_reserved_for_an_expensive_event_when_it_is_its_turn() -> None:
    limit = Limit("token_bucket", 10 * TOKEN, rate=TOKEN)
    shared = build_meter(limit, MeterState(0), 3 * SECOND, 0)
    demands = [
        PartitionDemand(1, 50, [TOKEN], [None]),
        PartitionDemand(2, 1, [10 * TOKEN], [None]),
        PartitionDemand(3, 50, [TOKEN], [None]),
    ]
    allocation = allocate(demands, [shared], next_partition=2)
    assert (allocation.reserved_for, allocation.next_partition) == ((2,), 2)
    assert {each.next_us for each in allocation.partitions.values()} == {10 * SECOND}
    assert [each.released for each in allocation.partitions.values()] == [0, 0, 0]
    later = allocate(demands, [build_meter(limit, MeterState(0), 10 * SECOND, 0)], next_partition=2)
    assert later.partitions[2].released == 1


def test_a_reservation_blocks_only_events_that_need_the_gate() -> None:
    short = build_meter(Limit("token_bucket", 10 * TOKEN, rate=TOKEN), MeterState(0), 3 * SECOND, 0)
    ample = build_meter(Limit("token_bucket", 10 * TOKEN, rate=TOKEN), None, 3 * SECOND, 0)
    demands = [
        PartitionDemand(1, 1, [10 * TOKEN, TOKEN], [None, None]),
        PartitionDemand(2, 4, [0, TOKEN], [None, None]),
        PartitionDemand(3, 4, [[0, 0, TOKEN, 0], 0], [None, None]),
    ]
    allocation = allocate(demands, [short, ample])
    assert [each.released for each in allocation.partitions.values()] == [0, 4, 2]
    assert allocation.reserved_for == (1,)


def test_events_without_cost_do_not_use_up_the_turn_of_a_partition() -> None:
    shared = build_meter(Limit("token_bucket", 10 * TOKEN, rate=TOKEN), None, 0, 0)
    assert allocate([PartitionDemand(1, 3, [[0, 5 * TOKEN, 5 * TOKEN]], [None])], [shared]).partitions[1].released == 3


def test_a_partition_without_events_leaves_its_share_to_the_others() -> None:
    shared = build_meter(Limit("token_bucket", 10 * TOKEN, rate=TOKEN), None, 0, 0)
    counts = {1: 0, 2: 50, 3: 2}
    demands = [PartitionDemand(partition, count, [TOKEN], [None]) for partition, count in counts.items()]
    partitions = allocate(demands, [shared]).partitions
    assert [partitions[partition].released for partition in (1, 2, 3)] == [0, 8, 2]


def test_a_hold_releases_nothing_and_ends_with_an_empty_bucket() -> None:
    limit = Limit("token_bucket", 10 * TOKEN, rate=TOKEN)
    held = 30 * SECOND
    during = PartitionDemand(1, 5, [TOKEN], [build_meter(limit, None, SECOND, held)], held_until_us=held)
    assert allocate([during]).partitions[1] == PartitionAllocation(0, 31 * SECOND)
    after = PartitionDemand(1, 5, [TOKEN], [build_meter(limit, None, 32 * SECOND, held)])
    assert allocate([after]).partitions[1].released == 2


@pytest.mark.parametrize(
    "limit", [Limit("sliding_window", 10 * TOKEN, window_us=SECOND), Limit("concurrency", 10 * TOKEN)], ids=str
)
def test_a_hold_applies_to_gates_with_budget_left(limit: Limit) -> None:
    held = 30 * SECOND
    demand = PartitionDemand(1, 5, [TOKEN], [build_meter(limit, None, SECOND, held)], held_until_us=held)
    assert allocate([demand]).partitions[1] == PartitionAllocation(0, held)

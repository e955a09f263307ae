"""The search for poison events, simulated without Spark."""

from __future__ import annotations

import math
import random

import pytest

from penstock.engine.cycle_plan import CyclePlan, PartitionRange, SegmentRange
from penstock.engine.planning import poison_search
from penstock.engine.planning.poison_search import PoisonSearch

#: An event that is read, or an expired row of a join, with its number.
Item = tuple[str, int]


def run_search(events: int, expired: int, poison: set[Item]) -> tuple[set[Item], int]:
    """Simulate planner and driver: a cycle with a poison item fails. Returns the items given up, and the cycles."""
    read = emitted = cycles = 0
    search: PoisonSearch | None = None
    given_up: set[Item] = set()
    while read < events or emitted < expired:
        cycles += 1
        assert cycles < 1000
        only_expired = search is not None and bool(search.expired_rows) and emitted < expired
        suspected = {} if search is None else search.next_events([(1, read, events)])
        stop = read if only_expired else suspected.get(1, events)
        expired_limit = 0 if suspected and stop > read else expired
        if only_expired and search is not None:
            expired_limit = search.expired_rows
        partitions = [PartitionRange(1, 1, 1, "", False, [SegmentRange(1, read, stop)])] if stop > read else []
        plan = CyclePlan(cycles, True, partitions, [], expired_limit)
        emitting = min(expired_limit, expired - emitted)
        in_cycle = {("read", n) for n in range(read, stop)}
        in_cycle |= {("expired", n) for n in range(emitted, emitted + emitting)}
        if poison & in_cycle:
            search = poison_search.after_failure(search, plan, emitting)
            if not poison_search.is_guilty(search, plan):
                continue
            assert len(in_cycle) == 1
            given_up |= in_cycle
        read, emitted = stop, emitted + emitting
        search = None if search is None else poison_search.after_success(search, plan)
    assert search is None
    return given_up, cycles


@pytest.mark.parametrize("seed", range(30))
def test_all_poison_items_are_found_among_read_events_and_expired_rows(seed: int) -> None:
    chance = random.Random(seed)
    events, expired = chance.choice([(0, 1), (1, 1), (9, 0), (40, 25), (1, 300), (0, 64)])
    items: list[Item] = [("read", n) for n in range(events)] + [("expired", n) for n in range(expired)]
    poison = set(chance.sample(items, min(len(items), chance.randrange(1, 4))))
    given_up, cycles = run_search(events, expired, poison)
    assert given_up == poison
    assert cycles < 2 + len(poison) * 40


class Reader:
    """Simulates planner and driver over several partitions. A cycle with a poison event fails."""

    def __init__(self, events: dict[int, int], poison: set[tuple[int, int]]) -> None:
        self.events, self.poison = events, poison
        self.positions = dict.fromkeys(events, 0)
        self.search: PoisonSearch | None = None
        self.given_up: set[tuple[int, int]] = set()
        self.failed = self.cycles = 0

    def run_cycle(self) -> None:
        self.cycles += 1
        unread = [(p, start, self.events[p]) for p, start in self.positions.items() if start < self.events[p]]
        stops = {p: end for p, _, end in unread}
        if self.search is not None:
            stops = self.search.next_events(unread) or stops
        partitions = [
            PartitionRange(p, 1, 1, "", False, [SegmentRange(1, self.positions[p], stop)]) for p, stop in stops.items()
        ]
        plan = CyclePlan(self.cycles, True, partitions, [])
        read = {(p, offset) for p, stop in stops.items() for offset in range(self.positions[p], stop)}
        if read & self.poison:
            self.failed += 1
            self.search = poison_search.after_failure(self.search, plan)
            if not poison_search.is_guilty(self.search, plan, tries=1):
                return
            self.given_up |= read
        self.positions |= stops
        if self.search is not None:
            self.search = poison_search.decode(poison_search.encode(self.search))
            self.search = poison_search.after_success(self.search, plan)

    def run(self) -> None:
        while any(self.positions[p] < end for p, end in self.events.items()):
            assert self.cycles < 10_000
            self.run_cycle()
        assert self.search is None


@pytest.mark.parametrize("seed", range(100))
def test_one_poison_event_fails_as_many_cycles_as_a_bisection_has_steps(seed: int) -> None:
    chance = random.Random(seed)
    events = {p: chance.randrange(1, 500) for p in range(1, chance.randrange(2, 10))}
    partition = chance.choice(list(events))
    poison = {(partition, chance.randrange(events[partition]))}
    reader = Reader(events, poison)
    reader.run()
    steps = math.ceil(math.log2(sum(events.values())))
    assert reader.given_up == poison
    assert reader.failed <= steps + 1
    # After the event is found, cycles double until all suspected events have passed.
    assert reader.cycles <= 3 * steps + 3


@pytest.mark.parametrize("seed", range(30))
def test_adjacent_poison_events_fail_few_further_cycles(seed: int) -> None:
    chance = random.Random(seed)
    events = dict.fromkeys(range(1, 5), 500)
    start, partition = chance.randrange(480), chance.randrange(1, 5)
    poison = {(partition, offset) for offset in range(start, start + 16)}
    reader = Reader(events, poison)
    reader.run()
    assert reader.given_up == poison
    assert reader.failed <= 11 + 1 + 2 * 16


def test_partitions_that_passed_are_not_suspected_again() -> None:
    reader = Reader(dict.fromkeys(range(1, 9), 100), {(6, 50)})
    for _ in range(3):
        reader.run_cycle()
    assert reader.search is not None
    assert set(reader.search.failed) == {5, 6}
    assert reader.positions == {**dict.fromkeys(range(1, 5), 100), **dict.fromkeys(range(5, 9), 0)}


@pytest.mark.parametrize("seed", range(30))
def test_a_failure_that_passes_costs_no_event(seed: int) -> None:
    chance = random.Random(seed)
    reader = Reader({1: 300, 2: 200}, {(1, 7)})
    for _ in range(chance.randrange(1, 9)):
        reader.run_cycle()
    reader.poison = set()
    reader.run()
    assert reader.given_up == set()
    assert reader.cycles < 40


def test_events_that_are_given_up_for_different_reasons_or_not_in_a_row_are_their_own_fault() -> None:
    one, other = RuntimeError("Task 1 in stage 7.0 failed 4 times: killed"), RuntimeError("out of memory")
    verdicts = poison_search.GivenUpEvents()
    for _ in range(poison_search.MAX_GIVEN_UP):
        assert not verdicts.is_hopeless(one)
        verdicts.note(one)
    assert verdicts.is_hopeless(RuntimeError("Task 3 in stage 9.0 failed 4 times: killed"))
    assert not verdicts.is_hopeless(other)
    verdicts.clear()
    assert not verdicts.is_hopeless(one)

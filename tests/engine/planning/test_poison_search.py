"""The search for poison events, simulated without Spark."""

from __future__ import annotations

import random

import pytest

from penstock.engine.plan import CyclePlan, PartitionRange, SegmentRange
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
        limit = events if search is None or search.stops.get(1, 0) <= read else search.limit
        stop = read if only_expired else min(events, read + limit)
        is_narrowed = search is not None and read < search.stops.get(1, 0)
        expired_limit = 0 if is_narrowed and stop > read else expired
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

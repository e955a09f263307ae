"""Sessions equal the union of their events' intervals, for random events, partitions, cycles, runs and kills.

These tests run without Spark.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from penstock.engine.compile.windows.session_windows import late_events
from penstock.log.event import Event
from penstock.stream.time_rules import TimeRules, close_delay_us
from penstock.stream.windows import SessionWindow
from tests.engine.pipelines import T0, Bench, decoded
from tests.engine.pipelines import bench as benches
from tests.session_driver import SessionRunner, session_runner

#: The first cases, which take less than 15 seconds, and the parts of 2,000 cases that `make test-long` runs.
CASES = range(40)
LONG_PARTS = [range(first, first + 100) for first in range(0, 2_000, 100)]
SECOND = 1_000_000
NEVER_IDLE_US = 400 * 86_400 * SECOND * 10
#: Of three partitions, the first keys leave one empty, and the others use all.
KEYS: list[list[str | None]] = [["a", "b"], ["a", "b", "g"], ["a", "b", "c", "d", "g"], ["a", None]]
#: Key, start and end in seconds after T0, number of events and sum of amounts.
Session = tuple[str, int, int, int, int]


@pytest.fixture
def bench(database_url: str) -> Iterator[Bench]:
    with benches(database_url) as made:
        yield made


@pytest.fixture
def sessions(database_url: str) -> Iterator[SessionRunner]:
    with session_runner(database_url) as made:
        yield made


def split_late(events: Iterable[Event], gap: int, rules: TimeRules) -> tuple[list[Event], list[Event]]:
    """The events that count and the late ones. Only lower offsets of the same partition decide."""
    counted: list[Event] = []
    late: list[Event] = []
    highest: dict[int, int] = {}
    for event in sorted(events, key=lambda e: (e.partition_id, e.offset)):
        at = event.data["ts"]
        watermark = highest.get(event.partition_id, 0) - rules.lateness_us // SECOND
        is_late = at + gap + rules.grace_us // SECOND <= watermark
        (late if is_late and not event.is_redriven and rules.late != "include" else counted).append(event)
        highest[event.partition_id] = max(highest.get(event.partition_id, 0), at)
    return counted, late


def union(events: Iterable[Event], gap: int, key: str | None) -> list[Session]:
    """The union of the events' intervals."""
    result: list[Session] = []
    keyed = [(str(e.key if key is None else e.data[key]), e.data["ts"] - T0, e.data["amount"]) for e in events]
    for who, at, amount in sorted(keyed):
        if result and result[-1][0] == who and at < result[-1][2]:
            _, start, _, count, total = result.pop()
            result.append((who, start, at + gap, count + 1, total + amount))
        else:
            result.append((who, at, at + gap, 1, amount))
    return result


def stored(bench: Bench, query: str) -> list[Session]:
    """Closed and open sessions."""
    return sorted(
        (
            str(row["key"]),
            *(int(row[f"window_{edge}"].timestamp()) - T0 for edge in ("start", "end")),
            row["count"],
            total,
        )
        for row in bench.rows(query)
        for total in [int(row["total"])]
    )


def received(bench: Bench, queue: str) -> list[Session]:
    """The sessions of a consumer of the sink that follows the documented rules."""
    known: dict[tuple[str, int, int], tuple[int, int]] = {}
    for event in map(decoded, bench.events(queue)):
        edges = (datetime.fromisoformat(event[f"window_{edge}"]).timestamp() - T0 for edge in ("start", "end"))
        session: Any = (str(event["key"]), *map(int, edges))
        if "replaced_by" in event:
            assert known.pop(session) == (event["count"], int(event["total"]))
        else:
            known[session] = (event["count"], int(event["total"]))
    return sorted((*session, *values) for session, values in known.items())


def assert_disjoint(found: list[Session]) -> None:
    for before, after in pairwise(found):
        assert before[0] != after[0] or before[2] <= after[1], f"{before} and {after} overlap"


@pytest.mark.parametrize(
    "cases", [CASES, *(pytest.param(part, marks=pytest.mark.long) for part in LONG_PARTS)], ids=str
)
@pytest.mark.slow
def test_sessions_are_the_union_of_the_intervals_of_events(bench: Bench, sessions: SessionRunner, cases: range) -> None:
    for case in cases:
        check_case(bench, sessions, case)


def check_case(bench: Bench, sessions: SessionRunner, case: int) -> None:
    chance = random.Random(case)
    name, queue = f"q{case}", f"orders{case}"
    bench.queue(queue, partitions=chance.choice([1, 3]))
    bench.queue(f"{name}.out", partitions=1)
    gap, disorder = chance.choice([5, 10, 20, 40]), chance.choice([5, 20, 60])
    rules = TimeRules(
        event_time="ts",
        grace_us=chance.choice([0, 0, 3]) * SECOND,
        lateness_us=chance.choice([0, 5]) * SECOND,
        idle_flush_us=NEVER_IDLE_US,
        late=chance.choice(["include", "drop", "dead_letter"]),
    )
    key = chance.choice(["who", None])
    driver = sessions.create(name, queue, gap * SECOND, rules, by_field=key is not None)
    count, pace, keys = chance.randrange(5, 80), chance.choice([1, 4, 10]), chance.choice(KEYS)
    events = [
        (
            chance.choice(keys),
            {"ts": T0 + int(n * pace) - chance.randrange(disorder), "who": who, "amount": 2**n % 1_000_003},
        )
        for n in range(count)
        for who in [chance.choice("xy")]
    ]
    kills = chance if chance.random() < 0.5 else None
    runs = chance.choice([1, 1, 3, 6])
    for run in range(runs):
        bench.push(events[count * run // runs : count * (run + 1) // runs], queue)
        sessions.run(driver, max_events=chance.choice([2, 6, 20, 1000]), flush=False, chance=kills)
        assert_disjoint(stored(bench, name))
    _, late = split_late(bench.events(queue), gap, rules)
    if rules.late == "dead_letter":
        assert sorted(letter.data["amount"] for letter in bench.letters(queue)) == sorted(
            e.data["amount"] for e in late
        )
        if late and chance.random() < 0.5:
            assert bench.redrive(queue) == len(late)
    sessions.run(driver, max_events=chance.choice([4, 1000]), flush=True)

    counted, _ = split_late(bench.events(queue), gap, rules)
    expected = union(counted, gap, key)
    assert stored(bench, name) == expected, f"case {case}"
    assert received(bench, f"{name}.out") == expected, f"case {case}"


def test_an_event_that_overlaps_a_closed_session_after_a_repartition_is_late(
    bench: Bench, sessions: SessionRunner
) -> None:
    """The new partition of a key knows no event times yet."""
    bench.queue("orders", partitions=1)
    bench.queue("q.out", partitions=1)
    rules = TimeRules(event_time="ts", idle_flush_us=NEVER_IDLE_US)
    driver = sessions.create("q", "orders", 10 * SECOND, rules, by_field=False)

    def push(*seconds: int) -> None:
        bench.push([("k", {"ts": T0 + at, "who": "", "amount": at}) for at in seconds])
        sessions.run(driver, max_events=1, flush=False)

    push(1, 50)
    bench.penstock.queue("orders").repartition("hash", 3)
    push(5, 11, 45)

    assert [letter.data["amount"] for letter in bench.letters()] == [5]
    assert stored(bench, "q") == [("k", 1, 11, 1, 1), ("k", 11, 21, 1, 11), ("k", 45, 60, 2, 95)]
    assert bench.redrive() == 1
    sessions.run(driver, max_events=1000, flush=True)
    assert stored(bench, "q") == received(bench, "q.out") == [("k", 1, 21, 3, 17), ("k", 45, 60, 2, 95)]


def test_sessions_by_the_time_of_appending_close_at_their_end() -> None:
    assert close_delay_us([SessionWindow(5 * SECOND)], TimeRules(grace_us=2)) == 2
    # A clock or a flush has closed sessions up to the watermark.
    late = late_events(np.array([7, 8, 9]), np.array([10, 10, 10]), 5 * SECOND, TimeRules(grace_us=2))
    assert late.tolist() == [True, False, False]


def test_a_session_closes_when_no_event_in_time_can_reach_it() -> None:
    gap, rules = 5, TimeRules(event_time="ts", grace_us=2)
    watermark = np.full(100, 60)
    times = np.arange(100)
    in_time = times[~late_events(times, watermark, gap, rules)]
    last_closed_end = 60 - close_delay_us([SessionWindow(gap)], rules)
    assert in_time.min() == last_closed_end + 1

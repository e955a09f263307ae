"""Sessions equal those of an oracle, whatever the cycles are, also after restarts and with late events.

Set PENSTOCK_TEST_SESSION_EXAMPLES to run more examples.
"""

from __future__ import annotations

import os
import random
import zlib
from datetime import datetime
from typing import Any

import pytest

from penstock.stream.time_rules import TimeRules
from tests.engine.compile.windows.test_session_union import SECOND, split_late, union
from tests.engine.pipelines import NEVER_IDLE, T0, Bench, decoded, drivers_lost, stream

EXAMPLES = int(os.environ.get("PENSTOCK_TEST_SESSION_EXAMPLES", "2"))
GAP, GRACE = 4, 1
RULES: dict[str, Any] = {"event_time": "ts", "idle_flush_seconds": NEVER_IDLE}
#: Key, start and end in seconds after T0.
Window = tuple[str, float, float]


def received(bench: Bench) -> tuple[dict[tuple[Any, ...], tuple[int, int, int]], int]:
    """Count, total and revision of each session after applying the sink's events, and how many were replaced."""
    known: dict[tuple[Any, ...], tuple[int, int, int]] = {}
    replaced = 0
    for event in map(decoded, bench.events("totals")):
        window = (event["key"], *(datetime.fromisoformat(event[edge]) for edge in ("window_start", "window_end")))
        revision = event.get("revision", 0)
        assert revision > known.get(window, (0, 0, -1))[2], "the revision did not increase"
        if "replaced_by" in event:
            assert known.pop(window)[:2] == (event["n"], event["total"])
            replaced += 1
        else:
            known[window] = (event["n"], event["total"], revision)
    return known, replaced


def in_history(bench: Bench) -> dict[tuple[Any, ...], tuple[int, int, int]]:
    return {
        (row["key"], row["window_start"], row["window_end"]): (row["n"], int(row["total"]), row["revision"])
        for row in bench.rows()
    }


def after_t0(windows: dict[tuple[Any, ...], tuple[int, int, int]]) -> dict[Window, tuple[int, int]]:
    """Count and total of each session, by key and seconds after T0."""
    return {
        (key, start.timestamp() - T0, end.timestamp() - T0): (n, total)
        for (key, start, end), (n, total, _) in windows.items()
    }


def totals(made: Any, **rules: Any) -> Any:
    sessions = made.window_session(**{**RULES, **rules})
    return sessions.aggregate({"n": "count(*)", "total": "sum(amount)"}).to("totals")


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_sessions_equal_the_oracle_and_late_events_correct_them(bench: Bench, seed: int) -> None:
    chance = random.Random(seed)
    include = seed % 2 == 0
    bench.queue(partitions=2)
    # Some events are far behind.
    times = [n + chance.choice([0, 1, 2, 3, -12, -20, -25]) for n in range(45)]
    bench.push([(chance.choice("abc"), {"ts": T0 + at, "amount": 2**n % 1_000_003}) for n, at in enumerate(times)])
    rules = TimeRules("ts", grace_us=GRACE * SECOND, late="include" if include else "dead_letter")
    made = totals(stream(), gap=GAP, grace_seconds=GRACE, late=rules.late)
    with drivers_lost(chance, 0.15):
        bench.run(made, flush=False, max_events_per_cycle=15)
        if not include:
            _, rejected = split_late(bench.events("orders"), GAP, rules)
            assert sorted(letter.data["amount"] for letter in bench.letters()) == sorted(
                event.data["amount"] for event in rejected
            )
            assert bench.redrive() == len(rejected)
        bench.run(made, max_events_per_cycle=15)

    counted, _ = split_late(bench.events("orders"), GAP, rules)
    found = in_history(bench)
    assert after_t0(found) == {(key, *span): (n, total) for key, *span, n, total in union(counted, GAP, None)}
    known, replaced = received(bench)
    assert known == found
    assert replaced
    assert bench.letters() == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_sessions_with_a_global_watermark_are_the_union_of_all_events(bench: Bench, seed: int) -> None:
    chance = random.Random(seed)
    bench.queue(partitions=3)
    events = [
        (chance.choice("abg"), {"who": who, "ts": T0 + 3 * n + chance.choice([0, 1, -12, -25]), "amount": n})
        for n in range(40)
        for who in "xy"
    ]
    made = totals(stream().key_by("who"), gap=3, late="include")
    with drivers_lost(chance, 0.1):
        for cut in range(0, len(events), 20):
            bench.push(events[cut : cut + 20])
            bench.run(made, flush=cut + 20 >= len(events), max_events_per_cycle=7)

    found = in_history(bench)
    known, replaced = received(bench)
    assert known == found
    assert replaced
    expected = union(bench.events("orders"), 3, "who")
    assert after_t0(found) == {(key, *span): (n, total) for key, *span, n, total in expected}


def test_an_extended_session_is_open_again_if_another_partition_is_behind(bench: Bench) -> None:
    bench.queue(partitions=2)
    ahead, behind = (next(key for key in "abcdefgh" if zlib.crc32(key.encode()) % 2 == place) for place in (0, 1))
    made = totals(stream().key_by("who"), gap=10, late="include")

    def push(key: str, at: float, who: str = "x") -> None:
        bench.push([(key, {"ts": T0 + at, "amount": 1, "who": who})])

    push(ahead, 38)
    push(ahead, 100, "z")
    push(behind, 60, "z")
    bench.run(made, flush=False)
    # Late in its own partition. The extended session ends at 55, and sessions that end by 50 are closed.
    push(ahead, 45)
    bench.run(made, flush=False)
    assert [(row["key"], row["n"]) for row in bench.live() if row["key"] == "x"] == [("x", 2)]
    assert received(bench) == ({}, 1)
    push(behind, 52)
    bench.run(made)

    found = in_history(bench)
    assert after_t0(found) == {("x", 38, 62): (3, 3), ("z", 60, 70): (1, 1), ("z", 100, 110): (1, 1)}
    assert received(bench) == (found, 1)

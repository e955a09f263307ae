"""Sessions equal those of an oracle, whatever the cycles are, also after restarts and with late events.

Set PENSTOCK_TEST_SESSION_EXAMPLES to run more examples.
"""

from __future__ import annotations

import os
import random
import zlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest

from penstock.log.event import Event
from tests.engine.pipelines import NEVER_IDLE, T0, Bench, decoded, drivers_lost, stream

EXAMPLES = int(os.environ.get("PENSTOCK_TEST_SESSION_EXAMPLES", "2"))
GAP, GRACE = 4, 1
RULES: dict[str, Any] = {"event_time": "ts", "idle_flush_seconds": NEVER_IDLE}
#: Key, start and end in seconds after T0.
Window = tuple[str, float, float]


@dataclass
class OracleSession:
    start: float
    end: float
    amounts: list[int] = field(default_factory=list)


def oracle(events: list[Event], include: bool) -> tuple[dict[Window, list[int]], list[int]]:
    """The sessions of all events, processed in the order of their offsets, and the amounts of late events."""
    sessions: dict[str, list[OracleSession]] = {}
    late: list[int] = []
    highest: dict[int, float] = {}
    for event in sorted(events, key=lambda e: (e.partition_id, e.offset)):
        data = event.data
        at = data["ts"] - T0
        watermark = highest.get(event.partition_id, float("-inf"))
        highest[event.partition_id] = max(watermark, at)
        of_key = sessions.setdefault(str(event.key), [])
        overlapping = [session for session in of_key if session.start < at + GAP and at < session.end]
        joined = [session for session in overlapping if session.end + GRACE > watermark]
        if at + GAP + GRACE <= watermark:
            if not (include or event.is_redriven):
                late.append(data["amount"])
                continue
            joined = joined or overlapping
        ends = [(at, at + GAP), *((session.start, session.end) for session in joined)]
        amounts = [data["amount"], *(amount for session in joined for amount in session.amounts)]
        of_key[:] = [session for session in of_key if session not in joined]
        of_key.append(OracleSession(min(start for start, _ in ends), max(end for _, end in ends), amounts))
    return {(key, s.start, s.end): sorted(s.amounts) for key, of_key in sessions.items() for s in of_key}, late


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
    made = totals(stream(), gap=GAP, grace_seconds=GRACE, late="include" if include else "dead_letter")
    with drivers_lost(chance, 0.15):
        bench.run(made, flush=False, max_events_per_cycle=15)
        if not include:
            rejected = oracle(bench.events("orders"), include=False)[1]
            assert sorted(letter.data["amount"] for letter in bench.letters()) == sorted(rejected)
            assert bench.redrive() == len(rejected)
        bench.run(made, max_events_per_cycle=15)

    expected, _ = oracle(bench.events("orders"), include)
    found = in_history(bench)
    assert after_t0(found) == {window: (len(amounts), sum(amounts)) for window, amounts in expected.items()}
    known, replaced = received(bench)
    assert known == found
    assert replaced
    assert bench.letters() == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_each_event_is_in_one_session_with_a_global_watermark(bench: Bench, seed: int) -> None:
    chance = random.Random(seed)
    bench.queue(partitions=3)
    events = [
        (chance.choice("abcdef"), {"who": who, "ts": T0 + n / 2 + chance.choice([0, 3, -6, -12]), "amount": n})
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
    for who in "xy":
        mine = [(n, total) for (key, _, _), (n, total, _) in found.items() if key == who]
        assert (sum(n for n, _ in mine), sum(total for _, total in mine)) == (40, sum(range(40)))


def test_an_extended_session_is_open_again_if_another_partition_is_behind(bench: Bench) -> None:
    bench.queue(partitions=2)
    ahead, behind = (next(key for key in "abcdefgh" if zlib.crc32(key.encode()) % 2 == place) for place in (0, 1))
    made = totals(stream().key_by("who"), gap=10, late="include")

    def push(key: str, at: float, who: str = "x") -> None:
        bench.push([(key, {"ts": T0 + at, "amount": 1, "who": who})])

    push(ahead, 38)
    push(ahead, 100, "z")
    push(behind, 50, "z")
    bench.run(made, flush=False)
    # Late in its own partition. The extended session ends at 55, and the other partition is at 50.
    push(ahead, 45)
    bench.run(made, flush=False)
    assert [(row["key"], row["n"]) for row in bench.live() if row["key"] == "x"] == [("x", 2)]
    assert received(bench) == ({}, 1)
    push(behind, 52)
    bench.run(made)

    found = in_history(bench)
    assert after_t0(found) == {("x", 38, 62): (3, 3), ("z", 50, 60): (1, 1), ("z", 100, 110): (1, 1)}
    assert received(bench) == (found, 1)

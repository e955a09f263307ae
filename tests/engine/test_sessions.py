"""Sessions are the oracle's, however cycles fall and drivers are lost; so are those that late events correct.

PENSTOCK_TEST_SESSION_EXAMPLES asks for more examples than the few of a usual run.
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
#: Key, start and end, in seconds after T0.
Named = tuple[str, float, float]


@dataclass
class Span:
    start: float
    end: float
    amounts: list[int] = field(default_factory=list)


def oracle(events: list[Event], include: bool) -> tuple[dict[Named, list[int]], list[int]]:
    """The sessions of all events, each partition's in the order of its offsets, and the amounts of late events."""
    found: dict[str, list[Span]] = {}
    late: list[int] = []
    highest: dict[int, float] = {}
    for event in sorted(events, key=lambda e: (e.partition_id, e.offset)):
        data = event.data
        at = data["ts"] - T0
        bound = highest.get(event.partition_id, float("-inf"))
        highest[event.partition_id] = max(bound, at)
        spans = found.setdefault(str(event.key), [])
        near = [span for span in spans if span.start < at + GAP and at < span.end]
        joined = [span for span in near if span.end + GRACE > bound]
        if at + GAP + GRACE <= bound:
            if not (include or event.is_redriven):
                late.append(data["amount"])
                continue
            joined = joined or near
        ends = [(at, at + GAP), *((span.start, span.end) for span in joined)]
        amounts = [data["amount"], *(amount for span in joined for amount in span.amounts)]
        spans[:] = [span for span in spans if span not in joined]
        spans.append(Span(min(start for start, _ in ends), max(end for _, end in ends), amounts))
    return {(key, s.start, s.end): sorted(s.amounts) for key, spans in found.items() for s in spans}, late


def received(bench: Bench) -> tuple[dict[tuple[Any, ...], tuple[int, int, int]], int]:
    """What a reader of the sink knows who goes by the documentation, and how often one was replaced.

    That is count, total and revision of each session.
    """
    known: dict[tuple[Any, ...], tuple[int, int, int]] = {}
    replaced = 0
    for event in map(decoded, bench.events("totals")):
        window = (event["key"], *(datetime.fromisoformat(event[edge]) for edge in ("window_start", "window_end")))
        revision = event.get("revision", 0)
        assert revision > known.get(window, (0, 0, -1))[2], "a revision that is no later one"
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


def after_t0(windows: dict[tuple[Any, ...], tuple[int, int, int]]) -> dict[Named, tuple[int, int]]:
    """Count and total of each session, by key and seconds after T0."""
    return {
        (key, start.timestamp() - T0, end.timestamp() - T0): (n, total)
        for (key, start, end), (n, total, _) in windows.items()
    }


def totals(made: Any, **rules: Any) -> Any:
    sessions = made.window_session(**{**RULES, **rules})
    return sessions.aggregate({"n": "count(*)", "total": "sum(amount)"}).to("totals")


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_sessions_are_the_oracles_and_late_events_correct_them(bench: Bench, seed: int) -> None:
    chance = random.Random(seed)
    include = seed % 2 == 0
    bench.queue(partitions=2)
    # Now and then far behind.
    times = [n + chance.choice([0, 1, 2, 3, -12, -20, -25]) for n in range(45)]
    bench.push([(chance.choice("abc"), {"ts": T0 + at, "amount": 2**n % 1_000_003}) for n, at in enumerate(times)])
    made = totals(stream(), gap=GAP, grace_seconds=GRACE, late="include" if include else "dead_letter")
    with drivers_lost(chance, 0.15):
        bench.run(made, flush=False, max_events_per_cycle=15)
        if not include:
            refused = oracle(bench.events("orders"), include=False)[1]
            assert sorted(letter.data["amount"] for letter in bench.letters()) == sorted(refused)
            assert bench.redrive() == len(refused)
        bench.run(made, max_events_per_cycle=15)

    expected, _ = oracle(bench.events("orders"), include)
    found = in_history(bench)
    assert after_t0(found) == {window: (len(amounts), sum(amounts)) for window, amounts in expected.items()}
    known, replaced = received(bench)
    assert known == found
    assert replaced
    assert bench.letters() == []


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_each_event_is_in_one_session_also_where_all_partitions_close_them_together(bench: Bench, seed: int) -> None:
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


def test_a_closed_session_that_grows_is_open_again_if_a_partition_has_not_come_so_far(bench: Bench) -> None:
    bench.queue(partitions=2)
    ahead, behind = (next(key for key in "abcdefgh" if zlib.crc32(key.encode()) % 2 == place) for place in (0, 1))
    made = totals(stream().key_by("who"), gap=10, late="include")

    def push(key: str, at: float, who: str = "x") -> None:
        bench.push([(key, {"ts": T0 + at, "amount": 1, "who": who})])

    push(ahead, 38)
    push(ahead, 100, "z")
    push(behind, 50, "z")
    bench.run(made, flush=False)
    # Late in its own partition. What it makes of the session ends at 55, and the other partition has come to 50.
    push(ahead, 45)
    bench.run(made, flush=False)
    assert [(row["key"], row["n"]) for row in bench.live() if row["key"] == "x"] == [("x", 2)]
    assert received(bench) == ({}, 1)
    push(behind, 52)
    bench.run(made)

    found = in_history(bench)
    assert after_t0(found) == {("x", 38, 62): (3, 3), ("z", 50, 60): (1, 1), ("z", 100, 110): (1, 1)}
    assert received(bench) == (found, 1)

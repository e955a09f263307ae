"""Late events follow the stream's policy, and a redriven one corrects its window."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from tests.conditions import eventually
from tests.engine.pipelines import NEVER_IDLE, T0, Bench, stream

RULES: dict[str, Any] = {"event_time": "ts", "idle_flush_seconds": NEVER_IDLE}


def sums(**rules: Any) -> Any:
    made = stream().window_tumbling(seconds=10, **{**RULES, **rules})
    return made.aggregate({"n": "count(*)", "total": "sum(amount)"}).to("totals")


def at(second: float, amount: int = 1, key: str | None = "k") -> tuple[str | None, dict[str, Any]]:
    return key, {"ts": T0 + second, "amount": amount}


def results(bench: Bench) -> list[tuple[int, int, int, int]]:
    """Start of the window, count, total and revision."""
    return [
        (int(row["window_start"].timestamp()) - T0, row["n"], int(row["total"]), row["revision"])
        for row in bench.rows()
    ]


@pytest.mark.parametrize("late", ["dead_letter", "drop", "include"])
def test_late_policies(bench: Bench, late: str) -> None:
    bench.queue(partitions=1)
    bench.push([at(1), at(12), at(2, 100), at(13)])
    query = bench.run(sums(late=late), max_events_per_cycle=2)

    if late == "include":
        assert results(bench) == [(0, 2, 101, 1), (10, 2, 2, 0)]
        assert [(e["n"], e.get("revision")) for e in bench.emitted()] == [(1, None), (2, 1), (2, None)]
        assert bench.letters() == []
        return
    assert results(bench) == [(0, 1, 1, 0), (10, 2, 2, 0)]
    assert query.status.late == bench.ledger("late") == 1
    letters = bench.letters()
    if late == "drop":
        assert letters == []
        return
    (letter,) = letters
    assert (letter.data["amount"], letter.offset, letter.group) == (100, 2, "q")
    assert letter.error.startswith("late")
    assert bench.redrive() == 1
    bench.run(sums(late=late))
    assert results(bench) == [(0, 2, 101, 1), (10, 2, 2, 0)]
    assert [(int(e["total"]), e.get("revision")) for e in bench.emitted()] == [(1, None), (2, None), (101, 1)]
    assert bench.letters() == []


def test_grace_and_lateness_are_exact_to_the_microsecond(bench: Bench) -> None:
    rules = {"grace_seconds": 2, "allowed_lateness_seconds": 3}
    # The first window closes when an event of 15 s has been read: 10 s + 2 s <= 15 s - 3 s.
    cases = {
        "just before": [at(1), at(14.999999), at(2)],
        "exactly then": [at(1), at(15), at(2)],
    }
    bench.queue(partitions=1, partitioning="key")
    for key, events in cases.items():
        bench.push((key, data) for _, data in events)
    bench.run(sums(**rules), max_events_per_cycle=3)

    assert [letter.key for letter in bench.letters()] == ["exactly then"]
    assert {row["key"]: row["n"] for row in bench.rows() if row["window_start"].timestamp() == T0} == {
        "just before": 2,
        "exactly then": 1,
    }


def test_an_event_counts_in_those_of_its_windows_that_are_open(bench: Bench) -> None:
    bench.queue(partitions=1)
    # 8 s is late for the windows that end by 10 s (of 5 s: 5–10) and in time for 0–20.
    bench.push([at(1), at(12), at(8, 100), at(25), at(9, 1000)])
    made = stream().window_tumbling(seconds=5, **RULES).window_tumbling(seconds=20)
    bench.run(made.aggregate({"total": "sum(amount)"}).to("totals"))

    found = {
        tuple(int(row[f"window_{edge}"].timestamp()) - T0 for edge in ("start", "end")): int(row["total"])
        for row in bench.rows()
    }
    assert found == {(0, 5): 1, (10, 15): 1, (25, 30): 1, (0, 20): 102, (20, 40): 1}
    assert [letter.data["amount"] for letter in bench.letters()] == [1000]
    assert bench.ledger("late") == bench.ledger("dead") == 1


def test_the_clock_closes_windows_of_an_idle_partition(bench: Bench) -> None:
    bench.queue(partitions=1)
    with bench.running(sums(idle_flush_seconds=1)) as query:
        bench.push([at(1)])
        eventually(lambda: query.status.events_in == 1, "the first event")
        # Events without a time do not keep a partition busy.
        timeless = 0
        while query.status.windows == 0:
            bench.push([("k", {"amount": 1000})])
            timeless += 1
            eventually(lambda: query.status.events_in == 1 + timeless, "the event without a time")  # noqa: B023
            assert timeless < 1000, "the window does not close"
        bench.push([at(2, 100)])
        eventually(lambda: query.status.late == 1, "the late event")

    assert results(bench) == [(0, 1, 1, 0)]
    assert sorted(letter.data["amount"] for letter in bench.letters()) == [100] + [1000] * timeless


def test_events_after_a_flush_are_late(bench: Bench) -> None:
    bench.queue(partitions=1)
    bench.push([at(1)])
    bench.run(sums())
    bench.push([at(2, 100), at(11)])
    bench.run(sums())

    assert results(bench) == [(0, 1, 1, 0), (10, 1, 1, 0)]
    assert [letter.data["amount"] for letter in bench.letters()] == [100]


def test_windows_stay_open_after_a_stop_without_flush(bench: Bench) -> None:
    bench.queue(partitions=1)
    bench.push([at(1)])
    bench.run(sums(), flush=False)
    assert [(row["n"], row["key"]) for row in bench.live()] == [(1, "k")]
    assert [row["is_open"] for row in bench.rows()] == [True]
    bench.push([at(2, 100), at(11)])
    bench.run(sums())

    assert results(bench) == [(0, 2, 101, 0), (10, 1, 1, 0)]


def test_a_late_event_with_several_rows_is_one_dead_letter(bench: Bench) -> None:
    """Either all rows of an event are counted, or the event is a dead letter."""

    def halves(event: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"amount": 1}, {"amount": 2}]

    bench.queue(partitions=1)
    bench.push([at(1), at(12), at(2)])
    made = stream().flat_map(halves, returns={"amount": "bigint"}).window_tumbling(seconds=10, **RULES)
    bench.run(made.aggregate({"n": "count(*)", "total": "sum(amount)"}).to("totals"))

    assert results(bench) == [(0, 2, 3, 0), (10, 2, 3, 0)]
    assert len(bench.letters()) == 1
    assert bench.ledger("late") == bench.ledger("dead") == 1


def test_windows_without_a_key_wait_for_all_partitions(bench: Bench) -> None:
    bench.queue(partitions=2)
    while len({event.partition_id for event in bench.events("orders")}) < 2:
        bench.push([(None, at(1)[1])])
    before = bench.events("orders")
    # The watermark of one partition advances.
    ahead = max(before, key=lambda event: event.partition_id).partition
    bench.push([at(50, key=next(key for key in "abcdefgh" if str(zlib.crc32(key.encode()) % 2) == ahead))])
    bench.run(sums(), flush=False)

    assert {row["key"]: row["n"] for row in bench.live()}.get(None) == len(before)
    assert bench.emitted() == []


def test_open_windows_follow_their_key_after_a_repartition(bench: Bench) -> None:
    """They are not taken for closed windows of the new partition."""
    bench.queue(partitions=1)
    windows = stream().window_tumbling(seconds=10, **RULES)
    totals = windows.aggregate({"total": "sum(amount)"})
    folded = windows.reduce(lambda value, event: value + event["amount"], 0)
    bench.push([at(1, 1), at(2, 10, None)])
    for name, made in {"totals": totals, "folded": folded}.items():
        bench.run(made, name, flush=False)
    bench.penstock.queue("orders").repartition("hash", 3)
    # The same cycle adds to the windows and closes the one with a key.
    bench.push([at(3, 100), at(4, 1000, None), at(15, 10000)])
    for name, made in {"totals": totals, "folded": folded}.items():
        bench.run(made, name, flush=False)
        bench.run(made, name)

    found = [(row["key"], row["total"], row["revision"]) for row in bench.rows("totals")]
    assert found == [("k", 101, 0), (None, 1010, 0), ("k", 10000, 0)]
    assert [(row["key"], row["value"], row["revision"]) for row in bench.rows("folded")] == found

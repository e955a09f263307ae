"""An event whose text PostgreSQL cannot store becomes a dead letter, without a failed cycle."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from penstock import agg, token_bucket_gate
from tests.engine.failing_events.events import windowed
from tests.engine.pipelines import NEVER_IDLE, T0, Bench, stream


def _with_nul(count: int, poison: int) -> list[tuple[str, Any]]:
    """Events with a text each, of which one has a character that PostgreSQL cannot store."""
    return [
        (f"k{n % 7}", {"ts": T0 + n % 60, "amount": 1, "s": "a\0b" if n == poison else "ab", "o": {"s": "\0"}})
        for n in range(count)
    ]


_VALUES: dict[str, Any] = {
    "least": agg.min("s"),
    "one": agg.first("s"),
    "different": agg.count_distinct("s"),
    "top": agg.top_k("s", 3),
}


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda made: windowed(made, **_VALUES), id="aggregates"),
        pytest.param(lambda made: windowed(made.key_by("s")), id="key"),
        pytest.param(lambda made: windowed(made.map("ts, concat(s, '!') AS t").key_by("upper(t)")), id="computed key"),
        pytest.param(lambda made: windowed(made.map(lambda e: {**e, "t": [e["s"]] * 2}), t=agg.last("t")), id="map"),
        pytest.param(
            lambda made: made.key_by("s").window_session(gap=60, event_time="ts").aggregate({"n": "count(*)"}).to("t"),
            id="session",
        ),
        pytest.param(
            lambda made: made.key_by("s").window_tumbling(seconds=60).reduce(lambda n, event: n + 1, 0).to("t"),
            id="reduce",
        ),
        pytest.param(lambda made: made.to("copies", partition="s"), id="sink key"),
        pytest.param(lambda made: made.to("copies", partition=lambda event: event["s"]), id="sink key function"),
    ],
)
def test_text_that_cannot_be_stored_is_a_dead_letter_at_once(bench: Bench, make: Callable[[Any], Any]) -> None:
    bench.queue(partitions=4)
    bench.push(_with_nul(2_000, 1_234))
    query = bench.run(make(stream()))

    assert (query.status.failed_cycles, query.status.events_in) == (0, 2_000)
    (letter,) = bench.letters()
    assert letter.data["s"] == "a\0b"
    assert "U+0000" in letter.error


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda made: windowed(made.key_by("s")), id="key"),
        pytest.param(lambda made: windowed(made.key_by("s", "amount")), id="part of a key"),
        pytest.param(lambda made: windowed(made.filter("amount > 0").key_by("s")), id="key after a filter"),
        pytest.param(lambda made: windowed(made.key_by(lambda event: event["s"])), id="key function"),
        pytest.param(
            lambda made: made.key_by("s").window_session(gap=60, event_time="ts").aggregate({"n": "count(*)"}).to("t"),
            id="session",
        ),
    ],
)
def test_keys_that_are_too_long_for_an_index_are_dead_letters_at_once(bench: Bench, make: Callable[[Any], Any]) -> None:
    chance = random.Random(1)
    bench.queue(partitions=4)
    texts = [chance.randbytes(5_000).hex() if n % 50 == 7 else chance.randbytes(1_250).hex() for n in range(400)]
    bench.push([(f"k{n % 7}", {"ts": T0, "amount": 1, "s": text}) for n, text in enumerate(texts)])
    query = bench.run(make(stream()))

    assert (query.status.failed_cycles, query.status.events_in) == (0, 400)
    assert sorted(letter.data["s"] for letter in bench.letters()) == sorted(t for t in texts if len(t) == 10_000)
    assert all("a key may have up to 2,600 bytes; this one has 10,000" in letter.error for letter in bench.letters())
    assert len(bench.rows()) == 392


def test_a_long_text_of_which_a_part_is_the_key_is_no_dead_letter(bench: Bench) -> None:
    bench.queue(partitions=1)
    bench.push([("k", {"ts": T0, "amount": 1, "s": f"{n}" + "x" * 10_000}) for n in range(3)])
    query = bench.run(windowed(stream().map("ts, amount, left(s, 1) AS s").key_by("s")))

    assert (query.status.failed_cycles, bench.letters()) == (0, [])
    assert {row["key"] for row in bench.rows()} == {"0", "1", "2"}


@pytest.mark.parametrize("is_gated", [True, False])
def test_a_computed_key_that_no_event_can_have_is_a_dead_letter_at_once(bench: Bench, is_gated: bool) -> None:
    bench.queue(partitioning="key")
    bench.queue("copies", partitioning="key")
    texts = ["a", "long", "b", "nul", "c"]
    bench.push([(f"k{n}", {"n": n, "s": text}) for n, text in enumerate(texts)])
    made = stream().gate(token_bucket_gate(capacity=100, refill_per_sec=100)) if is_gated else stream()
    odd = "CASE s WHEN 'long' THEN repeat(s, 1000) WHEN 'nul' THEN char(0) ELSE s END"
    query = bench.run(made.to("copies", partition=odd))

    assert query.status.failed_cycles == 0
    assert sorted(event["s"] for event in bench.emitted("copies")) == ["a", "b", "c"]
    assert sorted(letter.error.partition(" key of the result ")[2][:20] for letter in bench.letters()) == [
        "may have up to 1024 ",
        "must not contain the",
    ]


def test_a_join_key_that_cannot_be_stored_is_a_dead_letter_at_once(bench: Bench) -> None:
    for name in ("orders", "payments"):
        bench.queue(name, partitions=2)
        bench.push(_with_nul(40, 7), name)
    rules: dict[str, Any] = {"event_time": "ts", "idle_flush_seconds": NEVER_IDLE}
    pairs = stream().join(stream("payments"), on="s", within=(60, 60), **rules)
    query = bench.run(pairs.map("left.amount AS a, right.amount AS b").to("pairs"))

    assert query.status.failed_cycles == 0
    assert query.status.events_out == 39 * 39
    assert [len(bench.letters(name)) for name in ("orders", "payments")] == [1, 1]


def test_text_that_is_not_stored_may_contain_any_character(bench: Bench) -> None:
    bench.queue(partitions=2)
    bench.push(_with_nul(50, 20))
    query = bench.run(windowed(stream().filter("s <> 'x'"), letters=agg.sum("length(s)")))
    assert query.status.failed_cycles == 0
    assert bench.letters() == []
    assert sum(row["letters"] for row in bench.rows()) == 101

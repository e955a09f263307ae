"""Events that cannot be read or do not fit the types of a query become dead letters; the others count."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from penstock import agg
from tests.engine.failing_events.events import good, windowed
from tests.engine.pipelines import T0, Bench, counted, stream


def test_what_does_not_fit_its_type_is_a_dead_letter_and_its_neighbours_count(bench: Bench) -> None:
    bad = {
        "field 'amount'": {"ts": T0, "amount": "many"},
        "true or false": {"ts": T0, "amount": True},
        "a list": [1, 2],
        "text (hello)": "hello",
        "a number (5)": 5,
        "null": None,
        "does not fit a decimal": {"ts": T0, "amount": Decimal("1e30")},
        "more than 18 digits": {"ts": T0, "amount": Decimal("0.1234567890123456789")},
        "has no time": {"amount": 1},
        "field 'ts'": {"ts": {"when": "now"}, "amount": 1},
        "outside the years": {"ts": -99_999_999_999, "amount": 1},
    }
    bench.queue(partitions=1)
    bench.push([*good(20), *(("k", data) for data in bad.values()), *good(20)])
    query = bench.run(counted(stream()).to("totals"))

    assert bench.by_key("n") == {"k": 40}
    letters = bench.letters()
    assert [letter.data for letter in letters] == [_as_float(data) for data in bad.values()]
    for part, letter in zip(bad, letters, strict=True):
        assert part in letter.error
        assert letter.stage == ("event time" if "time" in part or "years" in part else "parse")
        assert (letter.group, letter.attempts) == ("q", 1)
    assert (query.status.events_in, query.status.dead) == (51, 11)
    assert bench.ledger("dead") == 11

    # Sent back as they are, they fail again, and are known for what they are.
    assert bench.redrive() == len(bad)
    bench.run(counted(stream()).to("totals"))
    again = bench.letters()
    assert len(again) == len(bad)
    assert {letter.redrives for letter in again} == {1}
    assert bench.by_key("n") == {"k": 40}


def test_a_damaged_chunk_is_dead_letters_and_its_neighbours_count(bench: Bench) -> None:
    bench.queue(partitions=1)
    for _ in range(3):
        bench.push(good(10))
    flip = "set_byte(body, length(body) / 2, get_byte(body, length(body) / 2) # 255)"
    flipped = f"UPDATE penstock.chunks_1_1 SET body = {flip} WHERE end_offset = 20 RETURNING 1"  # noqa: S608
    assert bench.ask(flipped) == 1
    query = bench.run(counted(stream()).to("totals"))
    assert bench.by_key("n") == {"k": 20}
    letters = bench.letters()
    assert [(letter.offset, letter.stage, letter.data) for letter in letters] == [
        (offset, "damaged chunk", None) for offset in range(10, 20)
    ]
    assert "queue 'orders', partition 1: offsets 10 to 19 (table penstock.chunks_1_1)" in letters[0].error
    assert (query.status.events_in, query.status.dead) == (30, 10)

    # Restored and sent back, they count.
    assert bench.ask(flipped) == 1
    assert bench.redrive() == 10
    bench.run(counted(stream()).to("totals"))
    assert bench.by_key("n") == {"k": 30}


def test_members_of_an_object_that_nobody_reads_may_have_any_type(bench: Bench) -> None:
    bench.queue(partitions=1)
    odd: list[Any] = [[1, "a"], {"x": 1}, "text", None, [[1], {"y": 2}]]
    bench.push([("k", {"ts": T0, "o": {"amount": 1, "deep": {"n": 2, "tags": tags}, "tags": tags}}) for tags in odd])
    made = windowed(stream(), total=agg.sum("o.amount"), deep=agg.sum("o.deep.n + 1"))
    query = bench.run(made)

    assert bench.letters() == []
    assert query.status.failed_cycles == 0
    assert bench.by_key("total") == {"k": 5}
    assert bench.by_key("deep") == {"k": 15}


def _as_float(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: float(v) if isinstance(v, Decimal) else v for name, v in data.items()}
    return data

"""A failed event never stops its neighbours: it becomes a dead letter that says where and why."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext

from penstock import Context, agg, token_bucket_gate
from penstock.core.errors import RepeatedFailure
from penstock.engine.planning import poison_search
from tests.engine.pipelines import NEVER_IDLE, T0, Bench, counted, eventually, stream

#: As the callables of these tests are to be called again: at once.
AT_ONCE: dict[str, Any] = {"retry_pause_seconds": 0}


def good(count: int, key: str = "k") -> list[tuple[str, Any]]:
    return [(key, {"ts": T0 + i % 60, "amount": 1}) for i in range(count)]


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


def _as_float(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: float(v) if isinstance(v, Decimal) else v for name, v in data.items()}
    return data


def test_a_function_that_raises_for_some_events_costs_those_alone(bench: Bench) -> None:
    def shaky(event: dict[str, Any], ctx: Context) -> Any:
        match event.get("fate"):
            case "raise":
                raise ValueError("bad luck")
            case "once" if ctx.attempt == 0:
                raise ConnectionError("not yet")
            case "memory":
                return bytearray(1 << 60)
            case "set":
                return {**event, "amount": {1, 2}}
            case "nan":
                return {**event, "amount": float("nan")}
            case "misfit":
                return {**event, "amount": "much"}
            case "none":
                return None
        return event

    fates = ["raise", "once", "memory", "set", "nan", "misfit", "none"]
    bench.queue(partitions=1)
    bench.push([*good(50), *(("k", {"ts": T0, "amount": 1, "fate": fate}) for fate in fates), *good(50)])
    made = stream(schema={"amount": "decimal(38,18)"}).map(shaky, name="shaky", **AT_ONCE)
    bench.run(counted(made, event_time="ts").to("totals"))

    assert bench.by_key("n") == {"k": 101}
    letters = {letter.data["fate"]: letter for letter in bench.letters()}
    assert list(letters) == ["raise", "memory", "set", "nan", "misfit"]
    assert {letter.stage for letter in letters.values()} == {"shaky"}
    raised = letters["raise"]
    assert (raised.error, raised.attempts) == ("ValueError: bad luck", 4)
    assert raised.traceback is not None
    assert "in shaky" in raised.traceback
    assert "callables.py" not in raised.traceback
    assert (letters["memory"].attempts, letters["memory"].error[:11]) == (4, "MemoryError")
    assert "amount" in letters["misfit"].error


@pytest.mark.long  # one that exits is shown below, and how hanging becomes that in test_callables.py
def test_a_function_that_ends_or_hangs_its_worker_costs_one_event(bench: Bench) -> None:
    def fatal(event: dict[str, Any]) -> Any:
        fate = event.get("fate")
        if fate is not None and TaskContext.get() is not None:
            if fate == "exit":
                os._exit(3)
            if fate == "sys.exit":
                sys.exit(1)
            time.sleep(3600)
        return event

    bench.queue(partitions=1)
    fates = ["exit", "hang", "sys.exit"]
    bench.push([*good(3), *(("k", {"ts": T0, "amount": 1, "fate": fate}) for fate in fates), *good(3)])
    made = stream(schema={"ts": "bigint", "amount": "bigint"})
    made = made.map(fatal, name="fatal", timeout_seconds=1, **AT_ONCE)
    with bench.running(counted(made).to("totals")) as query:
        eventually(lambda: query.status.events_in == 9, "the end of the backlog")
        bench.push(good(1, "later"))
        eventually(lambda: query.status.events_in == 10, "life after them")
        query.stop(flush=True)

    assert bench.by_key("n") == {"k": 6, "later": 1}
    letters = bench.letters()
    assert [letter.data["fate"] for letter in letters] == fates
    for letter in letters:
        assert letter.attempts >= 3
        assert "every cycle with this event fails" in letter.error


def test_an_event_that_reduce_fails_for_leaves_nothing_in_the_value(bench: Bench) -> None:
    seen: list[int] = []

    def total(value: dict[str, int], event: dict[str, int]) -> dict[str, int]:
        seen.append(event["amount"])
        value["n"] += 1
        value["total"] += 12 // event.pop("amount")
        if event.get("fate") and seen.count(6) == 1:
            raise ConnectionError("not yet")
        return value

    bench.queue(partitions=1)
    bench.push([("k", {"amount": 3}), ("k", {"amount": 0}), ("k", {"amount": 6, "fate": "once"})])
    made = stream().window_tumbling(seconds=3600).reduce(total, {"n": 0, "total": 0})
    bench.run(made.to("totals"))

    assert [row["value"] for row in bench.emitted()] == [{"n": 2, "total": 6}]
    (letter,) = bench.letters()
    assert (letter.data["amount"], letter.stage, letter.attempts) == (0, "reduce", 4)
    assert letter.error.startswith("ZeroDivisionError")
    assert letter.traceback is not None
    assert "in total" in letter.traceback
    assert "folding.py" not in letter.traceback


@pytest.mark.long
@pytest.mark.parametrize("again", [False, True])
def test_a_function_that_exits_while_types_are_inferred_does_not_take_the_driver_along(
    bench: Bench, again: bool
) -> None:
    def fatal(event: dict[str, Any]) -> Any:
        if event.get("fate"):
            os._exit(3)
        return event

    bench.queue(partitions=1)
    bench.push([*good(3), ("k", {"ts": T0, "amount": 1, "fate": "exit"})])
    made = stream(schema={"ts": "bigint"}).map(fatal)
    if again:
        # What the second function gives is inferred from what the first one does.
        made = made.filter("ts > 0").map(lambda event: {**event, "amount": 2})
    bench.run(counted(made).to("totals"))

    assert bench.by_key("total") == {"k": 6 if again else 3}
    assert [letter.data["fate"] for letter in bench.letters()] == ["exit"]


@pytest.mark.parametrize("again", [pytest.param(False, marks=pytest.mark.long), True])
def test_types_are_inferred_from_events_that_functions_survive(bench: Bench, again: bool) -> None:
    def fatal(event: dict[str, Any]) -> Any:
        if event.get("fate"):
            os._exit(3)
        return {**event, "code": event["amount"]}

    bench.queue(partitions=1)
    bench.push([("k", {"ts": T0, "amount": n, **({"fate": "exit"} if n == 11 else {})}) for n in range(9, 14)])
    made = stream(schema={"ts": "bigint"})
    if again:
        made = made.filter("ts > 0")
    made = made.map(fatal).window_tumbling(seconds=3600)
    bench.run(made.aggregate({"least": agg.min("code"), "most": agg.max("code")}).to("totals"))

    # As texts, "9" is more than "13".
    assert [(row["least"], row["most"]) for row in bench.emitted()] == [(9, 13)]
    assert [letter.data["fate"] for letter in bench.letters()] == ["exit"]


def test_an_expression_that_spark_cannot_compute_costs_one_event(bench: Bench) -> None:
    bench.queue(partitions=1)
    odd = ("k", {"ts": T0, "amount": 1, "code": "x"})
    bench.push([*(("k", {"ts": T0, "amount": 1, "code": str(i)}) for i in range(5)), odd, *good(5)])
    bench.run(counted(stream().filter("cast(code AS int) >= 0 OR code IS NULL")).to("totals"))

    assert bench.by_key("n") == {"k": 10}
    (letter,) = bench.letters()
    assert letter.data["code"] == "x"
    assert "CAST_INVALID_INPUT" in letter.error


def test_an_enrich_source_that_is_down_for_a_while_is_asked_again(bench: Bench, tmp_path: Path) -> None:
    is_up = tmp_path / "is-up"

    async def look_up(event: dict[str, Any], ctx: Context) -> dict[str, Any]:
        if event.get("fate") == "unknown":
            raise LookupError("nobody knows it")
        if event.get("fate") == "slow":
            await asyncio.sleep(3600)
        if not is_up.exists():
            if ctx.attempt == 2:
                is_up.touch()
            raise ConnectionError("down")
        return {"amount": event["amount"] * 10, "attempt": ctx.attempt}

    bench.queue(partitions=1)
    odd = [("k", {"ts": T0, "amount": 1, "fate": fate}) for fate in ("unknown", "slow")]
    bench.push([*good(5), *odd, *good(5)])
    made = stream(schema={"amount": "decimal(38,18)"}).enrich(
        look_up, name="prices", concurrency=4, timeout_seconds=1, retry_limit=4, retry_pause_seconds=0.05
    )
    bench.run(counted(made).to("totals"))

    assert bench.by_key("total") == {"k": 100}
    letters = {letter.data["fate"]: letter for letter in bench.letters()}
    assert {fate: (letter.stage, letter.attempts) for fate, letter in letters.items()} == {
        "unknown": ("prices", 5),
        "slow": ("prices", 5),
    }
    assert letters["unknown"].error == "LookupError: nobody knows it"
    assert "Timeout" in letters["slow"].error


def test_a_plain_function_that_hangs_in_enrich_costs_one_event(bench: Bench) -> None:
    def look_up(event: dict[str, Any]) -> dict[str, Any]:
        if event.get("fate") == "hang":
            time.sleep(3600)
        return {"more": 1}

    bench.queue(partitions=1)
    bench.push([*good(2), ("k", {"ts": T0, "amount": 1, "fate": "hang"}), *good(2)])
    made = stream().enrich(look_up, name="prices", timeout_seconds=0.5, retry_limit=0)
    with bench.running(counted(made).to("totals")) as query:
        eventually(lambda: query.status.events_in == 5, "the end of the backlog")
        query.stop(flush=True)

    assert bench.by_key("n") == {"k": 4}
    (letter,) = bench.letters()
    assert letter.data["fate"] == "hang"


def test_a_mended_stream_takes_back_what_it_had_given_up(bench: Bench, tmp_path: Path) -> None:
    mended = tmp_path / "mended"

    def price(event: dict[str, Any]) -> Any:
        if "price" not in event and not mended.exists():
            raise KeyError("price")
        return {"ts": event["ts"], "amount": event.get("price", 7)}

    bench.queue(partitions=1)
    bench.push([("k", {"ts": T0, "price": 1}), ("k", {"ts": T0}), ("k", {"ts": T0, "price": 1})])
    made = counted(stream().map(price, name="price", returns={"amount": "bigint"}, **AT_ONCE)).to("totals")
    bench.run(made, flush=False)
    assert [(letter.stage, letter.error) for letter in bench.letters()] == [("price", "KeyError: 'price'")]

    mended.touch()
    assert bench.redrive() == 1
    bench.run(made)
    assert bench.by_key("total") == {"k": 9}
    assert bench.letters() == []


def test_when_every_event_seems_to_be_at_fault_the_query_stops(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the environment that is broken: the events stay where they are."""

    def broken(event: dict[str, Any]) -> Any:
        if TaskContext.get() is not None and event.get("amount"):
            os._exit(3)
        return event

    monkeypatch.setattr(poison_search, "MAX_GIVEN_UP", 1)
    monkeypatch.setattr(poison_search, "TRIES", 1)
    bench.queue(partitions=1)
    bench.push(good(3))
    made = stream(schema={"amount": "bigint"}).map(broken, returns={"amount": "bigint"}).to("copies")
    with pytest.raises(RepeatedFailure, match="1 events in a row failed with the same error"):
        bench.run(made, max_events_per_cycle=1)

    (letter,) = bench.letters()
    assert letter.offset == 0
    assert letter.error.startswith("every cycle with this event fails: Python worker exited unexpectedly")
    assert bench.ask("SELECT sum(lag) FROM penstock.lag WHERE group_name = 'q'") == 2


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


@pytest.mark.parametrize(
    "drop_pings",
    [
        pytest.param(lambda made: made.filter(lambda event: event["kind"] == "order"), id="filter"),
        pytest.param(lambda made: made.map(lambda event: event if event["kind"] == "order" else None), id="map"),
        pytest.param(lambda made: made.flat_map(lambda event: [event] * (event["kind"] == "order")), id="flat_map"),
        pytest.param(lambda made: made.filter("ts > 0").filter(lambda event: event["kind"] == "order"), id="stage"),
    ],
)
def test_a_function_that_drops_every_event_of_a_cycle_costs_nothing(
    bench: Bench, drop_pings: Callable[[Any], Any]
) -> None:
    made = counted(drop_pings(stream())).to("totals")
    bench.queue(partitions=1)
    bench.push([("k", {"kind": "order", "ts": T0, "amount": 1})])
    bench.run(made, flush=False)
    bench.push([("k", {"kind": "ping", "ts": T0, "amount": 1})] * 40)
    query = bench.run(made)

    assert (query.status.failed_cycles, query.status.events_in) == (0, 40)
    assert bench.letters() == []
    assert bench.by_key("n") == {"k": 1}


def _with_nul(count: int, poison: int) -> list[tuple[str, Any]]:
    """Events with a text each, of which one has a character that PostgreSQL cannot store."""
    return [
        (f"k{n % 7}", {"ts": T0 + n % 60, "amount": 1, "s": "a\0b" if n == poison else "ab", "o": {"s": "\0"}})
        for n in range(count)
    ]


def _windowed(made: Any, **aggregates: Any) -> Any:
    made = made.window_tumbling(seconds=3600, event_time="ts", idle_flush_seconds=NEVER_IDLE)
    return made.aggregate({"n": "count(*)", **aggregates}).to("totals")


_VALUES: dict[str, Any] = {
    "least": agg.min("s"),
    "one": agg.first("s"),
    "different": agg.count_distinct("s"),
    "top": agg.top_k("s", 3),
}


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda made: _windowed(made, **_VALUES), id="aggregates"),
        pytest.param(lambda made: _windowed(made.key_by("s")), id="key"),
        pytest.param(lambda made: _windowed(made.map("ts, concat(s, '!') AS t").key_by("upper(t)")), id="computed key"),
        pytest.param(lambda made: _windowed(made.map(lambda e: {**e, "t": [e["s"]] * 2}), t=agg.last("t")), id="map"),
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
    query = bench.run(_windowed(stream().filter("s <> 'x'"), letters=agg.sum("length(s)")))
    assert query.status.failed_cycles == 0
    assert bench.letters() == []
    assert sum(row["letters"] for row in bench.rows()) == 101


def test_one_event_that_fails_its_cycle_is_found_by_bisection_over_partitions(bench: Bench) -> None:
    bench.queue(partitions=4)
    events = [(f"k{n % 40}", {"ts": T0, "amount": 1, "code": "x" if n == 777 else "1"}) for n in range(2_000)]
    bench.push(events)
    query = bench.run(counted(stream().filter("cast(code AS int) > 0")).to("totals"))

    assert sum(bench.by_key("n").values()) == 1_999
    assert [letter.data["code"] for letter in bench.letters()] == ["x"]
    assert query.status.failed_cycles <= 13


def test_many_events_in_a_row_whose_values_fail_do_not_stop_the_query(bench: Bench) -> None:
    bench.queue(partitions=1)
    codes = ["1"] * 30 + ["x"] * (poison_search.MAX_GIVEN_UP + 4) + ["1"] * 30
    bench.push([("k", {"ts": T0, "amount": 1, "code": code}) for code in codes])
    query = bench.run(counted(stream().filter("cast(code AS int) > 0")).to("totals"))

    assert bench.by_key("n") == {"k": 60}
    assert len(bench.letters()) == poison_search.MAX_GIVEN_UP + 4
    assert query.status.failed_cycles < 60


def test_members_of_an_object_that_nobody_reads_may_have_any_type(bench: Bench) -> None:
    bench.queue(partitions=1)
    odd: list[Any] = [[1, "a"], {"x": 1}, "text", None, [[1], {"y": 2}]]
    bench.push([("k", {"ts": T0, "o": {"amount": 1, "deep": {"n": 2, "tags": tags}, "tags": tags}}) for tags in odd])
    made = _windowed(stream(), total=agg.sum("o.amount"), deep=agg.sum("o.deep.n + 1"))
    query = bench.run(made)

    assert bench.letters() == []
    assert query.status.failed_cycles == 0
    assert bench.by_key("total") == {"k": 5}
    assert bench.by_key("deep") == {"k": 15}


#: What happens to an event, and whether it counts; None if it is a dead letter.
_FATES: dict[str, bool | None] = {
    "pass": True,
    "dropped by Python": False,
    "dropped by SQL": False,
    "raises": None,
    "returns text": None,
    "returns another type": None,
    "has no number": None,
    "cannot be stored": None,
}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 12))])
def test_random_steps_and_fates_leave_every_event_in_one_place(bench: Bench, seed: int) -> None:
    # Spark's workers cannot import this module, and get a nested function by value.
    def decide(event: dict[str, Any]) -> Any:
        match event["fate"]:
            case "dropped by Python":
                return None
            case "raises":
                raise ValueError("bad luck")
            case "returns text":
                return "text"
            case "returns another type":
                return {**event, "amount": "much"}
        return event

    chance = random.Random(seed)
    fates = chance.choices(list(_FATES), weights=[20, 5, 5, 1, 1, 1, 0.1, 1], k=300)
    if chance.random() < 0.5:
        fates[100:160] = [chance.choice(["dropped by Python", "raises", "returns text"])] * 60
    events = [
        {
            "ts": T0,
            "amount": 1,
            "fate": fate,
            "code": "x" if fate == "has no number" else "1",
            "s": ("\0" if fate == "cannot be stored" else "a") + str(n % 3),
        }
        for n, fate in enumerate(fates)
    ]
    steps: list[Callable[[Any], Any]] = [
        lambda made: made.map(decide, name="decide", retry_limit=0),
        lambda made: made.filter("fate <> 'dropped by SQL' AND cast(code AS int) > 0"),
        lambda made: made.filter(lambda event: event["fate"] != "dropped by Python"),
    ]
    chance.shuffle(steps)
    made = stream(schema={"amount": "decimal(38,18)", "code": "string", "s": "string"})
    for add_step in steps:
        made = add_step(made)
    if chance.random() < 0.7:
        made = made.key_by("s")
    bench.queue(partitions=chance.choice([1, 3]))
    for start in range(0, len(events), 100):
        bench.push([(f"k{n % 5}", event) for n, event in enumerate(events[start : start + 100])])
    bench.run(
        _windowed(made, total=agg.sum("amount"), least=agg.min("s")), max_events_per_cycle=chance.choice([70, 1000])
    )

    assert sum(row["n"] for row in bench.rows()) == fates.count("pass")
    assert sum(row["total"] for row in bench.rows()) == fates.count("pass")
    failed = Counter(fate for fate in fates if _FATES[fate] is None)
    assert Counter(letter.data["fate"] for letter in bench.letters()) == failed

"""An event for which a user-defined function fails becomes a dead letter; the others count."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext

from penstock import Context, agg
from tests.conditions import eventually
from tests.engine.failing_events.events import good
from tests.engine.pipelines import T0, Bench, counted, stream

#: Calls a function again without a pause.
AT_ONCE: dict[str, Any] = {"retry_pause_seconds": 0}


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


@pytest.mark.long  # one that exits is in test_poison_events.py, and a call that hangs in test_watchdog.py
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
    corrected = tmp_path / "corrected"

    def price(event: dict[str, Any]) -> Any:
        if "price" not in event and not corrected.exists():
            raise KeyError("price")
        return {"ts": event["ts"], "amount": event.get("price", 7)}

    bench.queue(partitions=1)
    bench.push([("k", {"ts": T0, "price": 1}), ("k", {"ts": T0}), ("k", {"ts": T0, "price": 1})])
    made = counted(stream().map(price, name="price", returns={"amount": "bigint"}, **AT_ONCE)).to("totals")
    bench.run(made, flush=False)
    assert [(letter.stage, letter.error) for letter in bench.letters()] == [("price", "KeyError: 'price'")]

    corrected.touch()
    assert bench.redrive() == 1
    bench.run(made)
    assert bench.by_key("total") == {"k": 9}
    assert bench.letters() == []


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

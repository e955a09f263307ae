"""Preview and explain change nothing, and report mistakes as errors of ours."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import InvalidRequest, SparkFailure
from penstock.stream.context import Context
from tests.engine.pipelines import T0, Bench, counted, stream


@pytest.fixture
def orders(bench: Bench) -> Bench:
    bench.queue(partitions=1)
    bench.push([("k", {"ts": T0 + n, "amount": n}) for n in range(3)])
    return bench


def test_an_unknown_column_is_an_invalid_request(orders: Bench) -> None:
    mistaken = stream().filter("amuont > 1").to("out")
    with pytest.raises(InvalidRequest, match="amuont"):
        mistaken.preview(settings=orders.settings)
    with pytest.raises(InvalidRequest, match="amuont"):
        mistaken.explain(settings=orders.settings)


def test_failing_events_are_left_out_with_a_warning(orders: Bench) -> None:
    def divide(event: dict[str, Any]) -> Any:
        return {"inverse": 6 // event["amount"]}

    made = stream().map(divide, name="shaky", retry_limit=0).to("out")
    with pytest.warns(UserWarning, match=r"1 of the newest events .*'shaky': ZeroDivisionError") as warned:
        rows = made.preview(settings=orders.settings)
    assert sorted(row["inverse"] for row in rows) == [3, 6]
    assert warned[0].filename == __file__


def test_failures_after_a_spark_step_are_reported_too(orders: Bench) -> None:
    def divide(event: dict[str, Any]) -> Any:
        return {"inverse": 6 // event["amount"]}

    def fold(value: int, event: dict[str, Any]) -> Any:
        return value + 6 // event["amount"]

    late = stream().filter("amount >= 0").map(divide, name="shaky", retry_limit=0).to("out")
    with pytest.warns(UserWarning, match=r"1 of the newest events .*'shaky': ZeroDivisionError") as warned:
        rows = late.preview(settings=orders.settings)
    assert sorted(row["inverse"] for row in rows) == [3, 6]
    assert warned[0].filename == __file__
    folded = stream().window_tumbling(seconds=3600).reduce(fold, 0).to("out")
    with pytest.warns(UserWarning, match=r"1 of the newest events .*'reduce': ZeroDivisionError"):
        assert [row["value"] for row in folded.preview(settings=orders.settings)] == [9]
    orders.queue("refunds", partitions=1)
    orders.push([("k", {"ts": T0, "amount": 0}), ("k", {"ts": T0, "amount": 1})], "refunds")
    refunds = stream("refunds").map(lambda event: {**event, **divide(event)}, name="shaky", retry_limit=0)
    joined = stream().join(refunds, on="ts", within="1 minute", event_time="ts").to("out")
    with pytest.warns(UserWarning, match=r"1 of the newest events .*'shaky': ZeroDivisionError"):
        assert [row["right"]["inverse"] for row in joined.preview(settings=orders.settings)] == [6]


def test_a_function_that_exits_does_not_end_this_process(orders: Bench) -> None:
    def fatal(event: dict[str, Any]) -> Any:
        os._exit(3)

    with pytest.raises(SparkFailure, match="newest events"):
        stream().map(fatal).to("out").preview(settings=orders.settings)


def test_functions_with_side_effects_are_not_called(orders: Bench, tmp_path: Path) -> None:
    called = tmp_path / "called"

    def note(event: dict[str, Any]) -> None:
        called.touch()

    def look_up(event: dict[str, Any]) -> dict[str, Any]:
        called.touch()
        return {}

    stream().foreach(note).to("out").explain(settings=orders.settings)
    stream().enrich(look_up).to("out").explain(settings=orders.settings)
    for made in (stream().foreach(note), stream().filter("amount > 0").foreach(note)):
        assert made.to("out").preview(settings=orders.settings)
    assert not called.exists()


def test_a_function_gets_the_metadata_of_an_event(orders: Bench) -> None:
    def with_queue(event: dict[str, Any], ctx: Context) -> Any:
        return {"queue": ctx.metadata["queue"], "amount": event["amount"]}

    orders.queue("refunds", partitions=1)
    orders.push([("k", {"ts": T0, "amount": -1})], "refunds")
    rows = stream("orders", "refunds").map(with_queue).to("out").preview(settings=orders.settings)
    assert {row["amount"]: row["queue"] for row in rows} == {0: "orders", 1: "orders", 2: "orders", -1: "refunds"}
    (row,) = counted(stream("orders", "refunds")).preview(settings=orders.settings)
    assert (row["n"], row["total"]) == (4, 2)


def test_unfinished_stream_has_a_preview(orders: Bench) -> None:
    """A stream can be looked at while it is being written."""
    filtered = stream().filter("amount > 0")
    assert [row["amount"] for row in filtered.preview(settings=orders.settings)] == [1, 2]
    keyed = filtered.key_by("cast(amount as string)")
    assert [row["key"] for row in keyed.preview(settings=orders.settings)] == ["1", "2"]
    windowed = keyed.window_tumbling(seconds=3600, event_time="ts")
    assert [row["amount"] for row in windowed.preview(settings=orders.settings)] == [1, 2]
    counts = windowed.aggregate({"n": "count(*)"})
    assert [(row["key"], row["n"]) for row in counts.preview(settings=orders.settings)] == [("1", 1), ("2", 1)]
    assert "amount > 0" in filtered.explain(settings=orders.settings)

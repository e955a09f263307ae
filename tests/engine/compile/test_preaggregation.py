"""Streams whose events workers can pre-aggregate."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock import Stream, agg
from penstock.engine.compile.preaggregation import plan_preaggregation
from penstock.engine.worker.json_columns import DEFAULT_NUMBER
from penstock.engine.worker.preaggregate import Preaggregation

FIELDS = pa.schema([("amount", DEFAULT_NUMBER), ("n", pa.int64()), ("ratio", pa.float64()), ("who", pa.string())])


def plan(stream: Stream, **aggregates: Any) -> Preaggregation | None:
    aggregated = stream.window_tumbling(seconds=5, event_time="ts").aggregate(aggregates or {"count": agg.count()})
    return plan_preaggregation(aggregated, FIELDS, aggregated.steps)


@pytest.mark.parametrize(
    "aggregate",
    ["sum(amount * 2)", "sum(who.x)", "max(who)", "count_if(n > 3)", "count_distinct(n)", agg.sum(lambda e: e["n"])],
)
def test_aggregates_of_expressions_are_left_to_spark(aggregate: Any) -> None:
    assert plan(Stream.from_("orders"), count=agg.count(), value=aggregate) is None


def test_only_a_text_field_can_be_the_key() -> None:
    by_who = plan(Stream.from_("orders").key_by("who"))
    assert by_who is not None
    assert by_who.key == "who"
    assert plan(Stream.from_("orders").key_by("upper(who)")) is None
    assert plan(Stream.from_("orders").key_by("n")) is None


@pytest.mark.parametrize(
    "add_steps",
    [
        lambda stream: stream.filter("n + 1 > 2"),
        lambda stream: stream.filter("n > 1").map("n * 2 AS n"),
        lambda stream: stream.sql("SELECT n FROM stream"),
        lambda stream: stream.map("n AS m"),
    ],
)
def test_steps_that_compute_are_left_to_spark(add_steps: Any) -> None:
    assert plan(add_steps(Stream.from_("orders")), most="max(n)") is None

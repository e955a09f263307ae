"""The builder of streams: what each method adds, and which arguments it refuses."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from penstock.core.errors import InvalidName, InvalidOption, InvalidRequest
from penstock.stream import aggregates as agg
from penstock.stream.definition import Definition
from penstock.stream.steps import (
    EnrichCall,
    FilterStep,
    FlatMapStep,
    ForeachStep,
    Lookup,
    MapStep,
    ReferenceTable,
    Retries,
    SqlStep,
    runs_in_python,
)
from penstock.stream.time_rules import TimeRules
from penstock.stream.windows import CalendarWindow, SessionWindow, SlidingWindow, TumblingWindow
from tests.stream.spark_doubles import COLUMN, FRAME

ORDERS = Definition.from_("orders")
WINDOWED = ORDERS.window_tumbling(seconds=5)
COUNTED = WINDOWED.aggregate({"n": "count"})


def identity(event: Any) -> Any:
    return event


async def waits(event: Any) -> Any:
    return event


async def waits_for_two(value: Any, event: Any) -> Any:
    return value, event


def refused(define: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        define()


def test_methods_return_a_new_stream_and_do_not_change_the_old_one() -> None:
    before = copy.copy(ORDERS)
    ORDERS.filter("a > 1").key_by("b").window_tumbling(seconds=1).aggregate({"n": "count"}).to("results")
    assert before == ORDERS
    with pytest.raises(dataclasses.FrozenInstanceError):
        ORDERS.sink = "elsewhere"  # type: ignore[misc] # that it is refused is the point


def test_stream_copies_its_schema() -> None:
    schema = {"amount": "double"}
    stream = Definition.from_("orders", schema=schema)
    schema["amount"] = "string"
    assert stream.schema == {"amount": "double"}


def test_stream_reads_several_queues() -> None:
    assert Definition.from_("orders", "refunds").sources == ("orders", "refunds")


@pytest.mark.parametrize(
    ("stream", "step"),
    [
        (ORDERS.map("a AS b"), MapStep("map-1", "a AS b")),
        (ORDERS.map({"b": "a + 1", "c d": "f(x, y) -- why"}), MapStep("map-1", "a + 1 AS `b`, f(x, y) AS `c d`")),
        (ORDERS.map(identity, returns={"a": "int"}), MapStep("map-1", identity, {"a": "int"})),
        (ORDERS.map(identity, retry_limit=0), MapStep("map-1", identity, None, Retries(limit=0))),
        (ORDERS.filter("a > 1", name="big"), FilterStep("big", "a > 1")),
        (ORDERS.filter(COLUMN), FilterStep("filter-1", COLUMN)),
        (
            ORDERS.filter(identity, retry_pause_seconds=0.5, timeout_seconds=0),
            FilterStep("filter-1", identity, Retries(3, 0.5, 0)),
        ),
        (ORDERS.flat_map("items"), FlatMapStep("flat_map-1", "items")),
        (ORDERS.foreach(print), ForeachStep("foreach-1", print)),
        (ORDERS.enrich(waits, concurrency=3), EnrichCall("enrich-1", waits, 3)),
        (ORDERS.enrich("crm.customers", on="id"), Lookup("enrich-1", ReferenceTable("TABLE crm.customers"), ("id",))),
        (
            ORDERS.enrich("SELECT 1 AS id;", on=["id", "x"], how="inner", refresh_seconds=5, notify="crm"),
            Lookup("enrich-1", ReferenceTable("SELECT 1 AS id", None, 5, "crm"), ("id", "x"), "inner"),
        ),
        (ORDERS.enrich(FRAME, on="id"), Lookup("enrich-1", ReferenceTable(frame=FRAME), ("id",))),
        (
            ORDERS.sql("SELECT a FROM stream JOIN fx USING (b);", fx="app.fx"),
            SqlStep("sql-1", "SELECT a FROM stream JOIN fx USING (b)", {"fx": ReferenceTable("TABLE app.fx")}),
        ),
    ],
    ids=lambda value: "",
)
def test_methods_add_steps(stream: Definition, step: Any) -> None:
    assert stream.steps == (step,)


def test_default_step_names_are_kind_and_number() -> None:
    stream = ORDERS.filter("a").filter("b", name="mine").filter("c").map("d").filter("e", name="filter-4").filter("f")
    assert [step.name for step in stream.steps] == ["filter-1", "mine", "filter-2", "map-1", "filter-4", "filter-3"]


def test_runs_in_python_is_true_for_functions_only() -> None:
    stream = (
        ORDERS.map(identity).map("a").filter(identity).filter("a").flat_map(identity).flat_map("a")
        .foreach(identity).enrich(identity).enrich("t", on="a").sql("SELECT * FROM stream")
    )  # fmt: skip
    assert list(map(runs_in_python, stream.steps)) == [True, False] * 3 + [True, True, False, False]


@pytest.mark.parametrize(
    ("stream", "window"),
    [
        (ORDERS.window_tumbling(seconds=5), TumblingWindow(5_000_000)),
        (ORDERS.window_sliding(size=60, slide=0.5), SlidingWindow(60_000_000, 500_000)),
        (ORDERS.window_session(gap=30), SessionWindow(30_000_000)),
        (ORDERS.window_calendar(every="day", timezone="Europe/Rome"), CalendarWindow("day", "Europe/Rome")),
        (ORDERS.window_calendar(every="hour"), CalendarWindow("hour", "UTC")),
    ],
)
def test_methods_add_windows(stream: Definition, window: Any) -> None:
    assert stream.windows == (window,)
    assert stream.time == TimeRules()


def test_windows_share_the_time_rules_of_the_first() -> None:
    stream = ORDERS.window_tumbling(
        seconds=5, event_time="at", grace_seconds=1, allowed_lateness_seconds=2, idle_flush_seconds=3, late="drop"
    ).window_tumbling(seconds=60)
    assert len(stream.windows) == 2
    assert stream.time == TimeRules("at", 1_000_000, 2_000_000, 3_000_000, "drop")


@pytest.mark.parametrize("event_time", [None, True, "at", "order.at", identity])
def test_event_time_is_a_field_a_function_or_a_flag(event_time: Any) -> None:
    assert ORDERS.window_tumbling(seconds=5, event_time=event_time).time.event_time == event_time


def test_aggregate_and_to_add_aggregates_and_sink() -> None:
    stream = ORDERS.key_by("customer").window_tumbling(seconds=5).aggregate({"n": agg.count(), "total": "sum(amount)"})
    stream = stream.to("totals", partition="customer")
    stream.check()
    assert stream.aggregates == {"n": agg.count(), "total": agg.sum("amount")}
    assert (stream.key, stream.sink, stream.sink_key) == ("customer", "totals", "customer")


def test_reduce_adds_a_fold() -> None:
    stream = WINDOWED.reduce(lambda value, event: value + event["n"], {"sum": 0})
    stream.check()
    assert stream.fold is not None
    assert stream.fold.initial == {"sum": 0}


@pytest.mark.parametrize(
    ("queues", "sentence"),
    [
        ((), r"Stream.from_\('orders'\)"),
        ((["orders", "refunds"],), "one by one"),
        (("orders", "refunds", "orders"), "'orders' is named twice"),
    ],
)
def test_invalid_sources_are_refused(queues: Any, sentence: str) -> None:
    refused(lambda: Definition.from_(*queues), sentence)


@pytest.mark.parametrize("name", ["", " a", "a\n", 7, None, b"a", {}])
def test_invalid_queue_and_step_names_are_refused(name: Any) -> None:
    with pytest.raises(InvalidName):
        Definition.from_(name)
    with pytest.raises(InvalidName):
        ORDERS.to(name)
    if name is not None:
        with pytest.raises(InvalidName):
            ORDERS.filter("a", name=name)


@pytest.mark.parametrize("types", [[], "a int", {"a": 1}, {1: "int"}, {"": "int"}, {"a": " "}])
def test_types_that_are_no_mapping_of_text_are_refused(types: Any) -> None:
    for define in (
        lambda: Definition.from_("orders", schema=types),
        lambda: ORDERS.map(identity, returns=types),
        lambda: ORDERS.flat_map(identity, returns=types),
        lambda: ORDERS.enrich(identity, returns=types),
    ):
        refused(define, "must map fields to types")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "not an empty mapping"),
        ({"a": identity}, "give map a function that returns the whole event"),
        ({"a": COLUMN}, "takes one SQL expression"),
        ({"a": 1}, "takes one SQL expression"),
        ({"a": "b, c"}, "takes one SQL expression"),
        ({"a": ""}, "field 'a' is an empty text"),
        ({"a": "(b"}, "not closed"),
        ({"a`b": "c"}, "without backquotes"),
        ({1: "c"}, "cannot name a field"),
    ],
)
def test_map_refuses_fields_without_one_sql_expression(fields: Any, sentence: str) -> None:
    refused(lambda: ORDERS.map(fields), sentence)


@pytest.mark.parametrize(
    ("options", "option", "sentence"),
    [
        ({"retries": 3}, "retries", "the options are retry_limit, retry_pause_seconds, timeout_seconds"),
        ({"retry_limit": 2.5}, "retry_limit", "whole number"),
        ({"retry_limit": -1}, "retry_limit", "from 0 to 86,400"),
        ({"retry_limit": True}, "retry_limit", "from 0 to 86,400"),
        ({"timeout_seconds": float("nan")}, "timeout_seconds", "from 0 to 86,400"),
        ({"retry_pause_seconds": "1"}, "retry_pause_seconds", "from 0 to 86,400"),
    ],
)
def test_invalid_step_options_are_refused(options: Any, option: str, sentence: str) -> None:
    for define in (ORDERS.map, ORDERS.filter, ORDERS.flat_map, ORDERS.foreach, ORDERS.enrich):
        with pytest.raises(InvalidOption, match=sentence) as caught:
            define(identity, **options)
        assert caught.value.option == option


def test_function_options_are_refused_for_sql() -> None:
    for define in (
        lambda: ORDERS.map("a", returns={"a": "int"}),
        lambda: ORDERS.filter("a", retry_limit=1),
        lambda: ORDERS.flat_map("a", timeout_seconds=1),
        lambda: ORDERS.enrich("t", on="a", retry_limit=1),
    ):
        refused(define, "only for functions; leave it out for SQL")
    refused(lambda: ORDERS.filter("a", nmae="x"), "'nmae' is not an option of a step")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"source": "crm.customers"}, "needs on="),
        ({"source": FRAME}, "needs on="),
        ({"source": lambda: 1}, "must take an event"),
        ({"source": identity, "concurrency": 0}, "concurrency must be a whole number from 1 to 1,000"),
        ({"source": identity, "concurrency": True}, "concurrency"),
        ({"source": "t", "on": []}, "on takes a field or a list"),
        ({"source": "t", "on": ""}, "on takes a field"),
        ({"source": "t", "on": ["a", 1]}, "on takes a field"),
        ({"source": "t", "on": ["a", "a"]}, "different fields"),
        ({"source": "t", "on": 7}, "on takes a field"),
        ({"source": "t", "on": "a", "how": "outer"}, "how must be 'left' or 'inner', not 'outer'"),
        ({"source": "t", "on": "a", "refresh_seconds": 0}, "refresh_seconds"),
        ({"source": "t", "on": "a", "notify": ""}, "channel"),
        ({"source": "", "on": "a"}, "'crm.customers'"),
        ({"source": "crm.customers WHERE x", "on": "a"}, "or a query 'SELECT ...'"),
        ({"source": None, "on": "a"}, "a Spark DataFrame or a function"),
        ({"source": [1], "on": "a"}, "a Spark DataFrame or a function"),
        ({"source": lambda: None, "on": "a"}, r"def rates\(spark\)"),
    ],
)
def test_enrich_refuses_invalid_arguments(arguments: Any, sentence: str) -> None:
    refused(lambda: ORDERS.enrich(**arguments), sentence)


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        (None, "takes a SELECT"),
        ("", "takes a SELECT"),
        ("a + b", "takes a SELECT"),
        ("DELETE FROM stream", "takes a SELECT"),
        ("SELECT 'stream' FROM orders", "must read FROM stream"),
        ("SELECT stream FROM orders -- from stream", "must read FROM stream"),
        ("SELECT (a FROM stream", "not closed"),
        ("SELECT a FROM stream; DROP TABLE x", "semicolon"),
        ("SELECT a, count(*) FROM stream GROUP BY a", r"count\(...\) needs several"),
        ("SELECT a FROM stream group\n by a", "GROUP BY needs several"),
        ("SELECT max(a) FROM stream", r"\.aggregate\(\{...\}\)"),
        ("SELECT DISTINCT a FROM stream", "SELECT DISTINCT"),
        ("SELECT a FROM stream LIMIT 5", "LIMIT"),
        ("SELECT row_number() OVER (ORDER BY a) FROM stream", "OVER"),
        ("SELECT * FROM (SELECT a, sum(b) AS c FROM stream GROUP BY a) t", r"sum\(...\)"),
        ("SELECT n FROM (SELECT count(*) AS n FROM (SELECT * FROM stream) s) t", r"count\(...\)"),
    ],
)
def test_sql_refuses_queries_over_several_events(query: Any, sentence: str) -> None:
    refused(lambda: ORDERS.sql(query), sentence)


@pytest.mark.parametrize(
    "query",
    [
        "select * from stream",
        "SELECT 'group by' AS text, `count` FROM `stream` s WHERE note <> 'limit 5'",
        "SELECT count, sum + 1 AS max, limit FROM stream",
        "SELECT aggregate(xs, 0, (a, x) -> a + x) FROM stream",
        "SELECT s.a, r.rate FROM stream s JOIN (SELECT c, max(rate) AS rate FROM fx GROUP BY c) r ON s.c = r.c",
        "SELECT a, (SELECT max(rate) FROM fx WHERE fx.c = stream.c) AS rate FROM stream",
        "SELECT a FROM fx, stream",
    ],
)
def test_sql_accepts_aggregates_over_reference_tables(query: str) -> None:
    assert ORDERS.sql(query, fx="app.fx").steps


def test_reference_table_named_stream_is_refused() -> None:
    refused(lambda: ORDERS.sql("SELECT 1 FROM stream", stream="t"), "another name")


@pytest.mark.parametrize("value", [None, "a > 1", 7, COLUMN], ids=str)
def test_foreach_refuses_values_that_are_no_function(value: Any) -> None:
    refused(lambda: ORDERS.foreach(value), "foreach takes a function of an event")


@pytest.mark.parametrize(
    "define",
    [
        lambda: ORDERS.map(waits),
        lambda: ORDERS.foreach(waits),
        lambda: ORDERS.key_by(waits),
        lambda: ORDERS.window_tumbling(seconds=5, event_time=waits),
        lambda: WINDOWED.aggregate({"n": agg.sum(waits)}),
        lambda: WINDOWED.reduce(waits_for_two, 0),
        lambda: ORDERS.to("results", partition=waits),
    ],
)
def test_async_functions_are_refused_outside_enrich(define: Callable[[], Any]) -> None:
    refused(define, r"only \.enrich\(f\) awaits")


@pytest.mark.parametrize(
    ("define", "sentence"),
    [
        (lambda: WINDOWED.filter("a"), "put it before"),
        (lambda: ORDERS.to("x").map("a"), "read the result's queue"),
        (lambda: ORDERS.filter("a", name="x").map("b", name="x"), "two steps are called 'x'"),
        (lambda: ORDERS.key_by("a").key_by("b"), "key_by already"),
        (lambda: ORDERS.key_by("a").map("b"), "put key_by after it"),
        (lambda: ORDERS.key_by("a").sql("SELECT b FROM stream"), "put key_by after it"),
        (lambda: WINDOWED.key_by("a"), "before the window"),
        (lambda: ORDERS.to("x").key_by("a"), "before .to"),
        (lambda: COUNTED.window_tumbling(seconds=9), "a window comes before"),
        (lambda: WINDOWED.reduce(max, 0).window_tumbling(seconds=9), "a window comes before"),
        (lambda: ORDERS.to("x").window_tumbling(seconds=9), "a window comes before"),
        (lambda: WINDOWED.window_tumbling(seconds=5.0), r"tumbling 5 s\) is there twice"),
        (lambda: WINDOWED.window_session(gap=5), "use two streams"),
        (lambda: WINDOWED.window_tumbling(seconds=9, late="drop"), "give late at the first window only"),
        (lambda: ORDERS.reduce(max, 0), "needs a window before it"),
        (lambda: COUNTED.aggregate({"m": "count"}), r"into one \.aggregate"),
        (lambda: COUNTED.reduce(max, 0), "aggregates already"),
        (lambda: ORDERS.to("x").to("y"), "writes to 'x' already"),
        (lambda: ORDERS.to("orders"), "would never end"),
    ],
)
def test_methods_in_the_wrong_order_are_refused(define: Callable[[], Any], sentence: str) -> None:
    refused(define, sentence)


def test_filter_is_allowed_after_key_by() -> None:
    assert ORDERS.key_by("a").filter("b > 1").window_tumbling(seconds=5).key == "a"


@pytest.mark.parametrize(
    ("rules", "option"),
    [
        ({"event_tyme": "at"}, "event_tyme"),
        ({"event_time": False}, "event_time"),
        ({"event_time": 1}, "event_time"),
        ({"event_time": ""}, "event_time"),
        ({"event_time": "a..b"}, "event_time"),
        ({"event_time": COLUMN}, "event_time"),
        ({"grace_seconds": -1}, "grace_seconds"),
        ({"allowed_lateness_seconds": "1"}, "allowed_lateness_seconds"),
        ({"idle_flush_seconds": 0}, "idle_flush_seconds"),
        ({"late": "ignore"}, "late"),
        ({"late": ["drop"]}, "late"),
    ],
)
def test_invalid_window_options_are_refused(rules: Any, option: str) -> None:
    with pytest.raises(InvalidOption, match=option) as caught:
        ORDERS.window_tumbling(seconds=5, **rules)
    assert caught.value.option == option


@pytest.mark.parametrize("aggregates", [None, {}, [], "count", agg.count()])
def test_aggregate_refuses_values_that_are_no_mapping(aggregates: Any) -> None:
    refused(lambda: WINDOWED.aggregate(aggregates), "aggregate takes a mapping such as")


@pytest.mark.parametrize(
    "name", ["", "1a", "a-b", "a b", "ü", "n\n", "x" * 61, 7, None, "Key", "window_end", "is_open"]
)
def test_invalid_aggregate_names_are_refused(name: Any) -> None:
    refused(lambda: WINDOWED.aggregate({name: "count"}), "it becomes a column|a column of every result")


def test_aggregate_names_that_differ_in_case_only_are_refused() -> None:
    refused(lambda: WINDOWED.aggregate({"Total": "count", "total": "count"}), "'Total' and 'total' differ in case only")


@pytest.mark.parametrize(
    ("function", "initial", "sentence"),
    [
        ("sum(a)", 0, "takes a function of a value and an event"),
        (lambda value: value, 0, r"def f\(value, event\)"),
        (lambda value, event, ctx: value, 0, r"def f\(value, event\)"),
        (lambda value, event: value, {1, object()}, "must be JSON"),
        (lambda value, event: value, float("nan"), "must be JSON"),
    ],
)
def test_invalid_folds_are_refused(function: Any, initial: Any, sentence: str) -> None:
    refused(lambda: WINDOWED.reduce(function, initial), sentence)


@pytest.mark.parametrize(
    ("stream", "sentence"),
    [
        (ORDERS, r"goes nowhere: end it with \.to\(queue\)"),
        (ORDERS.filter("a"), "goes nowhere"),
        (WINDOWED, r"add \.aggregate"),
        (WINDOWED.to("x"), r"add \.aggregate"),
        (ORDERS.key_by("a").to("x"), r"add a window, or use \.to\(queue, partition=...\)"),
    ],
)
def test_incomplete_streams_are_refused(stream: Definition, sentence: str) -> None:
    refused(stream.check, sentence)


@pytest.mark.parametrize("stream", [COUNTED, ORDERS.to("x"), ORDERS.foreach(print), WINDOWED.reduce(max, 0)])
def test_complete_streams_pass_the_check(stream: Definition) -> None:
    stream.check()

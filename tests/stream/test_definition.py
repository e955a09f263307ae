"""The builder: what each method adds, and what is refused at the line that says it."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest

from penstock.core.errors import InvalidName, InvalidOption, InvalidRequest
from penstock.stream import aggregates as agg
from penstock.stream.definition import Definition, TimeRules, table
from penstock.stream.steps import Call, Filter, FlatMap, Foreach, Lookup, Map, Retries, Sql, Table, runs_in_python
from penstock.stream.windows import Calendar, Session, Sliding, Tumbling
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


# What each method adds


def test_each_method_returns_a_new_stream_and_leaves_the_old_one_as_it_was() -> None:
    before = copy.copy(ORDERS)
    ORDERS.filter("a > 1").key_by("b").window_tumbling(seconds=1).aggregate({"n": "count"}).to("results")
    assert before == ORDERS
    with pytest.raises(dataclasses.FrozenInstanceError):
        ORDERS.sink = "elsewhere"  # type: ignore[misc] # that it is refused is the point


def test_what_was_given_can_change_later_without_changing_the_stream() -> None:
    schema = {"amount": "double"}
    stream = Definition.from_("orders", schema=schema)
    schema["amount"] = "string"
    assert stream.schema == {"amount": "double"}


def test_a_stream_reads_one_queue_or_several() -> None:
    assert Definition.from_("orders", "refunds").sources == ("orders", "refunds")


@pytest.mark.parametrize(
    ("stream", "step"),
    [
        (ORDERS.map("a AS b"), Map("map-1", "a AS b")),
        (ORDERS.map({"b": "a + 1", "c d": "f(x, y) -- why"}), Map("map-1", "a + 1 AS `b`, f(x, y) AS `c d`")),
        (ORDERS.map(identity, returns={"a": "int"}), Map("map-1", identity, {"a": "int"})),
        (ORDERS.map(identity, retry_limit=0), Map("map-1", identity, None, Retries(limit=0))),
        (ORDERS.filter("a > 1", name="big"), Filter("big", "a > 1")),
        (ORDERS.filter(COLUMN), Filter("filter-1", COLUMN)),
        (
            ORDERS.filter(identity, retry_pause_seconds=0.5, timeout_seconds=0),
            Filter("filter-1", identity, Retries(3, 0.5, 0)),
        ),
        (ORDERS.flat_map("items"), FlatMap("flat_map-1", "items")),
        (ORDERS.foreach(print), Foreach("foreach-1", print)),
        (ORDERS.enrich(waits, concurrency=3), Call("enrich-1", waits, 3)),
        (ORDERS.enrich("crm.customers", on="id"), Lookup("enrich-1", Table("TABLE crm.customers"), ("id",))),
        (
            ORDERS.enrich("SELECT 1 AS id;", on=["id", "x"], how="inner", refresh_seconds=5, notify="crm"),
            Lookup("enrich-1", Table("SELECT 1 AS id", None, 5, "crm"), ("id", "x"), "inner"),
        ),
        (ORDERS.enrich(FRAME, on="id"), Lookup("enrich-1", Table(frame=FRAME), ("id",))),
        (
            ORDERS.sql("SELECT a FROM stream JOIN fx USING (b);", fx="app.fx"),
            Sql("sql-1", "SELECT a FROM stream JOIN fx USING (b)", {"fx": Table("TABLE app.fx")}),
        ),
    ],
    ids=lambda value: "",
)
def test_a_step_is_added(stream: Definition, step: Any) -> None:
    assert stream.steps == (step,)


def test_steps_are_named_by_their_kind_and_number_unless_they_are_named() -> None:
    stream = ORDERS.filter("a").filter("b", name="mine").filter("c").map("d").filter("e", name="filter-4").filter("f")
    assert [step.name for step in stream.steps] == ["filter-1", "mine", "filter-2", "map-1", "filter-4", "filter-3"]


def test_a_step_knows_whether_it_runs_in_python() -> None:
    stream = (
        ORDERS.map(identity).map("a").filter(identity).filter("a").flat_map(identity).flat_map("a")
        .foreach(identity).enrich(identity).enrich("t", on="a").sql("SELECT * FROM stream")
    )  # fmt: skip
    assert list(map(runs_in_python, stream.steps)) == [True, False] * 3 + [True, True, False, False]


@pytest.mark.parametrize(
    ("stream", "window"),
    [
        (ORDERS.window_tumbling(seconds=5), Tumbling(5_000_000)),
        (ORDERS.window_sliding(size=60, slide=0.5), Sliding(60_000_000, 500_000)),
        (ORDERS.window_session(gap=30), Session(30_000_000)),
        (ORDERS.window_calendar(every="day", timezone="Europe/Rome"), Calendar("day", "Europe/Rome")),
        (ORDERS.window_calendar(every="hour"), Calendar("hour", "UTC")),
    ],
)
def test_a_window_is_added(stream: Definition, window: Any) -> None:
    assert stream.windows == (window,)
    assert stream.time == TimeRules()


def test_several_windows_share_the_rules_of_the_first() -> None:
    stream = ORDERS.window_tumbling(
        seconds=5, event_time="at", grace_seconds=1, allowed_lateness_seconds=2, idle_flush_seconds=3, late="drop"
    ).window_tumbling(seconds=60)
    assert len(stream.windows) == 2
    assert stream.time == TimeRules("at", 1_000_000, 2_000_000, 3_000_000, "drop")


@pytest.mark.parametrize("event_time", [None, True, "at", "order.at", identity])
def test_windows_go_by_a_field_a_function_or_the_producer_s_time(event_time: Any) -> None:
    assert ORDERS.window_tumbling(seconds=5, event_time=event_time).time.event_time == event_time


def test_aggregates_and_sink_are_added() -> None:
    stream = ORDERS.key_by("customer").window_tumbling(seconds=5).aggregate({"n": agg.count(), "total": "sum(amount)"})
    stream = stream.to("totals", partition="customer")
    stream.check()
    assert stream.aggregates == {"n": agg.count(), "total": agg.sum("amount")}
    assert (stream.key, stream.sink, stream.sink_key) == ("customer", "totals", "customer")


def test_a_fold_is_added() -> None:
    stream = WINDOWED.reduce(lambda value, event: value + event["n"], {"sum": 0})
    stream.check()
    assert stream.fold is not None
    assert stream.fold.initial == {"sum": 0}


@pytest.mark.parametrize(
    "source",
    ["customers", "crm.customers", 'db.crm."Odd name"', " crm.customers ; "],
)
def test_a_table_is_named(source: str) -> None:
    assert table(source).query == f"TABLE {source.strip().removesuffix(';').strip()}"


@pytest.mark.parametrize(
    "source",
    [
        "SELECT 1",
        "\nwith a as (select 1) table a",
        "(select 1) union (select 2)",
        "-- why\nVALUES (1)",
        "/* x */ TABLE a",
    ],
)
def test_a_table_is_a_query(source: str) -> None:
    assert table(source).query == source.strip()


@pytest.mark.parametrize(
    "source", [FRAME, lambda spark: FRAME, functools.partial(lambda spark: FRAME)], ids=["frame", "f", "partial"]
)
def test_a_table_is_a_frame_or_a_function_that_returns_one(source: Any) -> None:
    assert table(source) == Table(frame=source)


def test_a_table_stays_itself() -> None:
    made = Table("TABLE a", refresh_seconds=1)
    assert table(made) is made


# What is refused


@pytest.mark.parametrize(
    ("queues", "sentence"),
    [
        ((), r"Stream.from_\('orders'\)"),
        ((["orders", "refunds"],), "one by one"),
        (("orders", "refunds", "orders"), "'orders' is named twice"),
    ],
)
def test_the_queues_to_read_are_names(queues: Any, sentence: str) -> None:
    refused(lambda: Definition.from_(*queues), sentence)


@pytest.mark.parametrize("name", ["", " a", "a\n", 7, None, b"a", {}])
def test_a_queue_or_stage_with_a_bad_name_is_refused(name: Any) -> None:
    with pytest.raises(InvalidName):
        Definition.from_(name)
    with pytest.raises(InvalidName):
        ORDERS.to(name)
    if name is not None:
        with pytest.raises(InvalidName):
            ORDERS.filter("a", name=name)


@pytest.mark.parametrize("types", [[], "a int", {"a": 1}, {1: "int"}, {"": "int"}, {"a": " "}])
def test_types_are_text_by_field(types: Any) -> None:
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
def test_a_mapping_of_fields_takes_one_sql_expression_each(fields: Any, sentence: str) -> None:
    refused(lambda: ORDERS.map(fields), sentence)


@pytest.mark.parametrize(
    ("options", "option", "sentence"),
    [
        ({"retries": 3}, "retries", "there are retry_limit, retry_pause_seconds, timeout_seconds"),
        ({"retry_limit": 2.5}, "retry_limit", "whole number"),
        ({"retry_limit": -1}, "retry_limit", "from 0 to 86400"),
        ({"retry_limit": True}, "retry_limit", "from 0 to 86400"),
        ({"timeout_seconds": float("nan")}, "timeout_seconds", "from 0 to 86400"),
        ({"retry_pause_seconds": "1"}, "retry_pause_seconds", "from 0 to 86400"),
    ],
)
def test_an_option_of_a_step_is_checked(options: Any, option: str, sentence: str) -> None:
    for define in (ORDERS.map, ORDERS.filter, ORDERS.flat_map, ORDERS.foreach, ORDERS.enrich):
        with pytest.raises(InvalidOption, match=sentence) as caught:
            define(identity, **options)
        assert caught.value.option == option


def test_options_of_functions_are_refused_where_they_would_do_nothing() -> None:
    for define in (
        lambda: ORDERS.map("a", returns={"a": "int"}),
        lambda: ORDERS.filter("a", retry_limit=1),
        lambda: ORDERS.flat_map("a", timeout_seconds=1),
        lambda: ORDERS.enrich("t", on="a", retry_limit=1),
    ):
        refused(define, "only for functions; leave it out for SQL")
    refused(lambda: ORDERS.filter("a", nmae="x"), "'nmae' is no option of a step")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"source": "crm.customers"}, "needs on="),
        ({"source": FRAME}, "needs on="),
        ({"source": lambda: 1}, "must take an event"),
        ({"source": identity, "concurrency": 0}, "concurrency must be a whole number from 1 to 1000"),
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
def test_enrich_says_what_it_needs(arguments: Any, sentence: str) -> None:
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
def test_sql_is_a_select_that_works_event_by_event(query: Any, sentence: str) -> None:
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
def test_sql_may_gather_what_is_not_the_stream(query: str) -> None:
    assert ORDERS.sql(query, fx="app.fx").steps


def test_a_reference_table_is_not_called_stream() -> None:
    refused(lambda: ORDERS.sql("SELECT 1 FROM stream", stream="t"), "another name")


@pytest.mark.parametrize("value", [None, "a > 1", 7, COLUMN], ids=str)
def test_foreach_takes_a_function(value: Any) -> None:
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
def test_only_enrich_takes_an_async_function(define: Callable[[], Any]) -> None:
    refused(define, r"only \.enrich\(f\) waits")


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
        (lambda: WINDOWED.window_tumbling(seconds=9, late="drop"), "say late at the first window only"),
        (lambda: ORDERS.aggregate({"n": "count"}), r"needs a window before it, such as \.window_tumbling"),
        (lambda: ORDERS.reduce(max, 0), "needs a window before it"),
        (lambda: COUNTED.aggregate({"m": "count"}), r"into one \.aggregate"),
        (lambda: COUNTED.reduce(max, 0), "aggregates already"),
        (lambda: ORDERS.to("x").to("y"), "goes to 'x' already"),
        (lambda: ORDERS.to("orders"), "would never end"),
    ],
)
def test_what_is_in_the_wrong_place_is_told_where_it_belongs(define: Callable[[], Any], sentence: str) -> None:
    refused(define, sentence)


def test_a_filter_may_come_after_key_by() -> None:
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
def test_an_option_of_a_window_is_checked(rules: Any, option: str) -> None:
    with pytest.raises(InvalidOption, match=option) as caught:
        ORDERS.window_tumbling(seconds=5, **rules)
    assert caught.value.option == option


@pytest.mark.parametrize("aggregates", [None, {}, [], "count", agg.count()])
def test_aggregate_takes_a_mapping(aggregates: Any) -> None:
    refused(lambda: WINDOWED.aggregate(aggregates), "aggregate takes a mapping such as")


@pytest.mark.parametrize(
    "name", ["", "1a", "a-b", "a b", "ü", "n\n", "x" * 61, 7, None, "Key", "window_end", "is_open"]
)
def test_an_aggregate_s_name_becomes_a_column(name: Any) -> None:
    refused(lambda: WINDOWED.aggregate({name: "count"}), "it becomes a column|a column of every result")


def test_names_that_differ_in_case_only_are_refused() -> None:
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
def test_a_fold_takes_a_value_and_an_event_and_begins_with_json(function: Any, initial: Any, sentence: str) -> None:
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
def test_a_stream_that_is_not_whole_is_refused(stream: Definition, sentence: str) -> None:
    refused(stream.check, sentence)


@pytest.mark.parametrize("stream", [COUNTED, ORDERS.to("x"), ORDERS.foreach(print), WINDOWED.reduce(max, 0)])
def test_a_stream_that_is_whole_passes(stream: Definition) -> None:
    stream.check()

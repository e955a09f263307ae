"""A field that no recent event has is refused when a query first starts, with the fields that it may stand for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from penstock import Stream, agg, token_bucket_gate
from penstock.core.errors import InvalidSql, UnknownField
from penstock.engine.driver.missing_fields import FieldsRead, MissingFields
from tests.conditions import eventually
from tests.engine.pipelines import NEVER_IDLE, T0, Bench, stream

ORDERS = [
    ("k", {"at": T0 + n, "price": n, "customer": "ada", "meta": {"at": T0 + n}, "coupon": None}) for n in range(20)
]


@pytest.fixture
def orders(bench: Bench) -> Bench:
    bench.queue(partitions=1)
    bench.push(ORDERS)
    with psycopg.connect(bench.url, autocommit=True) as conn:
        conn.execute("CREATE TABLE customers AS SELECT 'ada' AS customer, 'gold' AS segment")
    return bench


def windowed(made: Any, event_time: Any = "at") -> Any:
    return made.window_tumbling(seconds=3600, event_time=event_time, idle_flush_seconds=NEVER_IDLE)


def totals(field: str) -> dict[str, Any]:
    return {"total": agg.sum(field)}


MISSPELT: dict[str, tuple[Callable[[], Any], str, str]] = {
    "an argument": (lambda: windowed(stream()).aggregate(totals("prise")), "prise", "price"),
    "an expression in an argument": (lambda: windowed(stream()).aggregate(totals("prise * 2")), "prise", "price"),
    "another case": (lambda: windowed(stream()).aggregate(totals("Price")), "Price", "price"),
    "a key": (lambda: windowed(stream().key_by("custmer")).aggregate(totals("price")), "custmer", "customer"),
    "a filter": (lambda: stream().filter("prise > 3").to("out"), "prise", "price"),
    "a select list": (lambda: stream().map("prise * 2 AS twice").to("out"), "prise", "price"),
    "a query": (lambda: stream().sql("SELECT prise FROM stream").to("out"), "prise", "price"),
    "the event time": (lambda: windowed(stream(), "att").aggregate(totals("price")), "att", "at"),
    "a nested event time": (lambda: windowed(stream(), "meta.att").aggregate(totals("price")), "meta.att", "at"),
    "the key of a sink": (lambda: stream().to("out", partition="custmer"), "custmer", "customer"),
    "a lookup": (lambda: stream().enrich("customers", on="custommer").to("out"), "custommer", "customer"),
    "an argument after a lookup": (
        lambda: windowed(stream().enrich("customers", on="customer")).aggregate({"s": "max(segmnt)"}),
        "segmnt",
        "",
    ),
    "after a function": (
        lambda: windowed(stream().filter(lambda event: event["price"] > 3)).aggregate(totals("prise")),
        "prise",
        "price",
    ),
    "after functions in the middle": (
        lambda: windowed(stream().filter("price > 3").map(lambda e: {**e, "cost": 1})).aggregate(totals("cozt")),
        "cozt",
        "cost",
    ),
    "streaming SQL": (
        lambda: Stream.sql("INSERT INTO out SELECT sum(prise) AS total FROM orders GROUP BY window(at, '1 hour')"),
        "prise",
        "price",
    ),
    "the time of streaming SQL": (
        lambda: Stream.sql("INSERT INTO out SELECT sum(price) AS total FROM orders GROUP BY window(att, '1 hour')"),
        "att",
        "at",
    ),
    "the group of streaming SQL": (
        lambda: Stream.sql(
            "INSERT INTO out SELECT custmer, count(*) AS n FROM orders GROUP BY custmer, window(at, '1 hour')"
        ),
        "custmer",
        "customer",
    ),
}


@pytest.mark.parametrize("case", MISSPELT)
def test_a_misspelt_field_is_refused_with_the_nearest_names(orders: Bench, case: str) -> None:
    make, field, suggestion = MISSPELT[case]
    with pytest.raises(UnknownField, match=r"none of the newest events|there is no field") as refused:
        orders.run(make())
    assert refused.value.field == field
    assert suggestion in refused.value.suggestions or not suggestion
    assert "__" not in str(refused.value)
    assert orders.letters() == []
    # The name is free for the corrected stream.
    orders.run(windowed(stream()).aggregate(totals("price")))
    assert orders.by_key("total") == {"k": sum(range(20))}


def joined(left: Any = None, on: Any = "customer", event_time: Any = "at", step: str = "left.price AS p") -> Any:
    made = (left or stream()).join(stream("payments"), on=on, within=60, event_time=event_time)
    return made.map(step).to("out")


def gated(**cost: Any) -> Any:
    return stream("by-key").gate(token_bucket_gate(capacity=100, refill_per_sec=10, **cost)).to("out")


def statement(text: str) -> Any:
    return Stream.sql(f"CREATE REFERENCE customers FROM 'public.customers'; INSERT INTO out {text}")


def per_hour(argument: str, where: str = "", group: str = "") -> Any:
    return statement(f"SELECT {argument} AS v FROM orders {where} GROUP BY {group}window(at, '1 hour')")  # noqa: S608


def paired(select: str = "o.price", on: str = "p.customer = o.customer", where: str = "") -> Any:
    return statement(
        f"SELECT {select} AS v FROM orders o JOIN payments p ON {on} "  # noqa: S608
        f"AND p.at BETWEEN o.at AND o.at + INTERVAL '1 minute' {where}"
    )


#: Other places of a field, each with a name that no event has, and the name that was meant.
PLACES: dict[str, tuple[Callable[[], Any], str, str]] = {
    "a nested argument": (lambda: windowed(stream()).aggregate(totals("meta.att")), "att", "at"),
    "a nested field in a filter": (lambda: stream().filter("meta.att > 0").to("out"), "att", "at"),
    "a nested key": (lambda: windowed(stream().key_by("meta.att")).aggregate(totals("price")), "att", "at"),
    "a part of a key": (
        lambda: windowed(stream().key_by("customer", "custmer")).aggregate(totals("price")),
        "custmer",
        "customer",
    ),
    "an expression in a key": (
        lambda: windowed(stream().key_by("upper(custmer)")).aggregate(totals("price")),
        "custmer",
        "customer",
    ),
    "count_if": (lambda: windowed(stream()).aggregate({"n": agg.count_if("prise > 1")}), "prise", "price"),
    "count_distinct": (lambda: windowed(stream()).aggregate({"n": agg.count_distinct("prise")}), "prise", "price"),
    "top_k": (lambda: windowed(stream()).aggregate({"n": agg.top_k("prise", 3)}), "prise", "price"),
    "first": (lambda: windowed(stream()).aggregate({"n": agg.first("prise")}), "prise", "price"),
    "the time of sessions": (
        lambda: stream().window_session(gap=5, event_time="att").aggregate(totals("price")),
        "att",
        "at",
    ),
    "a flat map": (lambda: stream().flat_map("array(prise)").to("out"), "prise", "price"),
    "a filter after a filter": (lambda: stream().filter("price > 1").filter("prise > 1").to("out"), "prise", "price"),
    "one of several lookup fields": (
        lambda: stream().enrich("customers", on=["customer", "segmnt"]).to("out"),
        "segmnt",
        "",
    ),
    "a column of a lookup": (
        lambda: stream().enrich("customers", on="customer").filter("segmant = 'gold'").to("out"),
        "segmant",
        "segment",
    ),
    "the cost of a gate": (lambda: gated(cost_fn="prise"), "prise", "price"),
    "an expression in the cost of a gate": (lambda: gated(cost_fn="prise * 2"), "prise", "price"),
    "an expression in the key of a sink": (
        lambda: stream().to("out", partition="upper(custmer)"),
        "custmer",
        "customer",
    ),
    "the field of a join": (lambda: joined(on="custmer"), "custmer", "customer"),
    "the other field of a join": (lambda: joined(on={"customer": "custmer"}), "custmer", "customer"),
    "the time of a join": (lambda: joined(event_time="att"), "att", "at"),
    "the other time of a join": (lambda: joined(event_time=("at", "att")), "att", "at"),
    "a filter before a join": (lambda: joined(stream().filter("prise > 1")), "prise", "price"),
    "a select list after a join": (lambda: joined(step="right.prise AS p"), "prise", "price"),
    "a nested field after a join": (lambda: joined(step="right.meta.att AS p"), "att", "at"),
    "a bare field after a join": (lambda: joined(step="price AS p"), "price", ""),
    "SQL: an argument": (lambda: per_hour("sum(prise)"), "prise", "price"),
    "SQL: an expression in an argument": (lambda: per_hour("sum(price * prise)"), "prise", "price"),
    "SQL: WHERE": (lambda: per_hour("sum(price)", "WHERE prise > 1"), "prise", "price"),
    "SQL: FILTER": (lambda: per_hour("sum(price) FILTER (WHERE prise > 1)"), "prise", "price"),
    "SQL: GROUP BY": (lambda: per_hour("count(*)", group="custmer, "), "custmer", "customer"),
    "SQL: an expression in GROUP BY": (lambda: per_hour("count(*)", group="upper(custmer), "), "custmer", "customer"),
    "SQL: a select list": (lambda: statement("SELECT prise * 2 AS v FROM orders"), "prise", "price"),
    "SQL: CASE": (lambda: statement("SELECT CASE WHEN prise > 1 THEN 1 END AS v FROM orders"), "prise", "price"),
    "SQL: WHERE of events": (lambda: statement("SELECT * FROM orders WHERE prise > 1"), "prise", "price"),
    "SQL: DISTRIBUTE BY": (lambda: statement("SELECT price FROM orders DISTRIBUTE BY prise"), "prise", "price"),
    "SQL: a subquery": (lambda: statement("SELECT p FROM (SELECT prise AS p FROM orders) s"), "prise", "price"),
    "SQL: around a subquery": (lambda: statement("SELECT prise FROM (SELECT price FROM orders) s"), "prise", "price"),
    "SQL: a session": (
        lambda: statement("SELECT count(*) AS n FROM orders GROUP BY session_window(att, '5 seconds')"),
        "att",
        "at",
    ),
    "SQL: a join": (lambda: paired(on="p.custmer = o.customer"), "custmer", "customer"),
    "SQL: the other side of a join": (lambda: paired(on="p.customer = o.custmer"), "custmer", "customer"),
    "SQL: a select list over a join": (lambda: paired("p.prise"), "prise", "price"),
    "SQL: WHERE over a join": (lambda: paired(where="WHERE p.prise > 1"), "prise", "price"),
    "SQL: a reference table": (
        lambda: statement("SELECT o.price FROM orders o JOIN customers c ON c.customer = o.custmer"),
        "custmer",
        "customer",
    ),
    "SQL: a column of a reference table": (
        lambda: statement("SELECT c.segmant FROM orders o JOIN customers c ON c.customer = o.customer"),
        "segmant",
        "segment",
    ),
    "SQL: HAVING": (
        lambda: statement("SELECT sum(price) AS total FROM orders GROUP BY window(at, '1 hour') HAVING sum(prise) > 1"),
        "prise",
        "price",
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_misspelt_field_is_refused_wherever_it_is_named(orders: Bench, place: str) -> None:
    make, field, suggestion = PLACES[place]
    orders.queue("payments", partitions=1)
    orders.push(ORDERS, "payments")
    orders.queue("by-key", "key")
    orders.push(ORDERS, "by-key")
    with pytest.raises((UnknownField, InvalidSql)) as refused:
        orders.run(make())
    if isinstance(refused.value, UnknownField):
        assert refused.value.field.rpartition(".")[2] == field
        assert suggestion in refused.value.suggestions or not suggestion
    assert field in str(refused.value)
    assert suggestion in str(refused.value)
    assert "__" not in str(refused.value)
    assert orders.letters() == []


def test_fields_of_joined_streams_are_checked(orders: Bench) -> None:
    orders.queue("payments", partitions=1)
    orders.push(ORDERS, "payments")

    def join(on: str, output: str) -> Any:
        joined = stream().join(stream("payments"), on=on, within=60, event_time="at")
        return joined.map(f"left.price, right.{output} AS paid").to("out")

    with pytest.raises(UnknownField, match="'custmer'"):
        orders.run(join("custmer", "price"))
    with pytest.raises(UnknownField, match="'prise'"):
        orders.run(join("customer", "prise"))
    orders.run(join("customer", "price"))
    assert orders.emitted("out")


@pytest.mark.parametrize(
    ("schema", "field", "options"),
    [
        ({"discount": "double"}, "discount", {}),
        ({}, "discount", {"strict": False}),
        # Events have this field, though it is always null.
        ({}, "coupon", {}),
    ],
)
def test_a_field_of_later_events_can_be_allowed(orders: Bench, schema: Any, field: str, options: Any) -> None:
    made = windowed(stream(schema=schema)).aggregate({"n": "count(*)", **totals(field)})
    orders.run(made, flush=False, **options)
    orders.push([("k", {"at": T0, field: 2})])
    # Nothing is refused for a query that was started before.
    orders.run(made)
    assert orders.by_key("total") == {"k": 2}
    assert orders.by_key("n") == {"k": 21}


def test_a_query_that_waits_for_its_first_event_is_not_refused(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.queue(partitions=1)
    with (
        caplog.at_level(logging.WARNING, "penstock.engine"),
        bench.running(windowed(stream()).aggregate(totals("prise"))) as query,
    ):
        bench.push(ORDERS)
        eventually(lambda: query.status.events_in == len(ORDERS), "the events")
    assert "field 'prise' has a value in none of the newest events" in caplog.text


def test_a_running_query_warns_once_of_a_field_that_events_no_longer_have(
    orders: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    newest: list[str] = []

    def read_newest(queues: Any) -> Any:
        newest.extend(queues)
        return orders.penstock.queue(queues[0]).browse(limit=1000)

    checked = MissingFields("totals", [FieldsRead(["orders"], {"price", "prise"})], read_newest)
    with caplog.at_level(logging.WARNING, "penstock.engine"):
        checked.check()
        checked.check()
    assert newest == ["orders", "orders"]
    assert [record.getMessage() for record in caplog.records] == [
        "query 'totals': none of the newest events of 'orders' has the field 'prise' (did you mean 'price'?); "
        "it is null in the results"
    ]


@pytest.mark.parametrize("with_function", [False, True])
def test_dead_letters_name_the_field_of_the_event_time(orders: Bench, with_function: bool) -> None:
    made = stream().filter(lambda event: True) if with_function else stream()
    orders.push([("k", {"att": T0, "price": 1})])
    orders.run(windowed(made, "att").aggregate(totals("price")))
    letters = orders.letters()
    assert len(letters) == len(ORDERS)
    assert all(
        letter.stage == "event time" and "field 'att': the event has no time" in letter.error for letter in letters
    )

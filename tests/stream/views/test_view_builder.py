"""The methods of a stream that make views refuse what a view cannot do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import agg
from penstock.core.errors import InvalidRequest, InvalidSql
from penstock.stream.definition import Definition
from penstock.stream.fingerprint import describe
from penstock.stream.gates import token_bucket_gate
from penstock.stream.statements.statement_parser import parse_application

ORDERS = Definition.from_("orders", schema={"id": "bigint", "customer": "string", "amount": "decimal(18, 2)"})
VIEW = "CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM orders GROUP BY customer"
TOTALS = ORDERS.key_by("customer").aggregate({"n": agg.count(), "total": "sum(amount)"})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TOTALS.window_tumbling(seconds=5), "a window comes after a view"),
        (lambda: TOTALS.gate(token_bucket_gate(capacity=1, refill_per_sec=1)), "a gate comes after a view"),
        (lambda: TOTALS.foreach(print), "foreach-1 comes after a view"),
        (lambda: TOTALS.map(lambda row: row), "map of a view is SQL"),
        (lambda: TOTALS.aggregate({"n": agg.count()}), "no key of their own"),
        (lambda: TOTALS.key_by("n").check(), "add .aggregate"),
        (lambda: Definition.from_("orders").latest(by="id"), "not known: name them before"),
        (lambda: ORDERS.join(TOTALS, on="customer", how="outer"), "a join is inner"),
        (lambda: ORDERS.join(TOTALS, on="customer", event_time="at"), "belong to a join with within"),
        (lambda: TOTALS.materialize("t", indexes=["x"]), "there is no column 'x' to index"),
        (lambda: ORDERS.aggregate({"top": agg.top_k("id")}), "top_k needs a window"),
        (lambda: TOTALS.materialize("t", state_ttl_seconds=0), "state_ttl_seconds must be a number from 1"),
        (lambda: ORDERS.materialize("t", state_ttl_seconds=60), "none of its operators keeps rows of events"),
    ],
)
def test_what_a_view_cannot_do_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        make()


def test_methods_after_an_aggregate_work_on_its_rows() -> None:
    view = TOTALS.having("n > 10").select({"customer": "customer", "mean": "total / n"}).top(3, by="mean")
    lines = "\n".join(describe(view))
    assert "first 3" in lines
    assert "> 10" in lines


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("INSERT INTO z SELECT n FROM v", "is a materialized view"),
        ("CREATE MATERIALIZED VIEW w WITH (grace = 1) AS SELECT n FROM v", "'grace' is no option"),
        ("CREATE MATERIALIZED VIEW w WITH (indexes = 'x') AS SELECT n FROM v", "no column 'x' to index"),
        ("CREATE MATERIALIZED VIEW v AS SELECT n FROM orders", "two queries are called 'v'"),
    ],
)
def test_statements_that_views_do_not_allow_are_refused(statement: str, message: str) -> None:
    with pytest.raises(InvalidSql, match=message):
        parse_application(Definition, f"{VIEW}; {statement}")


def test_a_view_over_a_view_reads_its_changes() -> None:
    application = parse_application(
        Definition,
        "CREATE MATERIALIZED VIEW a AS SELECT customer, count(*) AS n FROM orders GROUP BY customer;"
        "CREATE MATERIALIZED VIEW b AS SELECT n, count(*) AS customers FROM a GROUP BY n",
    )
    assert application.queries["a"].stream.sink == "a.changes"
    assert application.queries["b"].stream.sources == ("a.changes",)
    assert [query.name for query in application.queries_in_order()] == ["a", "b"]


def test_a_column_called_updated_at_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="updated_at is the time of a row's last change"):
        TOTALS.select({"customer": "customer", "updated_at": "n"})


def test_a_view_of_a_statement_takes_no_more_steps() -> None:
    stream = Definition.sql(
        "CREATE MATERIALIZED VIEW v AS SELECT customer, count(*) AS n FROM orders GROUP BY customer"
    )
    with pytest.raises(InvalidRequest, match="takes no more steps"):
        stream.top(3, by="n")


def test_a_time_to_live_is_refused_where_joined_events_meet_a_reference_table() -> None:
    statements = (
        "CREATE REFERENCE customers FROM 'shop.customers';"
        "CREATE MATERIALIZED VIEW v WITH (state_ttl_seconds = 60) AS SELECT a.id, c.country FROM {}"
    )
    before = (
        "(SELECT a.id, c.country FROM orders a JOIN customers c ON c.id = a.customer) c JOIN payments a ON a.id = c.id"
    )
    parse_application(Definition, statements.format(before))
    after = "orders a JOIN payments b ON a.id = b.id JOIN customers c ON c.id = a.customer"
    with pytest.raises(InvalidRequest, match="the reference table customers is read once for each row"):
        parse_application(Definition, statements.format(after))

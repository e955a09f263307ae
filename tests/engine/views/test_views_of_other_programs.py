"""Views over views that other programs run."""

# ruff: noqa: S608 - SQL of tests

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.core.errors import Conflict, InvalidRequest, InvalidSql, NotFound
from penstock.engine.stream import Stream
from tests.engine.pipelines import Bench
from tests.engine.views.statements import comparable, expected_rows, make_views, random_order, read_rows

TOTALS = "SELECT customer, count(*) AS orders, sum(amount) AS total, max(placed) AS last FROM orders GROUP BY customer"
LEVELS = "SELECT orders, count(*) AS customers, sum(total) AS total, max(last) AS last FROM {} GROUP BY orders"


def totals(changes: str | None = "totals.changes", select: str = TOTALS) -> Any:
    options = "" if changes is None else f"WITH (changes = '{changes}')"
    return make_views(f"CREATE MATERIALIZED VIEW totals {options} AS {select}")["totals"][0]


def levels(select: str = LEVELS.format("totals")) -> Any:
    return make_views(f"CREATE MATERIALIZED VIEW levels AS {select}")["levels"][0]


@pytest.fixture
def shop(bench: Bench) -> Bench:
    bench.queue("orders")
    bench.queue("payments")
    return bench


def push_orders(bench: Bench, chance: random.Random, start: int, count: int) -> None:
    bench.push([(None, random_order(chance, number)) for number in range(start, start + count)])


def test_a_view_follows_a_view_of_another_program(shop: Bench) -> None:
    chance = random.Random(1)
    for start in (0, 30, 60):
        push_orders(shop, chance, start, 30)
        shop.run(totals(), "totals", max_events_per_cycle=11)
        # Views of the database are read from their first change, wherever other queues are read from.
        shop.run(levels(), "levels", max_events_per_cycle=7, subscription_from="now")
        assert read_rows(shop.url, "levels") == expected_rows(shop, LEVELS.format(f"({TOTALS})"))


def test_a_view_joins_a_queue_with_a_view_of_another_program(shop: Bench) -> None:
    select = "SELECT o.id, t.total FROM orders o JOIN {} t ON o.customer = t.customer WHERE o.amount > 1"
    push_orders(shop, random.Random(2), 0, 40)
    shop.run(totals(), "totals")
    shop.run(levels(select.format("totals")), "levels")
    push_orders(shop, random.Random(3), 40, 10)
    shop.run(totals(), "totals")
    shop.run(levels(select.format("totals")), "levels")
    assert read_rows(shop.url, "levels") == expected_rows(shop, select.format(f"({TOTALS})"))


def test_methods_read_a_view_of_another_program(shop: Bench) -> None:
    push_orders(shop, random.Random(4), 0, 40)
    shop.run(totals(), "totals")
    made = Stream.from_("totals").key_by("orders").aggregate({"customers": "count(*)", "total": "sum(total)"})
    shop.run(made.filter("customers > 0").materialize("sizes", indexes=["total"]), "sizes")
    question = f"SELECT orders, count(*) AS customers, sum(total) AS total FROM ({TOTALS}) GROUP BY orders"
    assert read_rows(shop.url, "sizes") == expected_rows(shop, question)
    with pytest.raises(InvalidRequest, match="'totals' is a view, and filter-1 a step on events"):
        shop.run(Stream.from_("totals").filter("total > 1").map("customer").materialize("large"), "large")


def test_a_preview_reads_the_rows_of_other_views(shop: Bench) -> None:
    push_orders(shop, random.Random(5), 0, 40)
    shop.run(totals(), "totals")
    rows = levels().preview(settings=shop.settings)
    question = LEVELS.format(f"({TOTALS})")
    shown = comparable((r["orders"], r["customers"], r["total"]) for r in rows)
    assert shown == expected_rows(shop, f"SELECT orders, customers, total FROM ({question})")
    assert "view totals" in levels().explain(settings=shop.settings)


def test_a_preview_says_which_view_has_to_run_first(shop: Bench) -> None:
    views = make_views(
        f"CREATE MATERIALIZED VIEW a AS {TOTALS}; CREATE MATERIALIZED VIEW b AS SELECT max(total) AS m FROM a"
    )
    with pytest.raises(InvalidRequest, match="the view 'a', which this one reads, has no rows yet"):
        views["b"][0].preview(settings=shop.settings)


def test_a_queue_comes_before_a_view_of_the_same_name(shop: Bench) -> None:
    push_orders(shop, random.Random(6), 0, 5)
    shop.run(totals(), "totals")
    shop.queue("totals")
    shop.push([(None, {"orders": 7, "total": 1, "last": None})], "totals")
    shop.run(levels("SELECT orders, count(*) AS n FROM totals GROUP BY orders"), "levels")
    assert read_rows(shop.url, "levels") == comparable([(7, 1)])


@pytest.mark.parametrize(
    ("select", "error"),
    [
        (
            "SELECT max(missing) AS m FROM totals",
            "there is no column 'missing'; totals has customer, orders, total, last",
        ),
        ("SELECT max(_time) AS m FROM totals", "there is no column '_time'"),
    ],
)
def test_columns_are_those_of_the_other_view(shop: Bench, select: str, error: str) -> None:
    push_orders(shop, random.Random(7), 0, 5)
    shop.run(totals(), "totals")
    with pytest.raises(InvalidSql) as raised:
        shop.run(levels(select), "levels")
    assert error in str(raised.value)


def test_views_that_cannot_be_read_are_refused(shop: Bench) -> None:
    push_orders(shop, random.Random(8), 0, 5)
    with pytest.raises(NotFound, match="totals"):
        shop.run(levels(), "levels")
    shop.run(totals(changes=None), "totals")
    with pytest.raises(InvalidRequest, match=r"WITH \(changes = 'totals.changes'\) and reset=True"):
        shop.run(levels(), "levels")
    with pytest.raises(InvalidRequest, match="the view 'totals' reads itself"):
        shop.run(totals(select="SELECT count(*) AS n FROM totals"), "totals")


def test_a_view_that_was_started_over_is_read_from_its_new_start(shop: Bench) -> None:
    push_orders(shop, random.Random(9), 0, 30)
    shop.run(totals(), "totals")
    shop.run(levels(), "levels")
    shop.run(totals(), "totals", reset=True)
    with pytest.raises(Conflict, match="the view 'totals' was started over, and 'levels' has rows of its earlier run"):
        shop.run(levels(), "levels")
    shop.run(levels(), "levels", reset=True)
    push_orders(shop, random.Random(10), 30, 30)
    shop.run(totals(), "totals")
    shop.run(levels(), "levels")
    assert read_rows(shop.url, "levels") == expected_rows(shop, LEVELS.format(f"({TOTALS})"))


def test_dropped_changes_are_missed(shop: Bench) -> None:
    push_orders(shop, random.Random(11), 0, 30)
    shop.run(totals(), "totals")
    shop.ask(
        "UPDATE penstock.partitions SET sealed_end = 1 FROM penstock.queues q WHERE q.id = queue_id "
        "AND q.name = 'totals.changes' RETURNING 1"
    )
    shop.ask(
        "UPDATE penstock.segments SET created_at = clock_timestamp() FROM penstock.queues q WHERE q.id = queue_id "
        "AND q.name = 'totals.changes' RETURNING 1"
    )
    with pytest.raises(Conflict, match=r"the retention of the queue 'totals\.changes' has dropped changes"):
        shop.run(levels(), "levels")

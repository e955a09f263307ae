"""Views whose definition changes: those that keep their state, and those that are rebuilt beside the old version."""

# ruff: noqa: S608 - SQL of tests

from __future__ import annotations

import json
import random
from typing import Any

import psycopg
import pytest

from penstock.core.errors import Conflict, InvalidOption, InvalidRequest, QueryChanged, QueryReplaced
from tests.conditions import eventually
from tests.engine.pipelines import Bench
from tests.engine.views.statements import expected_rows, make_views, random_order, random_payment, read_rows
from tests.engine.views.test_views import replay_changes

TOTALS = "SELECT customer, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY customer"
CHANGES = "changes = 'v.changes'"
#: The definitions of a view, one after the other.
VERSIONS = {
    "a filter": (TOTALS, TOTALS.replace("GROUP", "WHERE amount > 1 GROUP")),
    "a column more": (TOTALS, TOTALS.replace("sum(amount)", "max(id) AS last, sum(amount)")),
    "a column less": (TOTALS, TOTALS.replace("count(*) AS orders, ", "")),
    "another type": (TOTALS, TOTALS.replace("count(*)", "CAST(count(*) AS double)")),
    "another key": (TOTALS, "SELECT id, sum(amount) AS total FROM orders GROUP BY id"),
    "one row": (TOTALS, "SELECT count(*) AS orders, sum(amount) AS total FROM orders"),
    "a hidden key": ("SELECT id, amount FROM orders", "SELECT id, amount * 2 AS amount FROM orders WHERE amount > 0"),
    "another queue": (TOTALS, "SELECT order_id AS customer, count(*) AS orders FROM payments GROUP BY order_id"),
    "a join": (TOTALS, "SELECT o.id, p.paid FROM orders o LEFT JOIN payments p ON p.order_id = o.id"),
    "equal rows": (TOTALS, "SELECT * FROM (" + TOTALS + ") WHERE orders > 0"),
}


def view(select: str, options: str = CHANGES, name: str = "v") -> Any:
    given = f"WITH ({options})" if options else ""
    return make_views(f"CREATE MATERIALIZED VIEW {name} {given} AS {select}")[name][0]


@pytest.fixture
def shop(bench: Bench) -> Bench:
    bench.queue("orders")
    bench.queue("payments")
    return bench


def push(bench: Bench, seed: int, start: int, count: int) -> None:
    chance = random.Random(seed)
    numbers = range(start, start + count)
    for queue, make in (("orders", random_order), ("payments", random_payment)):
        bench.push([(None, make(chance, number)) for number in numbers], queue)


def indexes(bench: Bench) -> set[str]:
    found = bench.ask(
        "SELECT array_agg(substring(pg_get_indexdef(i.indexrelid) FROM '\\((.*)\\)')) FROM pg_index i "
        "WHERE i.indrelid = ('penstock.view_' || (SELECT id FROM penstock.queries WHERE name = 'v'))::regclass"
    )
    return set(found)


def ops(bench: Bench) -> list[str]:
    return [json.loads(event.raw)["op"] for event in bench.events("v.changes")]


def test_indexes_change_and_the_state_stays(shop: Bench) -> None:
    push(shop, 1, 0, 40)
    for options, expected in (
        ("indexes = 'total; customer, orders'", {"total", "customer, orders"}),
        ("indexes = 'customer, orders; orders'", {"customer, orders", "orders"}),
        ("", set[str]()),
    ):
        query = shop.run(view(TOTALS, options), "v")
        assert indexes(shop) - {"customer"} == expected
    assert query.status.events_in == 0
    push(shop, 2, 40, 5)
    shop.run(view(TOTALS, ""), "v")
    assert read_rows(shop.url, "v") == expected_rows(shop, TOTALS)


def test_a_changes_queue_begins_with_all_rows(shop: Bench) -> None:
    push(shop, 3, 0, 40)
    shop.run(view(TOTALS, ""), "v")
    query = shop.run(view(TOTALS), "v")
    assert query.status.events_in == 0
    assert set(ops(shop)) == {"insert"}
    push(shop, 4, 40, 40)
    shop.run(view(TOTALS), "v")
    assert replay_changes(shop, "v.changes") == expected_rows(shop, TOTALS)
    # A view that reads it begins with these rows, also if the queue has older ones.
    shop.run(view(TOTALS, ""), "v")
    push(shop, 5, 80, 10)
    shop.run(view(TOTALS, ""), "v")
    shop.run(view(TOTALS), "v")
    levels = "SELECT orders, count(*) AS n FROM {} GROUP BY orders"
    shop.run(view(levels.format("v"), "", "w"), "w")
    assert read_rows(shop.url, "w") == expected_rows(shop, levels.format(f"({TOTALS})"))
    with pytest.raises(Conflict, match="the view 'w' reads the changes of 'v'"):
        shop.run(view(TOTALS, ""), "v")


def test_another_statement_needs_a_rebuild(shop: Bench) -> None:
    push(shop, 6, 0, 5)
    shop.run(view(TOTALS), "v")
    with pytest.raises(QueryChanged, match=r"its rows would be wrong(?s:.*)rebuild=True to compute the new version"):
        shop.run(view(VERSIONS["a filter"][1]), "v")
    with pytest.raises(InvalidOption, match="reset and rebuild exclude each other"):
        shop.run(view(TOTALS), "v", rebuild=True, reset=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_rebuilt_view_is_that_of_its_new_definition(shop: Bench, version: str) -> None:
    before, after = VERSIONS[version]
    push(shop, 7, 0, 60)
    shop.run(view(before), "v")
    written = len(ops(shop))
    push(shop, 8, 60, 10)
    shop.run(view(after), "v", rebuild=True)
    assert read_rows(shop.url, "v") == expected_rows(shop, after)
    assert replay_changes(shop, "v.changes") == expected_rows(shop, after)
    if version == "equal rows":
        # Only the orders that were pushed after the first run have changes.
        assert len(ops(shop)) - written <= 5
    push(shop, 9, 70, 30)
    # The definition is the same now, so nothing is rebuilt.
    query = shop.run(view(after), "v", rebuild=True)
    assert query.status.events_in > 0
    assert read_rows(shop.url, "v") == expected_rows(shop, after)
    assert replay_changes(shop, "v.changes") == expected_rows(shop, after)
    assert shop.ask("SELECT array_agg(name) FROM penstock.queries") == ["v"]
    assert shop.ask("SELECT array_agg(DISTINCT query_id) FROM penstock.groups WHERE query_id IS NOT NULL") == ["v"]
    assert shop.ask("SELECT count(*) FROM pg_tables WHERE tablename ~ '^view_[0-9]+$'") == 1
    assert shop.ask("SELECT count(*) FROM pg_views WHERE schemaname = 'penstock_live'") == 1


_TYPES = (
    "placed, amount, CAST(amount AS double) / 3 AS d, CAST(placed AS date) AS day, amount > 2 AS large, "
    "decode(encode(customer, 'utf-8'), 'utf-8') AS who"
)


@pytest.mark.parametrize(
    "select",
    [
        f"SELECT {_TYPES}, count(*) AS n FROM orders GROUP BY ALL",
        f"SELECT {_TYPES}, array(id, NULL) AS ids, named_struct('x', amount, 'y', array(customer)) AS s, "
        "map(id, placed) AS m, encode(customer, 'utf-8') AS b, CAST(id AS smallint) AS short FROM orders",
    ],
)
def test_values_of_all_types_are_those_of_earlier_changes(shop: Bench, select: str) -> None:
    push(shop, 25, 0, 40)
    shop.run(view(select), "v")
    rows, written = read_rows(shop.url, "v"), len(ops(shop))
    # The same rows, computed in another way.
    shop.run(view(f"SELECT * FROM ({select}) WHERE coalesce(amount, 0) > -1000"), "v", rebuild=True)
    assert (read_rows(shop.url, "v"), len(ops(shop))) == (rows, written)
    # Each change has to fit the one before it, with its key and all values.
    shop.run(view(f"SELECT * FROM ({select}) WHERE amount > 1"), "v", rebuild=True)
    assert replay_changes(shop, "v.changes").total() == read_rows(shop.url, "v").total() < rows.total()
    shop.run(view(select), "v", rebuild=True)
    assert replay_changes(shop, "v.changes").total() == rows.total()
    assert read_rows(shop.url, "v") == rows


def test_a_rebuilt_view_without_changes(shop: Bench) -> None:
    push(shop, 10, 0, 30)
    shop.run(view(TOTALS, ""), "v")
    after = VERSIONS["a filter"][1]
    shop.run(view(after, "indexes = 'total'"), "v", rebuild=True)
    assert read_rows(shop.url, "v") == expected_rows(shop, after)
    assert "total" in indexes(shop)


def test_a_rebuild_reads_from_where_the_view_began(shop: Bench) -> None:
    push(shop, 11, 0, 30)
    shop.run(view(TOTALS), "v", subscription_from="now")
    shop.push([(None, {"id": 99, "customer": "eve", "amount": 5, "placed": None})])
    shop.run(view(VERSIONS["a column more"][1]), "v", rebuild=True)
    assert [row[0] for row in read_rows(shop.url, "v")] == ["eve"]


def test_a_running_view_is_replaced_and_its_driver_ends(shop: Bench) -> None:
    after = VERSIONS["a column more"][1]
    push(shop, 12, 0, 60)
    old = view(TOTALS).start("v", settings=shop.settings, interval_seconds=0.0)
    with shop.running(view(after), "v", rebuild=True) as query:
        eventually(lambda: not old.is_running, "the end of the old driver")
        with pytest.raises(QueryReplaced, match="another version of it was started"):
            old.wait()
        push(shop, 13, 60, 20)
        eventually(lambda: query.status.state == "running", "the start of the new version")
        eventually(lambda: read_rows(shop.url, "v") == expected_rows(shop, after), "the rows")
    assert replay_changes(shop, "v.changes") == expected_rows(shop, after)


def test_events_that_come_during_a_rebuild_are_counted_once(shop: Bench) -> None:
    after = VERSIONS["a filter"][1]
    push(shop, 14, 0, 60)
    old = view(TOTALS).start("v", settings=shop.settings, interval_seconds=0.0)
    with shop.running(view(after), "v", rebuild=True) as query:
        number = 60
        while query.status.state != "running":
            push(shop, number, number, 10)
            number += 10
        eventually(lambda: read_rows(shop.url, "v") == expected_rows(shop, after), "the rows")
        eventually(lambda: not old.is_running, "the end of the old driver")
    assert replay_changes(shop, "v.changes") == expected_rows(shop, after)


def test_views_over_a_rebuilt_view_go_on(shop: Bench) -> None:
    levels = "SELECT orders, count(*) AS customers, sum(total) AS total FROM {} GROUP BY orders"
    push(shop, 16, 0, 60)
    shop.run(view(TOTALS), "v")
    shop.run(view(levels.format("v"), "", "w"), "w")
    push(shop, 17, 60, 20)
    after = VERSIONS["a column more"][1].replace("GROUP", "WHERE amount > 1 GROUP")
    shop.run(view(after), "v", rebuild=True)
    shop.run(view(levels.format("v"), "", "w"), "w")
    assert read_rows(shop.url, "w") == expected_rows(shop, levels.format(f"({after})"))
    # One that starts later reads the changes of all versions.
    by_last = "SELECT last, sum(total) AS total FROM {} GROUP BY last"
    shop.run(view(by_last.format("v"), "", "x"), "x")
    push(shop, 18, 80, 20)
    shop.run(view(after), "v")
    shop.run(view(by_last.format("v"), "", "x"), "x")
    assert read_rows(shop.url, "x") == expected_rows(shop, by_last.format(f"({after})"))
    # A view over a view is rebuilt from the first change on.
    largest = "SELECT orders, max(total) AS total FROM {} GROUP BY orders"
    shop.run(view(largest.format("v"), "", "w"), "w", rebuild=True)
    assert read_rows(shop.url, "w") == expected_rows(shop, largest.format(f"({after})"))


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (VERSIONS["a column less"][1], "reads the column 'orders' of 'v', which its new version does not have"),
        (
            VERSIONS["another type"][1],
            "reads the column 'orders' of 'v' as bigint, and in the new version it is double",
        ),
    ],
)
def test_columns_that_other_views_read_stay(shop: Bench, after: str, reason: str) -> None:
    push(shop, 19, 0, 20)
    shop.run(view(TOTALS), "v")
    shop.run(view("SELECT orders, count(*) AS n FROM v GROUP BY orders", "", "w"), "w")
    with pytest.raises(Conflict, match=reason):
        shop.run(view(after), "v", rebuild=True)
    push(shop, 20, 20, 20)
    shop.run(view(TOTALS), "v")
    assert read_rows(shop.url, "v") == expected_rows(shop, TOTALS)


def test_other_objects_of_the_database_that_depend_on_the_view(shop: Bench) -> None:
    push(shop, 21, 0, 20)
    shop.run(view(TOTALS), "v")
    with psycopg.connect(shop.url, autocommit=True) as conn:
        conn.execute("CREATE VIEW large AS SELECT customer FROM penstock_live.v WHERE total > 10")
        conn.execute("GRANT SELECT ON penstock_live.v TO PUBLIC")
    same_columns = VERSIONS["a filter"][1]
    shop.run(view(same_columns), "v", rebuild=True)
    assert shop.ask("SELECT count(*) FROM large") == shop.ask("SELECT count(*) FROM penstock_live.v WHERE total > 10")
    after = VERSIONS["a column more"][1]
    with pytest.raises(Conflict, match=r"view large depends on view penstock_live\.v"):
        shop.run(view(after), "v", rebuild=True)
    assert read_rows(shop.url, "v") == expected_rows(shop, same_columns)
    with psycopg.connect(shop.url, autocommit=True) as conn:
        conn.execute("DROP VIEW large")
    query = shop.run(view(after), "v", rebuild=True)
    assert query.status.events_in == 0, "the new version was computed before"
    assert read_rows(shop.url, "v") == expected_rows(shop, after)
    assert shop.ask("SELECT has_table_privilege('pg_monitor', 'penstock_live.v', 'SELECT')")


def test_dead_letters_are_those_of_the_new_version(shop: Bench) -> None:
    push(shop, 22, 0, 10)
    shop.push([(None, {"id": "no number", "customer": "eve", "amount": 1, "placed": None})])
    shop.run(view("SELECT id, amount FROM orders"), "v")
    (letter,) = shop.letters()
    shop.run(view("SELECT id, amount + 1 AS amount FROM orders"), "v", rebuild=True)
    (again,) = shop.letters()
    assert (again.group, again.offset, again.id == letter.id) == ("v", letter.offset, False)


def test_a_rebuild_that_did_not_end_is_deleted_with_the_view_or_begun_again(shop: Bench) -> None:
    push(shop, 23, 0, 20)
    shop.run(view(TOTALS), "v")
    with psycopg.connect(shop.url, autocommit=True) as conn:
        conn.execute("CREATE VIEW large AS SELECT orders FROM penstock_live.v")
    with pytest.raises(Conflict, match="depend"):
        shop.run(view(VERSIONS["another key"][1]), "v", rebuild=True)
    assert shop.ask("SELECT array_agg(name ORDER BY name) FROM penstock.queries") == ["v", "v:rebuild"]
    with psycopg.connect(shop.url, autocommit=True) as conn:
        conn.execute("DROP VIEW large")
    # Another definition than that of the unfinished rebuild.
    after = VERSIONS["a join"][1]
    shop.run(view(after), "v", rebuild=True)
    assert read_rows(shop.url, "v") == expected_rows(shop, after)
    assert replay_changes(shop, "v.changes") == expected_rows(shop, after)
    assert shop.ask("SELECT array_agg(name) FROM penstock.queries") == ["v"]


def test_an_invalid_new_version_leaves_the_view_as_it_is(shop: Bench) -> None:
    push(shop, 24, 0, 20)
    shop.run(view(TOTALS), "v")
    with pytest.raises(InvalidRequest):
        shop.run(view("SELECT customer, sum(missing) AS total FROM orders GROUP BY customer"), "v", rebuild=True)
    assert shop.ask("SELECT array_agg(name) FROM penstock.queries") == ["v"]
    assert read_rows(shop.url, "v") == expected_rows(shop, TOTALS)

"""Views that join events with reference tables: each row is looked up once, when it appears."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import duckdb
import psycopg
import pytest

from penstock.engine.driver.loop import SMALL_EVENTS
from penstock.engine.stream import Stream
from penstock.stream.reference_tables import reference_table
from tests.conditions import eventually
from tests.engine.pipelines import Bench
from tests.engine.views.statements import comparable, make_views, random_order, read_rows

#: Some customers have no row, one has two, and no row has the customer NULL.
CUSTOMERS = [("ada", "IT", 1), ("bob", "FR", 2), ("bob", "DE", 2), ("", "US", None), (None, "XX", 3), ("eve", "IT", 4)]
REFERENCE = "CREATE REFERENCE customers FROM 'public.customers' WITH (notify = 'customers');"
VIEWS = {
    "inner": "SELECT o.id, c.country FROM orders o JOIN customers c ON o.customer = c.name",
    "left": (
        "SELECT o.id, c.country, c.level FROM orders o LEFT JOIN customers c ON c.name = o.customer AND c.level > 1"
    ),
    "first": "SELECT o.id, c.country FROM customers c JOIN orders o ON o.customer = c.name AND o.amount > c.level",
    "right": "SELECT o.id, c.country FROM customers c RIGHT JOIN orders o ON trim(o.customer) = c.name",
    "range": "SELECT o.id, c.name AS smaller FROM orders o LEFT JOIN customers c ON o.amount > c.level * 2",
    "grouped": (
        "SELECT c.country, count(*) AS orders, sum(o.amount) AS total FROM orders o "
        "LEFT JOIN customers c ON o.customer = c.name WHERE o.amount > 0 GROUP BY c.country HAVING count(*) > 1"
    ),
    "exists": "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM customers c WHERE c.name = o.customer)",
    "not_exists": "SELECT id FROM orders o WHERE NOT EXISTS (SELECT 1 FROM customers c WHERE c.name = o.customer)",
    "in": "SELECT id FROM orders WHERE customer IN (SELECT name FROM customers WHERE level < 4)",
    "joined": (
        "SELECT a.id, b.id AS other, c.country FROM orders a JOIN orders b ON a.customer = b.customer AND a.id < b.id "
        "JOIN customers c ON c.name = a.customer LEFT JOIN customers d ON d.level = c.level + 1 WHERE d.country = 'XX'"
    ),
    "best": (
        "SELECT country, total FROM (SELECT c.country, sum(o.amount) AS total FROM orders o "
        "JOIN customers c ON o.customer = c.name GROUP BY c.country) ORDER BY total DESC, country LIMIT 2"
    ),
    "twice": (
        "SELECT o.id, c.country FROM orders o JOIN customers c ON o.customer = c.name WHERE o.amount > 1 UNION ALL "
        "SELECT o.id, c.country FROM orders o JOIN customers c ON o.amount = c.level"
    ),
}


@pytest.fixture
def shop(bench: Bench) -> Bench:
    bench.queue("orders")
    with psycopg.connect(bench.url, autocommit=True) as conn:
        conn.execute("CREATE TABLE customers (name text, country text, level int)")
        conn.cursor().executemany("INSERT INTO customers VALUES (%s, %s, %s)", CUSTOMERS)
    return bench


def push_orders(bench: Bench, chance: random.Random, start: int, count: int) -> None:
    bench.push([(None, random_order(chance, number)) for number in range(start, start + count)])


def view(select: str) -> Any:
    return make_views(f"{REFERENCE} CREATE MATERIALIZED VIEW v AS {select}")["v"][0]


def expected(bench: Bench, question: str) -> Counter[tuple[Any, ...]]:
    with duckdb.connect() as database:
        database.execute("CREATE TABLE orders (id bigint, customer text, amount decimal(18, 2), placed timestamptz)")
        rows = [[e.data.get(name) for name in ("id", "customer", "amount", "placed")] for e in bench.events("orders")]
        database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", rows)
        database.execute("CREATE TABLE customers (name text, country text, level int)")
        database.executemany("INSERT INTO customers VALUES (?, ?, ?)", CUSTOMERS)
        return comparable(database.execute(question).fetchall())


@pytest.mark.parametrize(
    "name", [pytest.param(v, marks=[] if v in ("left", "joined", "twice") else [pytest.mark.long]) for v in VIEWS]
)
def test_a_view_with_a_reference_table_equals_duckdb(shop: Bench, name: str) -> None:
    chance = random.Random(name)
    made = view(VIEWS[name])
    for start in (0, 40):
        push_orders(shop, chance, start, 40)
        shop.run(made, "v", max_events_per_cycle=chance.choice([9, 25, 1000]))
        assert read_rows(shop.url, "v") == expected(shop, VIEWS[name])


def test_a_large_cycle_with_a_reference_table_equals_duckdb(shop: Bench) -> None:
    push_orders(shop, random.Random(3), 0, SMALL_EVENTS + 2_000)
    shop.run(view(VIEWS["grouped"]), "v")
    assert read_rows(shop.url, "v") == expected(shop, VIEWS["grouped"])


@pytest.mark.parametrize(
    "select",
    [
        "SELECT a.id, b.id AS other FROM orders a JOIN orders b ON a.customer = b.customer "
        "JOIN customers c ON c.name = a.customer",
        "SELECT a.id, b.id AS other FROM orders a JOIN orders b ON a.customer = b.customer "
        "WHERE EXISTS (SELECT 1 FROM customers)",
    ],
    ids=["join", "exists"],
)
def test_an_empty_reference_table_keeps_the_state_of_a_join(shop: Bench, select: str) -> None:
    made = view(select)
    with psycopg.connect(shop.url, autocommit=True) as conn:
        conn.execute("DELETE FROM customers")
        shop.push([(None, {"id": 1, "customer": "ada"})])
        shop.run(made, "v")
        assert read_rows(shop.url, "v") == Counter()
        conn.execute("INSERT INTO customers VALUES ('ada', 'IT', 1)")
    shop.push([(None, {"id": 2, "customer": "ada"})])
    shop.run(made, "v")
    assert read_rows(shop.url, "v") == comparable([(1, 2), (2, 1), (2, 2)])


def test_a_view_without_rows_in_a_reference_table_keeps_all_that_do_not_exist_there(shop: Bench) -> None:
    made = view("SELECT id FROM orders WHERE NOT EXISTS (SELECT 1 FROM customers WHERE level > 9)")
    shop.push([(None, {"id": 1, "customer": "ada"})])
    shop.run(made, "v")
    assert read_rows(shop.url, "v") == comparable([(1,)])


def test_a_changed_reference_table_applies_to_later_events(shop: Bench) -> None:
    made = view("SELECT o.id, c.country FROM orders o LEFT JOIN customers c ON o.customer = c.name")
    with shop.running(made, "v"), psycopg.connect(shop.url, autocommit=True) as conn:
        shop.push([(None, {"id": 1, "customer": "ada"})])
        eventually(lambda: shop.ask("SELECT to_regclass('penstock_live.v') IS NOT NULL"))
        eventually(lambda: read_rows(shop.url, "v") == comparable([(1, "IT")]))
        conn.execute("UPDATE customers SET country = 'CH' WHERE name = 'ada'")
        conn.execute("NOTIFY customers")
        shop.push([(None, {"id": 2, "customer": "ada"})])
        eventually(lambda: read_rows(shop.url, "v") == comparable([(1, "IT"), (2, "CH")]))


def test_a_changed_table_of_enrich_before_a_view_applies_to_later_events(shop: Bench) -> None:
    table = reference_table("SELECT name AS customer, country FROM customers", 0.001)
    made = Stream.from_("orders", schema={"id": "bigint", "customer": "string"}).enrich(table, on="customer")
    made = made.map("id, country").materialize("v")
    with shop.running(made, "v"), psycopg.connect(shop.url, autocommit=True) as conn:
        shop.push([(None, {"id": 1, "customer": "ada"})])
        eventually(lambda: shop.ask("SELECT to_regclass('penstock_live.v') IS NOT NULL"))
        eventually(lambda: read_rows(shop.url, "v") == comparable([(1, "IT")]))
        conn.execute("UPDATE customers SET country = 'CH' WHERE name = 'ada'")
        shop.push([(None, {"id": 2, "customer": "ada"})])
        eventually(lambda: read_rows(shop.url, "v") == comparable([(1, "IT"), (2, "CH")]))


def test_a_preview_joins_with_a_reference_table(shop: Bench) -> None:
    push_orders(shop, random.Random(1), 0, 30)
    rows = view(VIEWS["inner"]).preview(settings=shop.settings)
    assert comparable((row["id"], row["country"]) for row in rows) == expected(shop, VIEWS["inner"])


def test_a_reference_table_with_the_functions_of_a_statement(shop: Bench) -> None:
    def initial(name: str | None) -> str | None:
        return None if name is None else name[:1]

    push_orders(shop, random.Random(2), 0, 30)
    made: Any = Stream.sql(
        "CREATE MATERIALIZED VIEW v AS SELECT o.customer, o.amount, c.country FROM orders o "
        "LEFT JOIN customers c ON initial(o.customer) = initial(c.name)",
        functions={"initial": initial},
        customers="public.customers",
    )
    shop.run(made, "v")
    question = (
        "SELECT o.customer, o.amount, c.country FROM orders o LEFT JOIN customers c "
        "ON left(o.customer, 1) = left(c.name, 1)"
    )
    assert read_rows(shop.url, "v") == expected(shop, question)

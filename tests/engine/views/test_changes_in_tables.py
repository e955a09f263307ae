"""A table to which the table sink applies the changes of a view has the rows of the view."""

from __future__ import annotations

import asyncio
import random

import psycopg

from penstock.sinks import Sinks, Table
from tests.engine.pipelines import Bench
from tests.engine.views.statements import comparable, make_views, random_order, read_rows

BEST = (
    "CREATE MATERIALIZED VIEW best WITH (changes = 'best.changes') AS SELECT customer, id, amount, placed FROM orders "
    "WHERE customer <> '' QUALIFY row_number() OVER (PARTITION BY customer ORDER BY amount DESC NULLS LAST, id) <= 2"
)


async def apply_changes(url: str) -> None:
    async with Sinks(url) as sinks:
        sinks.add("best.changes", Table("best_orders", changes=True), batch=7)
        await sinks.run(idle_seconds=0.2)
        assert [counters.dead_letters for counters in sinks.counters.values()] == [0]


def test_a_table_follows_a_view(bench: Bench) -> None:
    chance = random.Random(1)
    bench.queue("orders")
    view, _ = make_views(BEST)["best"]
    with psycopg.connect(bench.url, autocommit=True) as conn:
        conn.execute(
            "CREATE TABLE best_orders (id bigint PRIMARY KEY, customer text, amount numeric, placed timestamptz)"
        )
        conn.execute("SET TimeZone = 'UTC'")
        for start in range(0, 90, 30):
            bench.push([(None, random_order(chance, number)) for number in range(start, start + 30)])
            bench.run(view, "best", max_events_per_cycle=7)
            asyncio.run(apply_changes(bench.url))
            rows = conn.execute("SELECT customer, id, amount, placed FROM best_orders").fetchall()
            assert comparable(rows) == read_rows(bench.url, "best")
    assert any(event.data["op"] == "delete" for event in bench.events("best.changes"))

"""Materialized views: after every run the result equals what DuckDB answers over all events."""

# ruff: noqa: S608 - SQL of tests

from __future__ import annotations

import json
import random
from collections import Counter
from decimal import Decimal
from typing import Any
from unittest import mock

import psycopg
import pytest

from penstock.core.errors import QueryChanged, StateLimitReached
from penstock.engine.cycle.commit import Committer
from penstock.engine.cycle.cycle_result import CommitStats, CycleResult
from penstock.engine.stream import Stream
from penstock.stream.aggregates import sum as sum_of
from penstock.stream.views.row_key import visible_key
from tests.cli.command_line import CommandLine
from tests.conditions import eventually
from tests.engine.pipelines import Bench, drivers_lost
from tests.engine.views.statements import (
    comparable,
    expected_rows,
    make_views,
    random_order,
    random_payment,
    read_rows,
)

TOTALS = "SELECT customer, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY customer"
#: Statements that mean the same in DuckDB.
VIEWS = {
    "totals": TOTALS,
    "everything": (
        "SELECT count(*) AS n, sum(amount) AS total, avg(amount) AS mean, min(amount) AS low, max(amount) AS high, "
        "count(DISTINCT customer) AS customers, count(*) FILTER (WHERE amount > 2) AS large FROM orders"
    ),
    "by_day": (
        "SELECT date_trunc('day', placed) AS day, customer, sum(amount) AS total FROM orders GROUP BY 1, 2 "
        "HAVING count(*) > 2"
    ),
    "with_payments": (
        "SELECT o.id, o.customer, p.paid FROM orders o JOIN payments p ON o.id = p.order_id WHERE o.amount > 0"
    ),
    "open_orders": (
        "SELECT o.id, o.amount, p.id AS payment FROM orders o LEFT JOIN payments p ON o.id = p.order_id AND p.paid > 1"
    ),
    "all_rows": "SELECT o.id, p.id AS payment FROM orders o FULL JOIN payments p ON o.id = p.order_id",
    "unpaid": "SELECT id FROM orders o WHERE NOT EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id)",
    "paid_by_customer": (
        "SELECT o.customer, count(*) AS orders, max(t.paid) AS most FROM orders o "
        "JOIN (SELECT order_id, sum(paid) AS paid FROM payments GROUP BY order_id) t ON t.order_id = o.id "
        "GROUP BY o.customer"
    ),
    "largest": (
        "SELECT id, customer, amount FROM orders QUALIFY row_number() OVER (PARTITION BY customer ORDER BY amount DESC "
        "NULLS LAST, id) <= 2"
    ),
    "best_customers": f"SELECT * FROM ({TOTALS}) ORDER BY total DESC NULLS LAST, customer NULLS FIRST LIMIT 2",
    "customers": "SELECT DISTINCT customer FROM orders",
    "mean_of_three": (
        "SELECT id, customer, avg(amount) OVER (PARTITION BY customer ORDER BY id ROWS BETWEEN 2 PRECEDING AND CURRENT "
        "ROW) AS mean FROM orders"
    ),
    "both": "SELECT id, amount AS value FROM orders UNION ALL SELECT id, paid AS value FROM payments",
}


def create_queues(bench: Bench) -> None:
    bench.queue("orders")
    bench.queue("payments")


def push_random(bench: Bench, chance: random.Random, start: int, count: int) -> None:
    for queue, make in (("orders", random_order), ("payments", random_payment)):
        bench.push([(None, make(chance, number)) for number in range(start, start + count)], queue)


NEWEST = (
    "SELECT id, customer, amount FROM orders WHERE amount IS NOT NULL "
    "QUALIFY row_number() OVER (PARTITION BY customer ORDER BY id DESC) = 1"
)
#: The other views run only in the long tests.
SHORT = ("everything", "open_orders", "paid_by_customer", "largest")


@pytest.mark.parametrize("name", [pytest.param(v, marks=[] if v in SHORT else [pytest.mark.long]) for v in VIEWS])
def test_a_view_equals_duckdb_after_every_run(bench: Bench, name: str) -> None:
    statement = VIEWS[name]
    chance = random.Random(name)
    create_queues(bench)
    ((stream, _),) = make_views(f"CREATE MATERIALIZED VIEW v AS {statement}").values()
    for start in range(0, 90, 30):
        push_random(bench, chance, start, 30)
        bench.run(stream, "v", max_events_per_cycle=chance.choice([7, 25, 1000]))
        assert read_rows(bench.url, "v") == expected_rows(bench, statement)
    # The console shows the key before the view runs.
    assert stream.view is not None
    assert visible_key(stream.view.root) == stored_key(bench.url, "v")
    assert drawn_states(bench.url, "v") >= stored_states(bench.url)


def test_a_text_that_no_table_holds_is_a_dead_letter_at_once(bench: Bench) -> None:
    create_queues(bench)
    long = "".join(chr(0x4E00 + i * 7919 % 20000) for i in range(3000))
    customers = ["ada", "nul \x00", "bob", long, "ada"]
    bench.push([(None, {"id": n, "customer": name, "amount": 1}) for n, name in enumerate(customers)])
    views = make_views(
        f"CREATE MATERIALIZED VIEW keys AS {TOTALS};"
        "CREATE MATERIALIZED VIEW texts AS SELECT id, customer FROM orders;"
        "CREATE MATERIALIZED VIEW largest AS SELECT max(customer) AS customer FROM orders WHERE id < 3;"
    )
    for name, (stream, _) in views.items():
        bench.run(stream, name)
        assert bench.ask("SELECT count(*) FROM penstock.cycles WHERE error IS NOT NULL") == 0

    def failed(group: str) -> list[tuple[str, int]]:
        letters = bench.penstock.queue("orders").dlq(group).list()
        return sorted((letter.stage, letter.data["id"]) for letter in letters)

    assert failed("keys") == [("parse", 1), ("parse", 3)]
    assert failed("texts") == failed("largest") == [("parse", 1)]
    assert read_rows(bench.url, "keys") == comparable([("ada", 2, Decimal(2)), ("bob", 1, Decimal(1))])
    assert read_rows(bench.url, "texts") == comparable([(0, "ada"), (2, "bob"), (3, long), (4, "ada")])
    assert read_rows(bench.url, "largest") == comparable([("bob",)])


def stored_key(url: str, view: str) -> tuple[str, ...]:
    """The columns of a view's key that it shows."""
    with psycopg.connect(url) as conn:
        (stored,) = conn.execute("SELECT view FROM penstock.queries WHERE name = %s", [view]).fetchone() or ({},)
    hidden = {column["name"] for column in stored["columns"] if column["is_hidden"]}
    return tuple(name for name in stored["key"] if name not in hidden)


def drawn_states(url: str, view: str) -> set[int]:
    """The numbers of the state of the operators that are stored for the console."""
    with psycopg.connect(url) as conn:
        (stored,) = conn.execute("SELECT view FROM penstock.queries WHERE name = %s", [view]).fetchone() or ({},)
    numbers = [number for operator in stored["operators"] for number in operator["states"]]
    assert len(numbers) == len(set(numbers))
    return set(numbers)


def stored_states(url: str) -> set[int]:
    """The numbers of the operators that keep state."""
    with psycopg.connect(url) as conn:
        return {number for (number,) in conn.execute("SELECT operator FROM penstock.state_runs")}


#: Statements, and the same questions for DuckDB.
LARGE = {
    "join": (VIEWS["paid_by_customer"],) * 2,
    "sliding windows": (
        "SELECT customer, window_start, count(*) AS n, max(amount) AS most FROM "
        "HOP(TABLE orders, DESCRIPTOR(placed), INTERVAL 3 HOURS, INTERVAL 10 HOURS) GROUP BY customer, window_start",
        "SELECT customer, start, count(*) AS n, max(amount) AS most FROM orders, (SELECT unnest(generate_series("
        "TIMESTAMPTZ '2025-12-31T12:00:00Z', TIMESTAMPTZ '2026-01-07T00:00:00Z', INTERVAL 3 HOURS)) AS start) "
        "WHERE placed >= start AND placed < start + INTERVAL 10 HOURS GROUP BY customer, start",
    ),
    "a subquery twice": (
        f"WITH t AS ({TOTALS}) SELECT t.customer, t.total FROM t JOIN (SELECT max(orders) AS most FROM t) m "
        "ON t.orders = m.most",
    )
    * 2,
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_cycle_with_a_shuffle_equals_duckdb(bench: Bench, name: str) -> None:
    chance = random.Random(5)
    create_queues(bench)
    statement, question = LARGE[name]
    ((stream, _),) = make_views(f"CREATE MATERIALIZED VIEW v AS {statement}").values()
    for start in (0, 12_000):
        push_random(bench, chance, start, 12_000)
        bench.run(stream, "v")
    assert read_rows(bench.url, "v") == expected_rows(bench, question)


def test_views_over_views_survive_lost_drivers(bench: Bench) -> None:
    chance = random.Random(11)
    create_queues(bench)
    views = make_views(
        f"CREATE MATERIALIZED VIEW totals AS {TOTALS};"
        "CREATE MATERIALIZED VIEW sizes WITH (changes = 'sizes.changes') AS "
        "SELECT orders, count(*) AS customers, sum(total) AS total FROM totals GROUP BY orders"
    )
    with drivers_lost(chance, 0.5) as lost:
        for start in range(0, 120, 40):
            push_random(bench, chance, start, 40)
            for name, (stream, options) in views.items():
                bench.run(stream, name, max_events_per_cycle=13, **options)
    assert lost
    question = f"SELECT orders, count(*) AS customers, sum(total) AS total FROM ({TOTALS}) GROUP BY orders"
    assert read_rows(bench.url, "totals") == expected_rows(bench, TOTALS)
    assert read_rows(bench.url, "sizes") == expected_rows(bench, question)
    assert replay_changes(bench, "sizes.changes") == read_rows(bench.url, "sizes")
    assert counted_changes(bench.url, "sizes") == len(bench.events("sizes.changes"))


def counted_changes(url: str, view: str) -> int:
    """The changes that the ledger counts."""
    question = "SELECT sum(c.changes)::bigint FROM penstock.cycles c JOIN penstock.queries q ON q.id = c.query_id"
    with psycopg.connect(url) as conn:
        (count,) = conn.execute(f"{question} WHERE q.name = %s", [view]).fetchone() or (0,)
    return int(count)


def replay_changes(bench: Bench, queue: str) -> Counter[tuple[Any, ...]]:
    """The rows of a view that follow from its changes alone. Each change must fit the row before it."""
    rows: dict[str | None, dict[str, Any]] = {}
    for event in bench.events(queue):
        change = json.loads(event.raw, parse_float=Decimal)
        assert rows.get(event.key) == change["before"]
        assert (
            change["op"]
            == {(False, True): "insert", (True, True): "update", (True, False): "delete"}[
                change["before"] is not None, change["after"] is not None
            ]
        )
        if change["after"] is None:
            del rows[event.key]
        else:
            rows[event.key] = change["after"]
    return comparable(tuple(row.values()) for row in rows.values())


def test_the_methods_of_a_stream_make_views(bench: Bench) -> None:
    create_queues(bench)
    chance = random.Random(3)
    push_random(bench, chance, 0, 60)
    orders = Stream.from_("orders").filter(lambda order: order["amount"] is not None).map("id, customer, amount")
    totals = orders.key_by("customer").aggregate({"n": "count(*)", "total": sum_of("amount")})
    bench.run(totals.materialize("by_customer", indexes=["total"]))
    question = "SELECT customer, count(*), sum(amount) FROM orders WHERE amount IS NOT NULL GROUP BY customer"
    assert read_rows(bench.url, "by_customer") == expected_rows(bench, question)

    newest = orders.latest(by="customer", order="id").materialize("newest", changes="newest.changes")
    assert comparable(tuple(row.values()) for row in newest.preview(1000, settings=bench.settings)) == expected_rows(
        bench, NEWEST
    )
    bench.run(newest)
    assert read_rows(bench.url, "newest") == expected_rows(bench, NEWEST)
    push_random(bench, chance, 60, 20)
    bench.run(newest)
    assert replay_changes(bench, "newest.changes") == expected_rows(bench, NEWEST)
    assert Counter(change["op"] for change in bench.emitted("newest.changes"))["delete"] == 0
    assert len(bench.penstock.live("newest")) == len(read_rows(bench.url, "newest"))


def test_a_running_query_expires_state_while_no_events_arrive(bench: Bench) -> None:
    create_queues(bench)
    options = "changes = 'changes', state_ttl_seconds = 1"
    ((stream, _),) = make_views(f"CREATE MATERIALIZED VIEW v WITH ({options}) AS {TOTALS}").values()
    push_random(bench, random.Random(6), 0, 10)
    with bench.running(stream, "v"):
        eventually(lambda: bench.emitted("changes"), "the first changes")
        eventually(lambda: not read_rows(bench.url, "v"), "the end of all state")
    assert {change["op"] for change in bench.emitted("changes")} >= {"insert", "delete"}
    assert not replay_changes(bench, "changes")


def test_state_of_events_expires_before_a_run_reads_events(bench: Bench) -> None:
    create_queues(bench)
    views = make_views(
        f"CREATE MATERIALIZED VIEW totals WITH (changes = 'changes', state_ttl_seconds = 1) AS {TOTALS};"
        "CREATE MATERIALIZED VIEW everything WITH (state_ttl_seconds = 1) AS SELECT count(*) AS n FROM orders"
    )

    def run() -> None:
        for name, (stream, options) in views.items():
            bench.run(stream, name, **options)

    def is_empty() -> bool:
        run()
        return not read_rows(bench.url, "totals") and not read_rows(bench.url, "everything")

    chance = random.Random(9)
    with drivers_lost(chance, 0.3):
        for start in (0, 50):
            push_random(bench, chance, start, 50)
            run()
            eventually(is_empty, "the end of all state")
            assert bench.ask("SELECT coalesce(sum(rows), 0)::bigint FROM penstock.state_runs WHERE is_current") == 0
    assert not replay_changes(bench, "changes")
    push_random(bench, chance, 100, 20)
    run()
    found = read_rows(bench.url, "totals")
    counted = "SELECT customer, count(*), sum(amount) FROM orders WHERE id >= 100 GROUP BY customer"
    assert found == expected_rows(bench, counted)
    assert replay_changes(bench, "changes") == found
    assert read_rows(bench.url, "everything") == expected_rows(bench, "SELECT count(*) FROM orders WHERE id >= 100")


def test_a_cycle_that_expires_state_is_repeated_after_a_failure(bench: Bench) -> None:
    create_queues(bench)
    push_random(bench, random.Random(4), 0, 10)
    ((stream, _),) = make_views(f"CREATE MATERIALIZED VIEW v WITH (state_ttl_seconds = 1) AS {TOTALS}").values()
    bench.run(stream, "v")
    commit = Committer.commit
    failed: list[int] = []

    async def fail_once(self: Committer, work: CycleResult) -> CommitStats:
        if work.plan.is_expiry and work.view_changes is not None and not failed:
            failed.append(work.plan.cycle)
            raise RuntimeError("a failure that no event causes")
        return await commit(self, work)

    def is_empty() -> bool:
        bench.run(stream, "v")
        return not read_rows(bench.url, "v")

    with mock.patch.object(Committer, "commit", fail_once):
        eventually(is_empty, "the end of all state")
    assert failed
    error = bench.ask("SELECT error FROM penstock.cycles WHERE error IS NOT NULL")
    assert "a failure that no event causes" in error


def test_the_time_to_live_may_change_but_not_begin(bench: Bench) -> None:
    create_queues(bench)
    push_random(bench, random.Random(2), 0, 5)

    def run(options: str) -> None:
        ((stream, _),) = make_views(f"CREATE MATERIALIZED VIEW v WITH ({options}) AS {TOTALS}").values()
        bench.run(stream, "v")

    run("state_ttl_seconds = 3600")
    run("state_ttl_seconds = 7200")
    with pytest.raises(QueryChanged, match="state"):
        run("indexes = 'total'")


def test_a_query_stops_before_its_state_passes_the_limit(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    create_queues(bench)
    statement = "SELECT id, count(*) AS n FROM orders GROUP BY id"

    def run(limit: int) -> None:
        view = f"CREATE MATERIALIZED VIEW v WITH (max_state_bytes = {limit}) AS {statement}"
        ((stream, _),) = make_views(view).values()
        bench.run(stream, "v")

    def state_bytes() -> int:
        return int(bench.ask("SELECT sum(octet_length(data)) FROM penstock.state_runs WHERE is_current"))

    bench.push([(None, {"id": number}) for number in range(5_000)])
    run(10**9)
    used = state_bytes()
    bench.push([(None, {"id": 0})])
    before = expected_rows(bench, statement)
    assert not caplog.records
    run(round(used * 1.2))
    assert "of its limit" in caplog.text
    assert read_rows(bench.url, "v") == before
    bench.push([(None, {"id": number}) for number in range(5_000, 10_000)])
    with pytest.raises(StateLimitReached, match="larger max_state_bytes"):
        run(round(used * 1.2))
    assert read_rows(bench.url, "v") == before
    assert state_bytes() <= used * 1.2
    assert "max_state_bytes" in bench.ask("SELECT error FROM penstock.cycles WHERE error IS NOT NULL")
    run(10**9)
    assert read_rows(bench.url, "v") == expected_rows(bench, statement)


def test_the_state_of_operators_is_shown_by_name(bench: Bench) -> None:
    create_queues(bench)
    statement = (
        "SELECT o.customer, count(*) AS n FROM orders o LEFT JOIN payments p ON o.id = p.order_id AND p.paid > 1 "
        "GROUP BY o.customer"
    )
    ((stream, _),) = make_views(f"CREATE MATERIALIZED VIEW v WITH (state_ttl_seconds = 60) AS {statement}").values()
    push_random(bench, random.Random(8), 0, 20)
    bench.run(stream, "v")
    cli = CommandLine(bench.url)
    view = cli.json("query", "show", "v")["materialized_view"]
    assert view["state_ttl_seconds"] == 60
    assert [each["name"] for each in view["operators"]] == ["left join on o.id = p.order_id", "aggregate by o.customer"]
    assert all(each["rows"] and each["bytes"] for each in view["operators"])
    shown = cli.ok("query", "show", "v")
    assert "aggregate by o.customer: " in shown
    assert "state expires after  1 min" in shown


def test_a_deleted_view_leaves_nothing(bench: Bench) -> None:
    create_queues(bench)
    push_random(bench, random.Random(1), 0, 10)
    ((stream, _),) = make_views(f"CREATE MATERIALIZED VIEW v AS {TOTALS}").values()
    bench.run(stream, "v")
    bench.run(stream, "v", reset=True)
    assert read_rows(bench.url, "v") == expected_rows(bench, TOTALS)
    assert bench.ask("SELECT count(DISTINCT query_id) FROM penstock.state_runs") == 1

"""Streaming SQL has the result of the same statement in DuckDB over the pushed events."""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import psycopg
import pytest

from penstock import Stream
from penstock.core.errors import InvalidRequest
from tests.engine.pipelines import T0, Bench, drivers_lost

EXAMPLES = int(os.environ.get("PENSTOCK_TEST_SQL_EXAMPLES", "1"))
BEGIN = datetime.fromtimestamp(T0, UTC)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT")


def orders(seed: int, count: int) -> list[dict[str, Any]]:
    """Orders whose times are out of order, but not by more than ten seconds."""
    chance = random.Random(seed)
    made = []
    for i in range(count):
        at = BEGIN + timedelta(seconds=i / 4 + chance.random() * 10)
        made.append(
            {
                "customer": chance.choice(["ada", "bob", "cyd"]),
                "country": chance.choice(["it", "fr", None]),
                "amount": float(round(chance.random() * 200, 2)),
                "items": chance.randint(1, 5),
                "ts": at.isoformat(),
            }
        )
    return made


def returns(seed: int, orders: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a return of every third order, up to twelve seconds later, in about the order of the orders."""
    chance = random.Random(seed)
    return [
        {
            "customer": order["customer"],
            "items": order["items"],
            "reason": chance.choice(["late", "broken"]),
            "ts": (datetime.fromisoformat(order["ts"]) + timedelta(seconds=chance.random() * 12)).isoformat(),
        }
        for order in orders
        if chance.random() < 0.3
    ]


def duck(events: list[dict[str, Any]]) -> duckdb.DuckDBPyConnection:
    conn = duckdb.connect()
    conn.execute("SET TimeZone = 'UTC'")
    conn.execute(
        "CREATE TABLE orders (customer text, country text, amount decimal(18,2), items integer, ts timestamptz)"
    )
    conn.executemany(
        "INSERT INTO orders VALUES (?, ?, ?, ?, ?)",
        [[e["customer"], e["country"], e["amount"], e["items"], e["ts"]] for e in events],
    )
    return conn


def duck_with(events: list[dict[str, Any]], back: list[dict[str, Any]]) -> duckdb.DuckDBPyConnection:
    conn = duck(events)
    conn.execute("CREATE TABLE returns (customer text, items integer, reason text, ts timestamptz)")
    conn.executemany("INSERT INTO returns VALUES (?, ?, ?, ?)", [list(e.values()) for e in back])
    return conn


def plain(value: Any) -> Any:
    if isinstance(value, str) and _MOMENT.match(value):
        # Fractions of seconds are spelt with more or fewer digits.
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, float | Decimal | int) and not isinstance(value, bool):
        return round(float(value), 9)
    return value


def rows(events: list[dict[str, Any]]) -> list[Any]:
    return sorted((sorted(plain(event).items()) for event in events), key=repr)


def asked(conn: duckdb.DuckDBPyConnection, question: str) -> list[Any]:
    found = conn.execute(question)
    names = [column[0] for column in found.description or []]
    return rows([dict(zip(names, row, strict=True)) for row in found.fetchall()])


CASES = {
    "tumbling, having, arithmetic over aggregates": (
        """
        SELECT customer, o.country, window(ts, '5 seconds') AS w, count(*) AS n, sum(amount) AS total,
               sum(amount) / count(*) AS mean, max(items) - min(items) AS spread, count(DISTINCT items) AS kinds
        FROM orders o WHERE amount > 20 GROUP BY customer, country, window(ts, '5 seconds') HAVING count(*) > 1
        """,
        """
        SELECT customer, country, {'start': s, 'end': s + INTERVAL 5 seconds} AS w, count(*) AS n,
               sum(amount) AS total, sum(amount) / count(*) AS mean, max(items) - min(items) AS spread,
               count(DISTINCT items) AS kinds
        FROM (SELECT *, time_bucket(INTERVAL 5 seconds, ts) AS s FROM orders WHERE amount > 20)
        GROUP BY customer, country, s HAVING count(*) > 1
        """,
    ),
    "sliding, no key, a filtered count, a view": (
        """
        WITH big AS (SELECT amount * items AS value, ts AS happened, customer FROM orders WHERE items > 1)
        SELECT window.start AS begins, count(*) FILTER (WHERE customer = 'ada') AS adas, avg(value) AS mean
        FROM big GROUP BY window(happened, '20 seconds', '10 seconds')
        """,
        """
        SELECT s AS begins, count(*) FILTER (WHERE customer = 'ada') AS adas, avg(amount * items) AS mean
        FROM (SELECT *, unnest([time_bucket(INTERVAL 10 seconds, ts),
                                time_bucket(INTERVAL 10 seconds, ts) - INTERVAL 10 seconds]) AS s
              FROM orders WHERE items > 1)
        GROUP BY s
        """,
    ),
    "calendar hours of a zone": (
        """
        SELECT date_trunc('hour', from_utc_timestamp(ts, 'Asia/Kathmandu')) AS hour, customer, sum(items) AS items
        FROM orders GROUP BY 1, 2
        """,
        """
        SELECT date_trunc('hour', timezone('Asia/Kathmandu', ts)) AS hour, customer, sum(items) AS items
        FROM orders GROUP BY 1, 2
        """,
    ),
    "a billing month that begins on the 10th": (
        """
        SELECT calendar_window.start AS begins, customer, sum(amount) AS total
        FROM orders GROUP BY calendar_window(ts, 'month', 'UTC', 10), 2
        """,
        """
        SELECT date_trunc('month', ts - INTERVAL 9 days) + INTERVAL 9 days AS begins, customer, sum(amount) AS total
        FROM orders GROUP BY 1, 2
        """,
    ),
    "a projection": (
        "SELECT upper(customer) AS who, amount * items AS value, CASE WHEN country IS NULL THEN '?' ELSE country END "
        "AS land FROM orders WHERE items BETWEEN 2 AND 4",
        "SELECT upper(customer) AS who, amount * items AS value, CASE WHEN country IS NULL THEN '?' ELSE country END "
        "AS land FROM orders WHERE items BETWEEN 2 AND 4",
    ),
    "a reference table, grouped": (
        """
        SELECT c.tier, window(o.ts, INTERVAL '1 minute') AS w, sum(o.amount) AS total
        FROM orders o JOIN customers c ON c.id = o.customer GROUP BY c.tier, window(o.ts, INTERVAL '1 minute')
        """,
        """
        SELECT c.tier, {'start': s, 'end': s + INTERVAL 1 minute} AS w, sum(o.amount) AS total
        FROM (SELECT *, time_bucket(INTERVAL 1 minute, ts) AS s FROM orders) o
        JOIN (VALUES ('ada', 1), ('bob', 2)) AS c (id, tier) ON c.id = o.customer GROUP BY c.tier, s
        """,
    ),
    "sessions": (
        """
        SELECT customer, session_window(ts, '2 seconds') AS w, count(*) AS n, sum(amount) AS total, max(items) AS most
        FROM orders GROUP BY customer, session_window(ts, '2 seconds') HAVING count(*) < 20
        """,
        """
        SELECT customer, {'start': min(ts), 'end': max(ts) + INTERVAL 2 seconds} AS w, count(*) AS n,
               sum(amount) AS total, max(items) AS most
        FROM (SELECT *, sum(is_first) OVER (PARTITION BY customer ORDER BY ts) AS session
              FROM (SELECT *, CASE WHEN ts - lag(ts) OVER (PARTITION BY customer ORDER BY ts) < INTERVAL 2 seconds
                                   THEN 0 ELSE 1 END AS is_first FROM orders))
        GROUP BY customer, session HAVING count(*) < 20
        """,
    ),
    "a join of two streams": (
        """
        SELECT o.customer, o.amount * o.items AS value, upper(r.reason) AS reason FROM orders o LEFT JOIN returns r
        ON r.customer = o.customer AND r.items = o.items AND r.ts BETWEEN o.ts AND o.ts + INTERVAL '8 seconds'
        """,
        """
        SELECT o.customer, o.amount * o.items AS value, upper(r.reason) AS reason FROM orders o LEFT JOIN returns r
        ON r.customer = o.customer AND r.items = o.items AND r.ts BETWEEN o.ts AND o.ts + INTERVAL 8 seconds
        """,
    ),
}
#: A cycle for each portion of both sides, and as many that are lost.
LONG = ("a join of two streams",)


@pytest.mark.parametrize("seed", range(7, 7 + EXAMPLES))
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.long) if case in LONG else case for case in CASES]
)
def test_a_statement_has_the_result_of_duckdb_while_drivers_are_lost(bench: Bench, case: str, seed: int) -> None:
    statement, question = CASES[case]
    chance = random.Random(f"{case} {seed}")
    with psycopg.connect(bench.url, autocommit=True) as conn:
        conn.execute("CREATE TABLE customers (id text, tier integer)")
        conn.execute("INSERT INTO customers VALUES ('ada', 1), ('bob', 2)")
    events = orders(seed, 300)
    back = returns(seed, events)
    expected = asked(duck_with(events, back), question)
    for queue, some in (("orders", events), ("returns", back)):
        bench.queue(queue)
        bench.push(((event["customer"], event) for event in some), queue)
    timed = "GROUP BY" in statement or "returns" in statement
    options = " WITH (allowed_lateness_seconds = 60, idle_flush_seconds = 86400)" if timed else ""
    made: Stream = Stream.sql(f"CREATE QUERY q{options} AS INSERT INTO out {statement}", customers="customers")
    with drivers_lost(chance, 0.4):
        bench.run(made, max_events_per_cycle=90)

    assert bench.letters() == bench.letters("returns") == []
    assert rows(bench.emitted("out")) == expected


def test_having_and_computed_fields_are_in_the_views(bench: Bench) -> None:
    bench.queue()
    bench.push([("k", {"who": who, "ts": T0, "amount": amount}) for who, amount in [("a", 1), ("a", 2), ("b", 5)]])
    made = Stream.sql(
        "INSERT INTO out SELECT who, window(ts, '1 hour') AS w, sum(amount) / count(*) AS mean FROM orders "
        "GROUP BY who, window(ts, '1 hour') HAVING count(*) > 1"
    )
    bench.run(made)

    assert [(row["who"], row["mean"]) for row in bench.rows()] == [("a", Decimal("1.5"))]
    assert [(event["who"], event["mean"]) for event in bench.emitted("out")] == [("a", Decimal("1.5"))]


ODD = """
    SELECT lower(customer) AS customer, window(ts, '1 hour') AS w, count(*) AS n, count(country, items) AS pairs,
           count(DISTINCT country, items) AS kinds, CAST(sum(amount) / count(*) AS INT) AS mean, count(*) % 3 AS rest,
           CAST(sum(amount) * 1000000000 AS INT) AS large, TRY_CAST(max(country) AS INT) AS number,
           sum(items) % (count(*) - count(*)) AS nothing, round(avg(speed), 1) AS speed,
           sum(speed) * 1e300 * sum(speed) * 1e300 AS vast,
           CASE WHEN count(*) > 1 THEN '{hot} 100%' ELSE '{n} %s' END AS state, max(country) LIKE 'i%' AS italian
    FROM orders GROUP BY customer, w HAVING max(customer) LIKE '%' OR count(*) % 7 < 7
"""
ODD_ASKED = """
    SELECT lower(customer) AS customer, {'start': s, 'end': s + INTERVAL 1 hour} AS w, count(*) AS n,
           count(DISTINCT (country, items)) FILTER (WHERE country IS NOT NULL AND items IS NOT NULL) AS kinds,
           count(*) FILTER (WHERE country IS NOT NULL AND items IS NOT NULL) AS pairs,
           trunc(sum(amount) / count(*))::int AS mean, count(*) % 3 AS rest,
           TRY_CAST(sum(amount) * 1000000000 AS INT) AS large, TRY_CAST(max(country) AS INT) AS number,
           NULL AS nothing, round(avg(items / 4), 1) AS speed, NULL AS vast,
           CASE WHEN count(*) > 1 THEN '{hot} 100%' ELSE '{n} %s' END AS state, max(country) LIKE 'i%' AS italian
    FROM (SELECT *, time_bucket(INTERVAL 1 hour, ts) AS s FROM orders) GROUP BY customer, s
"""


def test_odd_values_are_grouped_and_computed_as_duckdb_does_it_and_stop_no_query(bench: Bench) -> None:
    chance = random.Random(5)
    events = orders(5, 120)
    for event in events:
        event["customer"] = chance.choice(["ada", "Ada", "", None, '"', '""'])
        event["items"] = chance.choice([1, 2, None])
        event["speed"] = None if event["items"] is None else event["items"] / 4
    bench.queue()
    bench.push((None, event) for event in events)
    fields = "customer string, country string, amount decimal(18,2), items int, speed double, ts string"
    options = "WITH (allowed_lateness_seconds = 60)"
    made: Stream = Stream.sql(f"CREATE QUEUE orders ({fields}); CREATE QUERY q {options} AS INSERT INTO out {ODD}")
    bench.run(made)

    assert bench.letters() == []
    expected = asked(duck(events), ODD_ASKED)
    assert rows(bench.emitted("out")) == expected
    names = ("customer", "n", "mean", "state")
    shown = [{name: row[name] for name in names} for row in bench.rows()]
    assert rows(shown) == rows([{name: dict(row)[name] for name in names} for row in expected])

    tiers: Stream = Stream.sql(
        "CREATE QUERY tiers AS INSERT INTO tiers SELECT upper(tier) AS tier, count(*) AS n FROM orders o "
        "JOIN tiers t ON t.id = o.customer GROUP BY upper(tier), window(ts, '1 hour')",
        tiers="SELECT * FROM (VALUES ('ada', 'gold'), ('Ada', 'Gold'), ('', 'none')) AS t (id, tier)",
    )
    bench.run(tiers, "tiers")
    counted = Counter("NONE" if not e["customer"] else "GOLD" for e in events if e["customer"] in ("ada", "Ada", ""))
    assert {event["tier"]: event["n"] for event in bench.emitted("tiers")} == counted


def test_an_expression_that_postgresql_refuses_is_reported_at_the_start(bench: Bench) -> None:
    bench.queue()
    bench.push([("k", {"who": "a", "ts": T0})])
    made: Stream = Stream.sql(
        "INSERT INTO out SELECT window_start + count(*) AS odd FROM orders GROUP BY window(ts, '1 hour')"
    )
    with pytest.raises(InvalidRequest, match=r"PostgreSQL cannot compute .* operator does not exist"):
        bench.run(made)


def test_sessions_and_late_events_are_those_of_the_builder(bench: Bench) -> None:
    bench.queue(partitions=1)
    times = [0, 3, 20, 21, 5]
    bench.push([("k", {"who": "a", "ts": T0 + at, "n": at}) for at in times])
    made = Stream.sql(
        "INSERT INTO out SELECT who, session_window(ts, '5 seconds') AS w, sum(n) AS n FROM orders "
        "GROUP BY who, session_window(ts, '5 seconds')"
    )
    bench.run(made)

    assert [event["n"] for event in bench.emitted("out")] == [3, 41]
    assert [letter.offset for letter in bench.letters()] == [4]


def test_small_cycles_of_a_join_on_an_expression_read_their_own_events(bench: Bench) -> None:
    """Spark may broadcast the events of such a join, and keeps a broadcast as long as the plan is used."""
    bench.queue("bids")
    stream = Stream.sql(
        "INSERT INTO enriched SELECT b.id, c.name FROM bids b JOIN categories c ON c.id = b.id % 3",
        categories="SELECT * FROM (VALUES (0, 'a'), (1, 'b'), (2, 'c')) AS c (id, name)",
    )
    for start in (0, 10, 20):
        bench.push([(None, {"id": number}) for number in range(start, start + 10)], "bids")
    bench.run(stream, "enriched", max_events_per_cycle=5)
    expected = [(number, "abc"[number % 3]) for number in range(30)]
    assert sorted((event["id"], event["name"]) for event in bench.emitted("enriched")) == expected

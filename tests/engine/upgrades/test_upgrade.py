"""Queries that release 0.1.0 left unfinished continue exactly, while the first process upgrades the schema."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import duckdb
import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.core.settings import Settings
from penstock.db import migrate
from penstock.log.event import Event
from tests.engine.pipelines import bench
from tests.engine.test_statements import asked, rows
from tests.engine.upgrades import shop
from tests.log.logs import ask, by_key, opened, pop
from tests.migrations import copy_with_one_more
from tests.servers import Server

DUMP = Path(__file__).parent / "0018.sql"

#: A partition without events for long would have its windows closed by the clock.
REFRESH_PARTITIONS = "UPDATE penstock.progress SET last_at = clock_timestamp()"
#: Positive for every kind of unfinished work.
UNFINISHED = {
    "open windows": "SELECT count(*) FROM penstock.state",
    "events that wait for a join": "SELECT count(*) FROM penstock.waiting_5",
    "unread events": "SELECT sum(lag) FROM penstock.lag WHERE queue = 'orders'",
    "partitions denied by a gate": "SELECT count(*) FROM penstock.gate_lanes WHERE denied_since IS NOT NULL",
    "changed limits": "SELECT count(*) FROM penstock.gate_limits",
    "events written by a sink": "SELECT written FROM penstock.sinks",
    "lag of a sink": "SELECT lag FROM penstock.sinks",
    "version of a writer": "SELECT version FROM penstock.writes",
}


@pytest.fixture
def database_of_0_1(pg18: Server) -> Iterator[str]:
    with pg18.fresh_database("template0") as url:
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(DUMP.read_bytes(), prepare=False)
            conn.execute(REFRESH_PARTITIONS)
        yield url


def push_orders(url: str, first: int, end: int) -> None:
    with bench(url) as made:
        shop.push_orders(made, first, end)


def duck() -> duckdb.DuckDBPyConnection:
    conn = duckdb.connect()
    conn.execute("SET TimeZone = 'UTC'")
    for name, events in (("orders", shop.orders()), ("payments", shop.payments())):
        conn.register(f"{name}_pushed", pa.Table.from_pylist(events))
    conn.execute("CREATE VIEW payments AS SELECT * REPLACE (to_timestamp(ts) AS ts) FROM payments_pushed")
    exact = "to_timestamp(ts) AS ts, amount::decimal(18, 2) AS amount"
    conn.execute(f"CREATE VIEW orders AS SELECT * REPLACE ({exact}) FROM orders_pushed")  # noqa: S608
    return conn


#: DuckDB computes the results of each query from all events.
ORACLE = {
    "sums": """
        SELECT customer AS key, s AS window_start, s + INTERVAL 5 seconds AS window_end, sum(amount) AS total,
               count(*) AS n, avg(amount) AS mean, stddev_samp(amount) AS spread, count(DISTINCT id) AS kinds,
               max(amount) AS highest
        FROM (SELECT *, time_bucket(INTERVAL 5 seconds, ts) AS s FROM orders) GROUP BY customer, s
        """,
    "busy": """
        SELECT upper(customer) AS who, {'start': s, 'end': s + INTERVAL 10 seconds} AS w, count(*) AS n,
               sum(amount) / count(*) AS mean
        FROM (SELECT *, time_bucket(INTERVAL 10 seconds, ts) AS s FROM orders WHERE amount > 10)
        GROUP BY customer, s HAVING count(*) > 2
        """,
    "visits": """
        SELECT customer AS key, min(ts) AS window_start, max(ts) + INTERVAL 2 seconds AS window_end,
               sum(amount) AS total, count(*) AS n
        FROM (SELECT *, sum(is_first) OVER (PARTITION BY customer ORDER BY ts) AS visit
              FROM (SELECT *, CASE WHEN ts - lag(ts) OVER (PARTITION BY customer ORDER BY ts) < INTERVAL 2 seconds
                                   THEN 0 ELSE 1 END AS is_first FROM orders))
        GROUP BY customer, visit
        """,
    "pairs": """
        SELECT o.id, p.n FROM orders o
        LEFT JOIN payments p ON p."order" = o.id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 5 seconds
        """,
}


@pytest.mark.slow
def test_queries_continue_exactly_while_the_schema_is_upgraded(
    database_of_0_1: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = copy_with_one_more(tmp_path)
    monkeypatch.setattr(migrate, "MIGRATIONS_DIR", tmp_path)
    with ThreadPoolExecutor() as pool:
        pushing = pool.submit(push_orders, database_of_0_1, shop.LEFT, shop.ALL)
        started = shop.sums().start("sums", settings=Settings(database_url=database_of_0_1), **shop.OPTIONS)
        pushing.result()
        started.stop()
    assert ask(database_of_0_1, "SELECT max(version) FROM penstock.migrations") == version
    with bench(database_of_0_1) as made:
        for name, stream in shop.QUERIES.items():
            made.run(stream(), name, **shop.OPTIONS)
            assert rows(made.emitted(name)) == asked(duck(), ORACLE[name]), name
        assert made.letters("orders") == made.letters("payments") == []
        assert ask(database_of_0_1, "SELECT count(*) FROM pg_tables WHERE tablename ~ '^waiting_'") == 0
        for name in ("sums", "visits"):
            assert len(made.rows(name)) == len(made.emitted(name)), "the history lacks windows that 0.1.0 closed"


def test_the_dump_contains_every_kind_of_unfinished_work(database_of_0_1: str) -> None:
    amounts = {what: ask(database_of_0_1, question) for what, question in UNFINISHED.items()}
    assert all(amount > 0 for amount in amounts.values()), amounts


def test_a_sink_resumes_at_its_position(database_of_0_1: str) -> None:
    asyncio.run(shop.deliver(database_of_0_1))
    with bench(database_of_0_1) as made:
        sent = Counter((e["key"], datetime.fromisoformat(e["window_start"]), e["n"]) for e in made.emitted("sums"))
    with psycopg.connect(database_of_0_1) as conn:
        assert Counter(conn.execute("SELECT key, starts, n FROM delivered").fetchall()) == sent


def test_a_version_that_a_writer_wrote_with_0_1_is_not_written_twice(database_of_0_1: str) -> None:
    with bench(database_of_0_1) as made:
        for version in (1, 2):
            shop.write(database_of_0_1, version)
        assert [event["version"] for event in made.emitted("copies")] == [1, 2]


async def complete_calls(url: str, count: int) -> list[Event]:
    """Pop and complete ``count`` calls, and check that no more than the limit are in flight."""
    done: list[Event] = []
    async with opened(url) as log:
        while len(done) < count:
            events = await pop(log, "approved", wait_seconds=5.0)
            in_flight = Counter(str(event.key) for event in events)
            assert in_flight <= Counter(shop.LIMITS)
            assert all(await log.ack(events))
            done += events
    return done


def test_keys_that_wait_at_a_gate_continue_within_their_limits(database_of_0_1: str, spark: SparkSession) -> None:
    with bench(database_of_0_1) as made, made.running(shop.gated(), "gated"):
        shop.push_calls(made, shop.CALLS_LEFT, shop.CALLS)
        # 0.1.0 completed one call.
        calls = by_key(asyncio.run(complete_calls(database_of_0_1, len(shop.LIMITS) * shop.CALLS - 1)))
        assert len(made.events("approved")) == len(shop.LIMITS) * shop.CALLS
    first = {"ada": 1, "bob": 0}
    assert calls == {key: [{"seq": seq} for seq in range(first[key], shop.CALLS)] for key in shop.LIMITS}

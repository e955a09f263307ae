"""Queries that an earlier release left half-way go on exactly, in a database that is upgraded while one starts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.core.settings import Settings
from penstock.log.event import Event
from tests.engine.pipelines import bench
from tests.engine.test_statements import asked, rows
from tests.engine.upgrades import shop
from tests.log.logs import ask, by_key, opened, pop
from tests.servers import Server

DUMPS = sorted(Path(__file__).parent.glob("*.sql"))

#: However old the dump is: windows of a partition that has had no events for long are closed by the clock.
A_MOMENT_AGO = "UPDATE penstock.progress SET last_at = clock_timestamp()"
HALF_WAY = {
    "a window is open": "SELECT count(*) FROM penstock.state",
    "an event waits for its partner": "SELECT count(*) FROM penstock.waiting_5",
    "an event is not read": "SELECT sum(lag) FROM penstock.lag WHERE queue = 'orders'",
    "a lane waits at its gate": "SELECT count(*) FROM penstock.gate_lanes WHERE denied_since IS NOT NULL",
    "a limit was changed": "SELECT count(*) FROM penstock.gate_limits",
    "a sink has written": "SELECT written FROM penstock.sinks",
    "a sink is behind": "SELECT lag FROM penstock.sinks",
    "a writer has a version": "SELECT version FROM penstock.writes",
}


@pytest.fixture(params=DUMPS, ids=lambda dump: dump.stem)
def left_behind(request: pytest.FixtureRequest, pg18: Server) -> Iterator[str]:
    with pg18.fresh_database("template0") as url:
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(request.param.read_bytes(), prepare=False)
            conn.execute(A_MOMENT_AGO)
        yield url


def in_own_client(url: str, do: Callable[..., None], *arguments: Any) -> None:
    with bench(url) as made:
        do(made, *arguments)


def duck() -> duckdb.DuckDBPyConnection:
    conn = duckdb.connect()
    conn.execute("SET TimeZone = 'UTC'")
    for name, some in (("orders", shop.orders()), ("payments", shop.payments())):
        conn.register(f"{name}_pushed", pa.Table.from_pylist(some))
    conn.execute("CREATE VIEW payments AS SELECT * REPLACE (to_timestamp(ts) AS ts) FROM payments_pushed")
    exact = "to_timestamp(ts) AS ts, amount::decimal(18, 2) AS amount"
    conn.execute(f"CREATE VIEW orders AS SELECT * REPLACE ({exact}) FROM orders_pushed")  # noqa: S608
    return conn


#: What each query has sent on in the end.
ASKED = {
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
def test_queries_go_on_exactly_in_a_database_that_is_upgraded_while_one_starts(
    left_behind: str, spark: SparkSession
) -> None:
    before = ask(left_behind, "SELECT max(version) FROM penstock.migrations")
    with ThreadPoolExecutor() as pool:
        pushing = pool.submit(in_own_client, left_behind, shop.push_orders, shop.LEFT, shop.ALL)
        started = shop.sums().start("sums", settings=Settings(database_url=left_behind), **shop.OPTIONS)
        pushing.result()
        started.stop()
    assert ask(left_behind, "SELECT max(version) FROM penstock.migrations") > before
    with bench(left_behind) as made:
        for name, stream in shop.QUERIES.items():
            made.run(stream(), name, **shop.OPTIONS)
            assert rows(made.emitted(name)) == asked(duck(), ASKED[name]), name
        assert made.letters("orders") == made.letters("payments") == []
        for name in ("sums", "visits"):
            assert len(made.rows(name)) == len(made.emitted(name)), "what was closed before is in the history"


@pytest.mark.parametrize("what", HALF_WAY)
def test_a_dump_is_of_queries_that_are_half_way(left_behind: str, what: str) -> None:
    assert ask(left_behind, HALF_WAY[what]) > 0


def test_a_sink_goes_on_where_it_was(left_behind: str) -> None:
    asyncio.run(shop.deliver(left_behind))
    with bench(left_behind) as made:
        sent = Counter((e["key"], datetime.fromisoformat(e["window_start"]), e["n"]) for e in made.emitted("sums"))
    with psycopg.connect(left_behind) as conn:
        assert Counter(conn.execute("SELECT key, starts, n FROM delivered").fetchall()) == sent


def test_a_writer_whose_version_was_written_by_the_release_before_writes_it_no_second_time(left_behind: str) -> None:
    with bench(left_behind) as made:
        for version in (1, 2):
            shop.write(left_behind, version)
        assert [event["version"] for event in made.emitted("copies")] == [1, 2]


async def answered(url: str, count: int) -> list[Event]:
    """Pop and complete so many calls, and look that no more are in flight than may be."""
    done: list[Event] = []
    async with opened(url) as log:
        while len(done) < count:
            events = await pop(log, "approved", wait_seconds=5.0)
            flying = Counter(str(event.key) for event in events)
            assert flying <= Counter(shop.LIMITS)
            assert all(await log.ack(events))
            done += events
    return done


def test_lanes_that_wait_at_a_gate_go_on_within_their_limits(left_behind: str, spark: SparkSession) -> None:
    with bench(left_behind) as made, made.running(shop.gated(), "gated"):
        shop.push_calls(made, shop.CALLS_LEFT, shop.CALLS)
        # One was answered before.
        calls = by_key(asyncio.run(answered(left_behind, len(shop.LIMITS) * shop.CALLS - 1)))
        assert len(made.events("approved")) == len(shop.LIMITS) * shop.CALLS
    first = {"ada": 1, "bob": 0}
    assert calls == {key: [{"seq": seq} for seq in range(first[key], shop.CALLS)] for key in shop.LIMITS}

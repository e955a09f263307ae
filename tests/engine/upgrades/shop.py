"""The queries and events of a shop, for the upgrade test.

``python -m tests.engine.upgrades.shop URL`` fills a database with unfinished work of every kind. A dump for the test is
made with the code of a release: run this in a database with the schema of that release, then pg_dump.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg

from penstock import Stream, concurrency_gate, token_bucket_gate
from penstock.sinks import Sinks, Table
from tests.conditions import eventually
from tests.connector.direct_source import DirectSource, arrow, schema_of
from tests.engine.pipelines import NEVER_IDLE, T0, Bench, bench
from tests.log.logs import opened, pop

#: Number of orders that all queries have read, that the old release pushed, and that the new release pushes in total.
READ, LEFT, ALL = 120, 150, 220
#: Calls of each tenant: pushed by the old release, pushed in total. Limits of calls in flight.
CALLS_LEFT, CALLS = 8, 12
LIMITS = {"ada": 2, "bob": 3}

RULES: dict[str, Any] = {"event_time": "ts", "allowed_lateness_seconds": 3, "idle_flush_seconds": NEVER_IDLE}
#: Long enough to keep the history of an old dump.
OPTIONS: dict[str, Any] = {"history_retention_seconds": 1e10, "max_events_per_cycle": 50}


# Events


def orders() -> list[dict[str, Any]]:
    """Orders out of order, none of them late."""
    chance = random.Random(17)
    return [
        {
            "id": f"o{i}",
            "customer": chance.choice(["ada", "bob", "cyd", None]),
            "amount": chance.randrange(1, 20_000) / 100,
            "ts": round(T0 + i / 4 + chance.random() * 2, 3),
        }
        for i in range(ALL)
    ]


def payments() -> list[dict[str, Any]]:
    """Payments of half of the orders, up to four seconds later."""
    chance = random.Random(71)
    paid = [
        {"order": order["id"], "n": n, "ts": round(order["ts"] + 4 * chance.random(), 3)}
        for n, order in enumerate(orders())
        if chance.random() < 0.5
    ]
    return sorted(paid, key=lambda payment: payment["ts"])


def push_orders(made: Bench, first: int, end: int) -> None:
    """Push the orders from ``first`` to ``end`` and the payments of that time, ten orders at a time."""
    for start in range(first, end, 10):
        stop = min(start + 10, end)
        made.push(((order["customer"], order) for order in orders()[start:stop]), "orders")
        last = float("inf") if stop == ALL else T0 + stop / 4
        made.push(((p["order"], p) for p in payments() if T0 + start / 4 <= p["ts"] < last), "payments")


def push_calls(made: Bench, first: int, end: int) -> None:
    for seq in range(first, end):
        made.push([(tenant, {"seq": seq}) for tenant in LIMITS], "calls")


# Queries


def sums() -> Any:
    """The aggregates are not in alphabetical order."""
    windows = Stream.from_("orders").key_by("customer").window_tumbling(seconds=5, **RULES)
    return windows.aggregate(
        {
            "total": "sum(amount)",
            "n": "count(*)",
            "mean": "avg(amount)",
            "spread": "stddev(amount)",
            "kinds": "count_distinct(id)",
            "highest": "max(amount)",
        }
    ).to("sums")


def busy() -> Any:
    return Stream.sql(
        """
        CREATE QUERY busy WITH (allowed_lateness_seconds = 3, idle_flush_seconds = 86400) AS INSERT INTO busy
        SELECT upper(customer) AS who, window(ts, '10 seconds') AS w, sum(amount) / count(*) AS mean, count(*) AS n
        FROM orders WHERE amount > 10 GROUP BY upper(customer), window(ts, '10 seconds') HAVING count(*) > 2
        """
    )


def visits() -> Any:
    sessions = Stream.from_("orders").key_by("customer").window_session(gap=2, **RULES)
    return sessions.aggregate({"total": "sum(amount)", "n": "count(*)"}).to("visits")


def pairs() -> Any:
    paid = Stream.from_("payments")
    joined = Stream.from_("orders").join(paid, on={"id": "order"}, within=(0, 5), how="left", **RULES)
    return joined.map("left.id AS id, right.n AS n").to("pairs")


def gated() -> Any:
    bucket = token_bucket_gate(capacity=100, refill_per_sec=100)
    return Stream.from_("calls").gate(bucket).gate(concurrency_gate(limit=2, group="workers")).to("approved")


#: The queries whose windows close when they are flushed.
QUERIES = {"sums": sums, "busy": busy, "visits": visits, "pairs": pairs}


# A sink and a writer


async def deliver(url: str) -> None:
    """Write the sums to a table without a key, which would hide duplicates."""
    async with opened(url) as log:
        sink = Table("delivered", columns={"key": "$key", "starts": "window_start", "n": "n"})
        await Sinks(log=log).add("sums", sink, group="delivery").run(idle_seconds=0.2)


def write(url: str, version: int) -> None:
    """Append a row to a queue as version ``version`` of a Spark job."""
    schema = schema_of("key", "value")
    rows = arrow(schema, [{"key": "k", "value": f'{{"version": {version}}}'}])
    with TemporaryDirectory() as directory:
        file = Path(directory, "url")
        file.write_text(url)
        writer = DirectSource(str(file)).writer(schema, queue="copies", txnAppId="nightly", txnVersion=version)
        writer.commit([writer.write(iter([rows]))])


# The unfinished work of a dump


def leave_unfinished(url: str) -> None:
    with bench(url) as made, psycopg.connect(url, autocommit=True) as conn:
        for queue, partitioning in (("orders", "hash"), ("payments", "hash"), ("copies", "hash"), ("calls", "key")):
            made.queue(queue, partitioning)
        made.queue("approved", "key")
        conn.execute("CREATE TABLE delivered (key text, starts timestamptz, n bigint)")
        push_orders(made, 0, READ // 2)
        made.run(sums(), "sums", flush=False, **OPTIONS)
        asyncio.run(deliver(url))
        push_orders(made, READ // 2, READ)
        for name, stream in QUERIES.items():
            made.run(stream(), name, flush=False, **OPTIONS)
        push_orders(made, READ, LEFT)
        write(url, 1)
        _leave_calls(made, conn)


def _leave_calls(made: Bench, conn: psycopg.Connection[Any]) -> None:
    """Leave keys that wait at the gate: each has its limit of calls in flight, and one tenant has completed one."""
    limit = "INSERT INTO penstock.gate_limits (query, key, gate, amount) VALUES ('gated', 'bob', 2, %s)"
    conn.execute(limit, (LIMITS["bob"],))
    push_calls(made, 0, CALLS_LEFT)
    with made.running(gated(), "gated"):
        eventually(lambda: _approved(made) == LIMITS, "every key is at its limit")
        asyncio.run(_complete_one(made.url))
        eventually(lambda: _approved(made) == {**LIMITS, "ada": 3}, "the gate has passed one more")


async def _complete_one(url: str) -> None:
    async with opened(url) as log:
        assert await log.ack(await pop(log, "approved", partition="ada", batch=1))


def _approved(made: Bench) -> Counter[str | None]:
    return Counter(event.key for event in made.events("approved"))


if __name__ == "__main__":
    leave_unfinished(sys.argv[1])

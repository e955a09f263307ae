"""Measures whether a long open transaction slows the queues down.

An open transaction keeps VACUUM from removing rows that died after it began. Two databases on one server, one with such
a transaction and one without, are loaded alternately.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import psycopg

from benchmarks.log.bench import Bench
from benchmarks.log.paired_runs import Side, compare, run_alternating
from benchmarks.log.plan import TASKS
from benchmarks.log.prefilled_queues import HASH
from penstock import Penstock

_BATCH = 100


async def held_transaction_ratio(bench: Bench) -> dict[str, Any]:
    """Return the ratio of the throughput with a held transaction to that without."""
    plan = bench.plan
    print(
        f"held_transaction_ratio: push, and pop and ack, {_BATCH} at a time, {TASKS} tasks, for about "
        f"{2 * plan.held_rounds * plan.round_seconds:.0f} s with an open transaction, alternating with a database "
        "without one",
        flush=True,
    )
    async with _side(bench, "held") as held, _side(bench, "free") as free:
        conn = await psycopg.AsyncConnection.connect(held.bench.url, autocommit=True)
        async with conn:
            xid = await _hold(conn)
            await run_alternating(free, held, plan.held_rounds, plan.round_seconds)
            held_back = await _held_back(held.bench.url, xid)
            await conn.execute("ROLLBACK")
        for side, name in ((held, "held"), (free, "free")):
            check = f"held_transaction_ratio: each event read once, in order per key ({name})"
            bench.checks.expect_none(check, await side.finish())
    bench.checks.expect("held_transaction_ratio: the transaction stayed open", held_back > 0, "it has ended")
    compared = compare(held, free) | {"seconds_held": round(held.seconds, 1), "transactions_since": held_back}
    print(
        f"  push {compared['push']:.2f}, pop and ack {compared['pop_ack']:.2f} "
        f"({held_back:,} transactions since the held transaction began)",
        flush=True,
    )
    return compared


@asynccontextmanager
async def _side(bench: Bench, name: str) -> AsyncIterator[Side]:
    url = bench.server.create_database(f"bench_{name}")
    async with Penstock(url) as q:
        own = replace(bench, url=url, q=q)
        yield Side(own, await own.new_queue(HASH, _BATCH), _BATCH)


async def _hold(conn: psycopg.AsyncConnection[Any]) -> int:
    """Begin a transaction that has an id and a snapshot. Return its id."""
    await conn.execute("CREATE TABLE held_by_the_benchmark (x integer)")
    await conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await conn.execute("INSERT INTO held_by_the_benchmark VALUES (1)")
    row = await (await conn.execute("SELECT pg_current_xact_id_if_assigned()::text::bigint")).fetchone()
    if row is None or row[0] is None:
        raise RuntimeError("the held transaction has no id")
    return int(row[0])


async def _held_back(url: str, xid: int) -> int:
    """Return the age of the held snapshot in transactions, or 0 if the transaction has ended."""
    query = """SELECT age(backend_xmin) FROM pg_stat_activity
        WHERE datname = current_database() AND state = 'idle in transaction' AND backend_xid = %s::text::xid"""
    async with await psycopg.AsyncConnection.connect(url) as conn:
        row = await (await conn.execute(query, (xid % 2**32,))).fetchone()
    return int(row[0]) if row is not None else 0

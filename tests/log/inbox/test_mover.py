"""One process moves what is pushed from SQL, soon, and another one takes over when it ends."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from penstock.db.embedded.server import EmbeddedPostgres
from penstock.log.inbox.inbox import LOCKS, MOVER_LOCK, SLEEP_LOCK
from penstock.log.log import Log
from penstock.log.read.pop_request import PopRequest
from tests.conditions import eventually_async
from tests.log.logs import QUEUE, ask, by_key, data, drain, held, opened

_HOLDERS = """
SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND classid = %s::int::oid AND objid = %s::int::oid AND granted AND mode = 'ExclusiveLock'
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


def push(conn: Connection[Any], value: Any, key: str | None = "ada") -> None:
    conn.execute("SELECT penstock.push('orders', to_jsonb(%s::int), key => %s)", (value, key))


async def pop_one(log: Log) -> Any:
    (event,) = await log.pop(PopRequest(QUEUE, "workers", wait_seconds=20, auto_ack=True))
    return event.data


async def holds(url: str, lock: int) -> None:
    async def is_held() -> object:
        return await asyncio.to_thread(ask, url, _HOLDERS, LOCKS, lock)

    await eventually_async(is_held)


@pytest.fixture
def sleeping_url(data_dir: Path) -> Iterator[str]:
    """The URL of a server without prepared transactions, where the mover can sleep."""
    with EmbeddedPostgres(data_dir, options={"fsync": "off"}) as postgres:
        yield postgres.url


@pytest.fixture
async def sleeping_log(sleeping_url: str) -> AsyncIterator[Log]:
    async with opened(sleeping_url) as log:
        yield log


async def test_what_is_pushed_arrives_without_a_call(log: Log, sql: Connection[Any]) -> None:
    await log.configure(QUEUE)
    for number in range(3):
        push(sql, number)
        assert await pop_one(log) == number


async def test_no_process_is_the_mover_before_the_first_push(log: Log, database_url: str) -> None:
    await log.configure(QUEUE)
    assert ask(database_url, _HOLDERS, LOCKS, MOVER_LOCK) == 0
    with psycopg.connect(database_url, autocommit=True) as conn:
        push(conn, 1)
    await holds(database_url, MOVER_LOCK)


async def test_another_process_takes_over(log: Log, database_url: str, sql: Connection[Any]) -> None:
    async with opened(database_url) as first:
        await first.configure(QUEUE)
        push(sql, 1)
        assert await pop_one(first) == 1
    push(sql, 2)
    assert await pop_one(log) == 2


async def test_a_mover_that_lost_its_connection_is_replaced(log: Log, database_url: str, sql: Connection[Any]) -> None:
    await log.configure(QUEUE)
    push(sql, 1)
    assert await pop_one(log) == 1
    killed = sql.execute(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    ).fetchone()
    assert killed is not None
    assert killed[0] >= 2
    push(sql, 2)
    assert await pop_one(log) == 2
    await holds(database_url, MOVER_LOCK)


@pytest.mark.slow
async def test_a_push_wakes_a_mover_that_sleeps(sleeping_log: Log, sleeping_url: str) -> None:
    await sleeping_log.configure(QUEUE)
    with psycopg.connect(sleeping_url, autocommit=True) as conn:
        push(conn, 0)
        assert await pop_one(sleeping_log) == 0
        for number in range(1, 4):
            await holds(sleeping_url, SLEEP_LOCK)
            started = time.monotonic()
            push(conn, number)
            assert await pop_one(sleeping_log) == number
            # It sleeps for seconds if nobody wakes it.
            assert time.monotonic() - started < 2


@pytest.mark.slow
async def test_a_push_is_not_missed_while_the_mover_falls_asleep(sleeping_log: Log, sleeping_url: str) -> None:
    """The commit has begun when the mover wants to sleep, and is visible later."""
    await sleeping_log.configure(QUEUE)
    with psycopg.connect(sleeping_url, autocommit=True) as conn:
        push(conn, 0)
        assert await pop_one(sleeping_log) == 0
        with conn.transaction():
            push(conn, 1)
            conn.execute("SET CONSTRAINTS ALL IMMEDIATE")
            # Longer than the mover waits before it sleeps.
            conn.execute("SELECT pg_sleep(1.5)")
            assert ask(sleeping_url, _HOLDERS, LOCKS, SLEEP_LOCK) == 0
        started = time.monotonic()
        assert await pop_one(sleeping_log) == 1
        assert time.monotonic() - started < 2


async def test_a_queue_that_cannot_be_moved_does_not_hold_back_others(
    still_log: Log, sql: Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    await still_log.configure("broken")
    await still_log.configure(QUEUE)
    sql.execute("SELECT penstock.push('broken', '1')")
    push(sql, 1)
    sql.execute("UPDATE penstock.queues SET encrypted = true WHERE name = 'broken'")
    still_log.catalog._forget("broken")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await still_log.inbox.move()
    assert data(await drain(still_log)) == [1]
    assert sum("cannot be moved to queue 'broken'" in record.message for record in caplog.records) == 1
    assert await still_log.inbox.has_rows()


async def test_rows_that_a_long_transaction_keeps_are_not_read_again(
    still_log: Log, sql: Connection[Any], database_url: str
) -> None:
    await still_log.configure(QUEUE, {"max_depth_events": None})
    async with held(database_url, "SELECT pg_current_xact_id(), count(*) FROM pg_class"):
        sql.execute("SELECT count(penstock.push('orders', '1')) FROM generate_series(1, 2000)")
        await still_log.inbox.move(is_idle=True)
        plan = sql.execute(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM penstock.inbox_order o "
            "WHERE o.sequence > (SELECT s.floor FROM penstock.inbox_state s) ORDER BY o.sequence LIMIT 10"
        ).fetchone()
        assert plan is not None
        assert plan[0][0]["Plan"]["Shared Hit Blocks"] + plan[0][0]["Plan"]["Shared Read Blocks"] < 10


@pytest.mark.parametrize("partitions", [1, 4])
async def test_events_follow_a_change_of_the_partitions(still_log: Log, sql: Connection[Any], partitions: int) -> None:
    await still_log.configure(QUEUE)
    await still_log.subscribe(QUEUE, "workers")
    push(sql, 1)
    await still_log.inbox.move()
    push(sql, 2)
    await still_log.repartition(QUEUE, "hash", partitions)
    push(sql, 3)
    await still_log.inbox.move()
    assert by_key(await drain(still_log)) == {"ada": [1, 2, 3]}

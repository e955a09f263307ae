"""Events that are pushed with SQL are in the order of the commits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection, IsolationLevel

from penstock.log.log import Log
from tests.conditions import eventually_async
from tests.log.logs import QUEUE, by_key, data, drain


@pytest.fixture
def other(database_url: str) -> Iterator[Connection[Any]]:
    with psycopg.connect(database_url, autocommit=True) as conn:
        yield conn


def push(conn: Connection[Any], value: int, key: str | None = "ada", queue: str = QUEUE) -> None:
    conn.execute("SELECT penstock.push(%s, to_jsonb(%s::int), key => %s)", (queue, value, key))


def begin_commit(conn: Connection[Any]) -> None:
    """Do what a commit does first: fire the deferred triggers."""
    conn.execute("SET CONSTRAINTS ALL IMMEDIATE")
    conn.execute("SET CONSTRAINTS ALL DEFERRED")


async def moved(log: Log, queue: str = QUEUE) -> dict[str | None, list[Any]]:
    await log.inbox.move()
    return by_key(await drain(log, queue))


async def test_the_order_is_that_of_the_commits_and_not_of_the_pushes(
    still_log: Log, sql: Connection[Any], other: Connection[Any]
) -> None:
    await still_log.configure(QUEUE)
    with sql.transaction():
        push(sql, 2)
        with other.transaction():
            push(other, 1)
    assert await moved(still_log) == {"ada": [1, 2]}


async def test_an_open_transaction_holds_no_other_push_back(
    still_log: Log, sql: Connection[Any], other: Connection[Any]
) -> None:
    await still_log.configure(QUEUE)
    with sql.transaction():
        push(sql, 2)
        push(other, 1)
        assert await moved(still_log) == {"ada": [1]}
    assert await moved(still_log) == {"ada": [2]}


async def test_a_later_number_waits_for_a_commit_that_is_not_visible_yet(
    still_log: Log, sql: Connection[Any], other: Connection[Any]
) -> None:
    await still_log.configure(QUEUE)
    await still_log.configure("other")
    push(other, 0)
    with sql.transaction():
        push(sql, 1)
        begin_commit(sql)
        push(other, 2)
        push(other, 7, queue="other")
        assert await moved(still_log) == {"ada": [0]}
        assert await moved(still_log, "other") == {"ada": [7]}
        assert await moved(still_log) == {}
    assert await moved(still_log) == {"ada": [1, 2]}


async def test_pushes_wait_for_no_other_commit(still_log: Log, sql: Connection[Any], other: Connection[Any]) -> None:
    await still_log.configure(QUEUE)
    other.execute("SET lock_timeout = '1s'")
    with sql.transaction():
        push(sql, 1)
        begin_commit(sql)
        push(other, 2)
        with other.transaction():
            push(other, 3)
            begin_commit(other)
    assert await moved(still_log) == {"ada": [1, 2, 3]}


async def test_a_commit_that_fails_holds_nothing_back(
    still_log: Log, sql: Connection[Any], other: Connection[Any]
) -> None:
    await still_log.configure(QUEUE)
    with sql.transaction(force_rollback=True):
        push(sql, 1)
        begin_commit(sql)
        push(other, 2)
    assert await moved(still_log) == {"ada": [2]}


async def test_a_rollback_to_a_savepoint_withdraws_the_number(
    still_log: Log, sql: Connection[Any], other: Connection[Any]
) -> None:
    await still_log.configure(QUEUE)
    with sql.transaction():
        with sql.transaction(force_rollback=True):
            push(sql, 0)
            begin_commit(sql)
        push(other, 1)
        assert await moved(still_log) == {"ada": [1]}
        push(sql, 2)
        begin_commit(sql)
        push(other, 3)
        assert await moved(still_log) == {}
    assert await moved(still_log) == {"ada": [2, 3]}


async def test_pushes_after_constraints_were_immediate_are_in_order(still_log: Log, sql: Connection[Any]) -> None:
    await still_log.configure(QUEUE)
    with sql.transaction():
        push(sql, 1)
        sql.execute("SET CONSTRAINTS ALL IMMEDIATE")
        push(sql, 2)
        sql.execute("SET CONSTRAINTS ALL DEFERRED")
        push(sql, 3)
        push(sql, 4, "bob")
    assert await moved(still_log) == {"ada": [1, 2, 3], "bob": [4]}


async def test_a_transaction_whose_settings_were_reset_keeps_the_order(
    still_log: Log, sql: Connection[Any], other: Connection[Any]
) -> None:
    await still_log.configure(QUEUE)
    with sql.transaction():
        push(sql, 1)
        begin_commit(sql)
        sql.execute("RESET ALL")
        push(other, 2)
        push(sql, 3)
    assert await moved(still_log) == {"ada": [1, 2, 3]}


async def test_a_prepared_transaction_has_its_place_when_it_commits(
    still_log: Log, sql: Connection[Any], other: Connection[Any]
) -> None:
    await still_log.configure(QUEUE)
    sql.execute("BEGIN")
    push(sql, 1)
    sql.execute("PREPARE TRANSACTION 'inbox test'")
    try:
        push(other, 2)
        await still_log.inbox.move(is_idle=True)
        assert await moved(still_log) == {}
    finally:
        sql.execute("COMMIT PREPARED 'inbox test'")
    assert await moved(still_log) == {"ada": [1, 2]}


async def test_serializable_transactions_that_push_do_not_conflict(
    still_log: Log, sql: Connection[Any], other: Connection[Any]
) -> None:
    await still_log.configure(QUEUE)
    sql.isolation_level = other.isolation_level = IsolationLevel.SERIALIZABLE
    for number in range(5):
        with sql.transaction():
            push(sql, number, "ada")
            with other.transaction():
                push(other, number, "bob")
            push(sql, number, "ada")
    assert await moved(still_log) == {"ada": [0, 0, 1, 1, 2, 2, 3, 3, 4, 4], "bob": [0, 1, 2, 3, 4]}


async def test_many_pushes_of_one_transaction_take_one_lock(
    still_log: Log, sql: Connection[Any], other: Connection[Any]
) -> None:
    await still_log.configure(QUEUE, {"max_depth_events": None})
    with sql.transaction():
        sql.execute("SELECT count(penstock.push('orders', to_jsonb(n))) FROM generate_series(1, 2000) n")
        begin_commit(sql)
        # The view has the locks of the whole server.
        locks = other.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND pid = %s",
            [sql.info.backend_pid],
        )
        assert locks.fetchone() == (1,)
    assert await moved(still_log) == {None: list(range(1, 2001))}


async def test_the_floor_does_not_pass_a_commit_that_is_not_visible_yet(
    still_log: Log, sql: Connection[Any], other: Connection[Any]
) -> None:
    await still_log.configure(QUEUE)
    await still_log.configure("other")
    floor = "SELECT floor FROM penstock.inbox_state"
    with sql.transaction():
        push(sql, 1)
        begin_commit(sql)
        for number in range(20):
            push(other, number, queue="other")
        await still_log.inbox.move(is_idle=True)
        assert len((await moved(still_log, "other"))["ada"]) == 20
        assert other.execute(floor).fetchone() == (1,)
    assert await moved(still_log) == {"ada": [1]}
    await still_log.inbox.move(is_idle=True)
    assert other.execute(floor).fetchone() == (22,)
    push(sql, 2)
    assert await moved(still_log) == {"ada": [2]}


async def test_several_processes_move_each_event_once(still_log: Log, other_log: Log, sql: Connection[Any]) -> None:
    await still_log.configure(QUEUE, partitioning="hash", partitions=2)
    total = 600
    for number in range(total):
        push(sql, number, str(number % 10))
        if number % 100 == 99:
            await asyncio.gather(*(log.inbox.move() for log in (still_log, other_log) for _ in range(3)))

    async def is_empty() -> bool:
        await still_log.inbox.move()
        return not await still_log.inbox.has_rows()

    await eventually_async(is_empty)
    events = by_key(await drain(still_log))
    assert events == {str(key): list(range(key, total, 10)) for key in range(10)}


async def test_events_without_a_key_have_the_order_of_a_single_partition(
    still_log: Log, sql: Connection[Any], other: Connection[Any]
) -> None:
    await still_log.configure(QUEUE, partitioning="hash", partitions=1)
    with sql.transaction():
        push(sql, 2, None)
        push(other, 1, None)
    push(other, 3, "ada")
    await still_log.inbox.move()
    assert data(await drain(still_log)) == [1, 2, 3]

"""Events of a key that are pushed with SQL are in the order of the commits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection, IsolationLevel

from penstock.log.log import Log
from tests.log.logs import QUEUE, by_key, data, drain, eventually, waiting


@pytest.fixture
def other(database_url: str) -> Iterator[Connection[Any]]:
    with psycopg.connect(database_url, autocommit=True) as conn:
        yield conn


def push(conn: Connection[Any], value: int, key: str | None = "ada") -> None:
    conn.execute("SELECT penstock.push('orders', to_jsonb(%s::int), key => %s)", (value, key))


async def test_the_order_is_that_of_the_commits_and_not_of_the_pushes(
    still_log: Log, sql: Connection[Any], other: Connection[Any]
) -> None:
    await still_log.configure(QUEUE)
    with sql.transaction():
        push(sql, 2)
        with other.transaction():
            push(other, 1)
    await still_log.inbox.move()
    assert by_key(await drain(still_log)) == {"ada": [1, 2]}


async def test_an_open_transaction_holds_no_other_push_back(
    still_log: Log, sql: Connection[Any], other: Connection[Any]
) -> None:
    await still_log.configure(QUEUE)
    with sql.transaction():
        push(sql, 2)
        push(other, 1)
        await still_log.inbox.move()
        assert data(await drain(still_log)) == [1]
    await still_log.inbox.move()
    assert data(await drain(still_log)) == [2]


async def test_a_commit_waits_for_that_of_the_same_key(
    still_log: Log, sql: Connection[Any], other: Connection[Any], database_url: str
) -> None:
    await still_log.configure(QUEUE)
    with sql.transaction():
        push(sql, 1)
        sql.execute("SET CONSTRAINTS ALL IMMEDIATE")  # as if the commit had begun
        push(other, 0, "bob")
        push(other, 0, None)
        later = threading.Thread(target=push, args=(other, 2))
        later.start()
        await waiting(database_url)
        push(sql, 3)
    later.join()
    await still_log.inbox.move()
    assert by_key(await drain(still_log)) == {"bob": [0], None: [0], "ada": [1, 3, 2]}


async def test_keys_of_any_order_do_not_deadlock(still_log: Log, database_url: str) -> None:
    await still_log.configure(QUEUE, partitioning="hash", partitions=2)
    keys = [f"key {n}" for n in range(40)]

    def work(number: int) -> None:
        with psycopg.connect(database_url, autocommit=True) as conn:
            for repetition in range(20):
                with conn.transaction():
                    for key in keys if (number + repetition) % 2 else reversed(keys):
                        push(conn, number, key)

    await asyncio.gather(*(asyncio.to_thread(work, number) for number in range(4)))
    await still_log.inbox.move()
    assert len(await drain(still_log)) == 4 * 20 * 40


async def test_a_rollback_to_a_savepoint_releases_the_key(
    still_log: Log, sql: Connection[Any], other: Connection[Any]
) -> None:
    await still_log.configure(QUEUE)
    with sql.transaction():
        push(sql, 2, "bob")
        with sql.transaction(force_rollback=True):
            push(sql, 0)
            sql.execute("SET CONSTRAINTS ALL IMMEDIATE")
        sql.execute("SET CONSTRAINTS ALL DEFERRED")
        push(other, 1)
        push(other, 1, "bob")
        push(sql, 2)
    await still_log.inbox.move()
    assert by_key(await drain(still_log)) == {"ada": [1, 2], "bob": [1, 2]}


async def test_pushes_after_constraints_were_immediate_are_in_order(still_log: Log, sql: Connection[Any]) -> None:
    await still_log.configure(QUEUE)
    with sql.transaction():
        push(sql, 1)
        sql.execute("SET CONSTRAINTS ALL IMMEDIATE")
        push(sql, 2)
        sql.execute("SET CONSTRAINTS ALL DEFERRED")
        push(sql, 3)
        push(sql, 4, "bob")
    await still_log.inbox.move()
    assert by_key(await drain(still_log)) == {"ada": [1, 2, 3], "bob": [4]}


async def test_a_transaction_whose_settings_were_reset_keeps_the_order(
    still_log: Log, sql: Connection[Any], other: Connection[Any], database_url: str
) -> None:
    await still_log.configure(QUEUE)
    with sql.transaction():
        push(sql, 1)
        sql.execute("RESET ALL")
        sql.execute("SET CONSTRAINTS ALL IMMEDIATE")
        later = threading.Thread(target=push, args=(other, 2))
        later.start()
        await waiting(database_url)
    later.join()
    await still_log.inbox.move()
    assert data(await drain(still_log)) == [1, 2]


async def test_a_prepared_transaction_has_its_place_when_it_commits(
    still_log: Log, sql: Connection[Any], other: Connection[Any], database_url: str
) -> None:
    await still_log.configure(QUEUE)
    sql.execute("BEGIN")
    push(sql, 1)
    sql.execute("PREPARE TRANSACTION 'inbox test'")
    try:
        push(other, 0, "bob")
        later = threading.Thread(target=push, args=(other, 2))
        later.start()
        await waiting(database_url)
        await still_log.inbox.move()
        for _ in range(3):
            await still_log.inbox.raise_floor(is_idle=True)
        assert by_key(await drain(still_log)) == {"bob": [0]}
    finally:
        sql.execute("COMMIT PREPARED 'inbox test'")
    later.join()
    await still_log.inbox.move()
    assert data(await drain(still_log)) == [1, 2]


async def test_a_queue_with_one_partition_has_one_order(
    still_log: Log, sql: Connection[Any], other: Connection[Any], database_url: str
) -> None:
    await still_log.configure(QUEUE, partitioning="hash", partitions=1)
    with sql.transaction():
        push(sql, 1, None)
        sql.execute("SET CONSTRAINTS ALL IMMEDIATE")
        later = threading.Thread(target=push, args=(other, 2))
        later.start()
        await waiting(database_url)
    later.join()
    await still_log.inbox.move()
    assert data(await drain(still_log)) == [1, 2]


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
    await still_log.inbox.move()
    assert by_key(await drain(still_log)) == {"ada": [0, 0, 1, 1, 2, 2, 3, 3, 4, 4], "bob": [0, 1, 2, 3, 4]}


async def test_the_floor_does_not_pass_a_commit_that_is_not_visible_yet(
    still_log: Log, sql: Connection[Any], other: Connection[Any]
) -> None:
    await still_log.configure(QUEUE)
    with sql.transaction():
        push(sql, 1, "ada")
        sql.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for number in range(20):
            push(other, number, "bob")
        await still_log.inbox.move()
        for _ in range(3):
            await still_log.inbox.raise_floor(is_idle=True)
        assert other.execute("SELECT floor FROM penstock.inbox_state").fetchone() == (0,)
    await still_log.inbox.move()
    assert by_key(await drain(still_log))["ada"] == [1]

    async def is_raised() -> bool:
        await still_log.inbox.raise_floor(is_idle=True)
        return bool(other.execute("SELECT floor >= 21 FROM penstock.inbox_state").fetchone() == (True,))

    await eventually(is_raised)
    push(sql, 2, "ada")
    await still_log.inbox.move()
    assert data(await drain(still_log)) == [2]


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

    await eventually(is_empty)
    events = by_key(await drain(still_log))
    assert events == {str(key): list(range(key, total, 10)) for key in range(10)}

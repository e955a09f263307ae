"""Acks and pushes in a transaction of the user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection, IsolationLevel
from psycopg.rows import dict_row

from penstock.core.clock import Clock
from penstock.core.errors import Conflict, InvalidRequest, QueueFull, TransactionRefused
from penstock.log.log import Log
from penstock.log.read.ack import EventStatus
from penstock.log.write.encode.batch import Batch
from tests.conditions import eventually_async
from tests.log.logs import GROUP, PATIENCE, QUEUE, ask, data, drain, lag, letters, pop, push, roll, waiting
from tests.servers import Server


@pytest.fixture
async def conn(log: Log, database_url: str) -> AsyncIterator[AsyncConnection[Any]]:
    """A connection of a user, with a table."""
    await log.configure(QUEUE)
    await log.configure("out")
    async with await AsyncConnection.connect(database_url, autocommit=True, row_factory=dict_row) as conn:
        await conn.execute("CREATE TABLE invoices (number integer)")
        yield conn


def batch(*datas: object, queue: str = QUEUE, key: str | None = "ada") -> list[Batch]:
    return [Batch(queue, [{"data": each} for each in datas], key=key)]


async def test_events_become_visible_with_the_users_commit(log: Log, conn: AsyncConnection[Any]) -> None:
    async with conn.transaction():
        await conn.execute("INSERT INTO invoices VALUES (1)")
        done = await log.transact([], [*batch(1, 2), *batch(3, queue="out", key=None)], connection=conn)
        assert [[pushed.offset for pushed in result] for result in done.pushes] == [[0, 1], [0]]
        assert await pop(log) == []
    assert data(await drain(log)) == [1, 2]
    assert data(await drain(log, "out")) == [3]


async def test_a_rollback_discards_the_events(log: Log, conn: AsyncConnection[Any], database_url: str) -> None:
    await push(log, ["before"], key="ada")
    async with conn.transaction(force_rollback=True):
        await conn.execute("INSERT INTO invoices VALUES (1)")
        await log.transact([], batch("never"), connection=conn)
    (result,) = (await log.transact([], batch("after"))).pushes
    assert [pushed.offset for pushed in result] == [1]
    assert data(await drain(log)) == ["before", "after"]
    assert await asyncio.to_thread(ask, database_url, "SELECT count(*) FROM invoices") == 0


async def test_an_ack_takes_effect_with_the_users_commit(log: Log, conn: AsyncConnection[Any], clock: Clock) -> None:
    await push(log, range(3))
    events = await pop(log)
    async with conn.transaction(force_rollback=True):
        await log.transact([EventStatus(events[0], True)], batch("never", queue="out"), connection=conn)
    assert await lag(log) == 3
    async with conn.transaction():
        statuses = [EventStatus(events[0], True), EventStatus(events[1], "dead_letter", "no use")]
        assert (await log.transact(statuses, batch("made of it", queue="out"), connection=conn)).acked == 2
    assert [letter.data for letter in await letters(log)] == [1]
    assert data(await drain(log, "out")) == ["made of it"]
    clock.advance(1000)
    assert data(await drain(log)) == [2]


async def test_a_refused_ack_keeps_the_users_transaction_usable(
    log: Log, conn: AsyncConnection[Any], clock: Clock, database_url: str
) -> None:
    await push(log, [1])
    events = await pop(log)
    clock.advance(1000)
    async with conn.transaction():
        await conn.execute("INSERT INTO invoices VALUES (1)")
        with pytest.raises(TransactionRefused):
            await log.transact([EventStatus(events[0], True)], batch("never", queue="out"), connection=conn)
        await conn.execute("INSERT INTO invoices VALUES (2)")
    assert await asyncio.to_thread(ask, database_url, "SELECT count(*) FROM invoices") == 2
    assert await pop(log, "out") == []


async def test_the_users_commit_wakes_waiting_pops(log: Log, other_log: Log, conn: AsyncConnection[Any]) -> None:
    popped = asyncio.create_task(pop(other_log, wait_seconds=PATIENCE))
    async with asyncio.timeout(4):  # sooner than its next poll
        while not popped.done():
            async with conn.transaction():
                await log.transact([], batch("awake"), connection=conn)
            await asyncio.wait([popped], timeout=0.5)
    assert data(popped.result())[0] == "awake"


async def test_other_pushes_wait_for_the_partition_and_leave_no_gap(
    log: Log, other_log: Log, conn: AsyncConnection[Any], database_url: str
) -> None:
    async with conn.transaction():
        await log.transact([], batch("first"), connection=conn)
        await push(other_log, ["elsewhere"], key="bob")
        second = asyncio.create_task(push(other_log, ["second"], key="ada"))
        await waiting(database_url)
    assert [pushed.offset for pushed in await second] == [1]
    assert data(await log.fetch(QUEUE, "ada")) == ["first", "second"]


async def test_a_push_in_a_users_transaction_is_deduplicated(log: Log, conn: AsyncConnection[Any]) -> None:
    await push(log, [1], key="ada", ids=["one"])
    events = [{"data": n, "key": "ada", "id": id} for n, id in ((1, "one"), (2, "two"), (2, "two"))]
    async with conn.transaction():
        (result,) = (await log.transact([], [Batch(QUEUE, events)], connection=conn)).pushes
    assert [(pushed.offset, pushed.duplicate) for pushed in result] == [(0, True), (1, False), (1, True)]


async def test_a_users_transaction_follows_a_new_segment(
    log: Log, other_log: Log, conn: AsyncConnection[Any], database_url: str
) -> None:
    await push(log, [0], key="ada")
    await roll(other_log)
    async with conn.transaction():
        await conn.execute("INSERT INTO invoices VALUES (1)")
        await log.transact([], batch(1), connection=conn)
    await other_log.repartition(QUEUE, "hash", 2)
    async with conn.transaction():
        await conn.execute("INSERT INTO invoices VALUES (2)")
        await log.transact([], batch(2), connection=conn)
    assert data(await drain(log)) == [0, 1, 2]
    assert await asyncio.to_thread(ask, database_url, "SELECT count(*) FROM invoices") == 2


async def test_a_full_queue_refuses_without_failing_the_transaction(log: Log, conn: AsyncConnection[Any]) -> None:
    await log.configure(QUEUE, {"max_depth_events": 2})
    await log.subscribe(QUEUE, GROUP)
    await push(log, [1, 2])
    async with conn.transaction():
        with pytest.raises(QueueFull):
            await log.transact([], batch(3), connection=conn)
        await conn.execute("INSERT INTO invoices VALUES (1)")


async def test_upkeep_does_not_wait_for_a_long_transaction(
    log: Log, other_log: Log, conn: AsyncConnection[Any], clock: Clock
) -> None:
    await push(log, [1], key="ada")
    clock.advance(86400 * 2)
    async with conn.transaction():
        await log.transact([], batch(2), connection=conn)
        assert (await other_log.upkeep()).rolled == 0
        await push(log, [3], key="bob")

    async def rolled() -> bool:
        return (await other_log.upkeep()).rolled == 1 or (await log.catalog.refresh(QUEUE)).segment > 1

    await eventually_async(rolled)
    assert sorted(data(await drain(log))) == [1, 2, 3]


async def test_a_deadlock_raises_conflict(log: Log, conn: AsyncConnection[Any], database_url: str) -> None:
    async def cross(conn: AsyncConnection[Any], first: str, second: str) -> None:
        async with conn.transaction():
            await log.transact([], batch(first, key=first), connection=conn)
            await barrier.wait()
            await log.transact([], batch(second, key=second), connection=conn)

    barrier = asyncio.Barrier(2)
    async with await AsyncConnection.connect(database_url, autocommit=True) as other:
        ended = await asyncio.gather(cross(conn, "ada", "bob"), cross(other, "bob", "ada"), return_exceptions=True)
    assert [type(each) for each in ended if each is not None] == [Conflict]
    assert len(await drain(log)) == 2


# Refused connections


async def test_a_connection_without_a_transaction_is_refused(log: Log, conn: AsyncConnection[Any]) -> None:
    with pytest.raises(InvalidRequest, match="no transaction in progress"):
        await log.transact([], batch(1), connection=conn)
    assert await pop(log) == []


async def test_a_connection_without_autocommit_is_accepted(
    log: Log, conn: AsyncConnection[Any], database_url: str
) -> None:
    async with await AsyncConnection.connect(database_url) as own:
        await log.transact([], batch(1), connection=own)
        assert await pop(log) == []
        await own.commit()
        assert data(await drain(log)) == [1]


async def test_a_transaction_that_has_failed_is_refused(
    log: Log, conn: AsyncConnection[Any], database_url: str
) -> None:
    async with await AsyncConnection.connect(database_url) as own:
        with pytest.raises(psycopg.errors.DivisionByZero):
            await own.execute("SELECT 1 / 0")
        with pytest.raises(InvalidRequest, match="has failed"):
            await log.transact([], batch(1), connection=own)


@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
async def test_a_serializable_transaction_is_refused(
    log: Log, conn: AsyncConnection[Any], level: IsolationLevel
) -> None:
    await conn.set_isolation_level(level)
    async with conn.transaction():
        with pytest.raises(InvalidRequest, match="read committed"):
            await log.transact([], batch(1), connection=conn)
        await conn.execute("INSERT INTO invoices VALUES (1)")


async def test_another_database_is_refused(log: Log, conn: AsyncConnection[Any], pg18: Server) -> None:
    with pg18.fresh_database("template0") as url:
        async with await AsyncConnection.connect(url) as stranger:
            with pytest.raises(InvalidRequest, match="does not hold"):
                await log.transact([], batch(1), connection=stranger)
            await stranger.execute("SELECT 1")


@pytest.mark.parametrize("what", ["postgresql://localhost/db", 7])
async def test_an_object_that_is_not_a_connection_is_refused(log: Log, conn: AsyncConnection[Any], what: Any) -> None:
    with pytest.raises(InvalidRequest, match="psycopg"):
        await log.transact([], batch(1), connection=what)

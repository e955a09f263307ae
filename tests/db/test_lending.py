from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg_pool import PoolClosed, PoolTimeout

from penstock.core.settings import Settings
from penstock.db.fast import pool as fast_pool
from penstock.db.pool import Pool, open_pool


async def pid_of(conn: AsyncConnection[Any]) -> int:
    row = await (await conn.execute("SELECT pg_backend_pid()")).fetchone()
    assert row is not None
    return int(row[0])


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    pool = await open_pool(Settings(database_url=database_url, pool_size=4))
    try:
        yield pool
    finally:
        await pool.close()


async def test_what_was_used_last_is_lent_first(pool: Pool) -> None:
    async with pool.connection() as one, pool.connection() as two:
        first, second = await pid_of(one), await pid_of(two)
    for _ in range(5):
        async with pool.connection() as again:
            assert await pid_of(again) == first
            async with pool.connection() as other:
                assert await pid_of(other) == second


async def test_there_are_never_more_than_the_pool_may_have_and_nobody_is_forgotten(database_url: str) -> None:
    pool = await open_pool(Settings(database_url=database_url, pool_size=2))
    pids: set[int] = set()
    out = most = 0

    async def use(n: int) -> None:
        nonlocal out, most
        async with pool.connection(timeout=20) as conn:
            out += 1
            most = max(most, out)
            if n % 3:
                pids.add(await pid_of(conn))
            if n % 5 == 0:
                await asyncio.sleep(0)
            out -= 1

    try:
        for _ in range(5):
            async with asyncio.timeout(20):
                await asyncio.gather(*[use(n) for n in range(60)])
    finally:
        await pool.close()
    assert most == 2
    assert len(pids) == 2


async def test_who_waits_gets_what_comes_back(database_url: str) -> None:
    pool = await open_pool(Settings(database_url=database_url, pool_size=1))
    try:
        for _ in range(20):
            conn = await pool.getconn()
            waiting = asyncio.create_task(pool.getconn(timeout=20))
            await asyncio.sleep(0)
            await pool.putconn(conn)
            await pool.putconn(await waiting)
        conn = await pool.getconn()
        with pytest.raises(PoolTimeout):
            await pool.getconn(timeout=0.05)
        await pool.putconn(conn)
    finally:
        await pool.close()


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("after", range(5))
async def test_who_is_cancelled_while_giving_back_takes_no_connection_along(
    database_url: str, before: int, after: int
) -> None:
    pool = await open_pool(Settings(database_url=database_url, pool_size=1))
    has, may_go = asyncio.Event(), asyncio.Event()

    async def use() -> None:
        async with pool.connection():
            has.set()
            await may_go.wait()

    try:
        using = asyncio.create_task(use())
        await has.wait()
        waiting = asyncio.create_task(pool.getconn(timeout=5))
        for _ in range(before):
            await asyncio.sleep(0)
        may_go.set()
        for _ in range(after):
            await asyncio.sleep(0)
        using.cancel()
        async with asyncio.timeout(20):
            await pool.putconn(await waiting)
            async with pool.connection(timeout=5) as conn:
                assert await pid_of(conn)
        await asyncio.wait([using])
    finally:
        await pool.close()


async def test_a_transaction_ends_with_the_loan(pool: Pool) -> None:
    await execute(pool, "CREATE TABLE kept (n int)")
    async with pool.connection() as conn:
        await conn.execute("BEGIN")
        await conn.execute("INSERT INTO kept VALUES (1)")
    with pytest.raises(psycopg.errors.DivisionByZero):
        await _fail(pool)
    assert await execute(pool, "SELECT n FROM kept") == [(1,)]


async def _fail(pool: Pool) -> None:
    async with pool.connection() as conn:
        await conn.execute("BEGIN")
        await conn.execute("INSERT INTO kept VALUES (2)")
        await conn.execute("SELECT 1 / 0")


async def execute(pool: Pool, statement: str) -> list[Any]:
    async with pool.connection() as conn:
        assert conn.pgconn.transaction_status == TransactionStatus.IDLE
        cursor = await conn.execute(statement.encode())
        return await cursor.fetchall() if cursor.description else []


async def test_one_that_broke_is_not_lent_again(pool: Pool) -> None:
    async with pool.connection() as other, pool.connection() as conn:
        pid = await pid_of(conn)
        await other.execute("SELECT pg_terminate_backend(%s::int, 5000)", (pid,))
        with pytest.raises(psycopg.OperationalError):
            await conn.execute("SELECT 1")
    for _ in range(4):
        async with pool.connection() as again:
            assert await pid_of(again) != pid


async def test_those_that_the_server_has_ended_are_lent_to_nobody(database_url: str) -> None:
    # Three at hand, and more that rest in the driver's pool.
    pool = await open_pool(Settings(database_url=database_url, pool_size=6))
    try:
        lent = [await pool.getconn() for _ in range(6)]
        before = {await pid_of(conn) for conn in lent}
        # One that the driver was waiting for when it was last used, and so is not watched.
        await lent[0].execute("SELECT length(%s)", ("x" * (8 << 20),))
        for conn in lent:
            await pool.putconn(conn)
        async with await AsyncConnection.connect(database_url, autocommit=True) as other:
            await other.execute("SELECT pg_terminate_backend(pid, 5000) FROM unnest(%s::int[]) AS p (pid)", [[*before]])
        after = [await pool.getconn(timeout=20) for _ in range(6)]
        assert before.isdisjoint({await pid_of(conn) for conn in after})
        for conn in after:
            await pool.putconn(conn)
    finally:
        await pool.close()


async def test_a_word_of_the_server_that_ends_nothing_ends_nothing(pool: Pool, database_url: str) -> None:
    async with pool.connection() as conn:
        pid = await pid_of(conn)
        await conn.execute("LISTEN here")
    async with await AsyncConnection.connect(database_url, autocommit=True) as other:
        await other.execute("NOTIFY here, 'a word'")
    async with pool.connection() as again:
        assert await pid_of(again) == pid
        await again.execute("UNLISTEN *")


async def test_one_that_was_lent_for_long_goes_back_to_the_drivers_pool(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_pool, "_LONGEST_SECONDS", 0.0)
    for _ in range(3):
        async with pool.connection() as conn:
            await pid_of(conn)
    assert pool.get_stats()["requests_num"] == 3


async def test_a_closed_pool_leaves_no_connection_and_lends_none(database_url: str) -> None:
    pool = await open_pool(Settings(database_url=database_url, pool_size=4))
    async with pool.connection() as one, pool.connection() as two:
        conns = [one, two]
    late = await pool.getconn()
    await pool.close()
    with pytest.raises(PoolClosed):
        await pool.getconn()
    await pool.putconn(late)
    assert all(conn.closed for conn in [*conns, late])

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
from penstock.db.fast.connection import FastConnection
from penstock.db.fast.pool import FastPool
from penstock.db.pool import Pool, open_pool


async def get_pid(conn: AsyncConnection[Any]) -> int:
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


async def test_the_most_recently_used_connection_is_handed_out_first(pool: Pool) -> None:
    async with pool.connection() as one, pool.connection() as two:
        first, second = await get_pid(one), await get_pid(two)
    for _ in range(5):
        async with pool.connection() as again:
            assert await get_pid(again) == first
            async with pool.connection() as other:
                assert await get_pid(other) == second


async def test_the_pool_never_exceeds_its_size_and_serves_every_waiting_task(database_url: str) -> None:
    pool = await open_pool(Settings(database_url=database_url, pool_size=2))
    pids: set[int] = set()
    in_use = peak = 0

    async def use(n: int) -> None:
        nonlocal in_use, peak
        async with pool.connection(timeout=20) as conn:
            in_use += 1
            peak = max(peak, in_use)
            if n % 3:
                pids.add(await get_pid(conn))
            if n % 5 == 0:
                await asyncio.sleep(0)
            in_use -= 1

    try:
        for _ in range(5):
            async with asyncio.timeout(20):
                await asyncio.gather(*[use(n) for n in range(60)])
    finally:
        await pool.close()
    assert peak == 2
    assert len(pids) == 2


async def test_a_waiting_task_gets_the_returned_connection(database_url: str) -> None:
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
async def test_a_task_cancelled_while_it_returns_a_connection_does_not_lose_it(
    database_url: str, before: int, after: int
) -> None:
    pool = await open_pool(Settings(database_url=database_url, pool_size=1))
    got, may_return = asyncio.Event(), asyncio.Event()

    async def use() -> None:
        async with pool.connection():
            got.set()
            await may_return.wait()

    try:
        using = asyncio.create_task(use())
        await got.wait()
        waiting = asyncio.create_task(pool.getconn(timeout=5))
        for _ in range(before):
            await asyncio.sleep(0)
        may_return.set()
        for _ in range(after):
            await asyncio.sleep(0)
        using.cancel()
        async with asyncio.timeout(20):
            await pool.putconn(await waiting)
            async with pool.connection(timeout=5) as conn:
                assert await get_pid(conn)
        await asyncio.wait([using])
    finally:
        await pool.close()


async def test_leaving_the_context_ends_the_transaction(pool: Pool) -> None:
    await execute(pool, "CREATE TABLE stored (n int)")
    async with pool.connection() as conn:
        await conn.execute("BEGIN")
        await conn.execute("INSERT INTO stored VALUES (1)")
    with pytest.raises(psycopg.errors.DivisionByZero):
        await _fail(pool)
    assert await execute(pool, "SELECT n FROM stored") == [(1,)]


async def _fail(pool: Pool) -> None:
    async with pool.connection() as conn:
        await conn.execute("BEGIN")
        await conn.execute("INSERT INTO stored VALUES (2)")
        await conn.execute("SELECT 1 / 0")


async def execute(pool: Pool, statement: str) -> list[Any]:
    async with pool.connection() as conn:
        assert conn.pgconn.transaction_status == TransactionStatus.IDLE
        cursor = await conn.execute(statement.encode())
        return await cursor.fetchall() if cursor.description else []


async def test_a_broken_connection_is_not_handed_out_again(pool: Pool) -> None:
    async with pool.connection() as other, pool.connection() as conn:
        pid = await get_pid(conn)
        await other.execute("SELECT pg_terminate_backend(%s::int, 5000)", (pid,))
        with pytest.raises(psycopg.OperationalError):
            await conn.execute("SELECT 1")
    for _ in range(4):
        async with pool.connection() as again:
            assert await get_pid(again) != pid


async def test_connections_that_the_server_closed_are_not_handed_out(database_url: str) -> None:
    # Three are kept as recent, the others are in psycopg's pool.
    pool = await open_pool(Settings(database_url=database_url, pool_size=6))
    try:
        conns = [await pool.getconn() for _ in range(6)]
        before = {await get_pid(conn) for conn in conns}
        # psycopg waits for a statement of this size, so this connection has no reader.
        await conns[0].execute("SELECT length(%s)", ("x" * (8 << 20),))
        for conn in conns:
            await pool.putconn(conn)
        async with await AsyncConnection.connect(database_url, autocommit=True) as other:
            await other.execute("SELECT pg_terminate_backend(pid, 5000) FROM unnest(%s::int[]) AS p (pid)", [[*before]])
        after = [await pool.getconn(timeout=20) for _ in range(6)]
        assert before.isdisjoint({await get_pid(conn) for conn in after})
        for conn in after:
            await pool.putconn(conn)
    finally:
        await pool.close()


async def test_a_notification_does_not_close_an_idle_connection(pool: Pool, database_url: str) -> None:
    async with pool.connection() as conn:
        pid = await get_pid(conn)
        await conn.execute("LISTEN here")
    async with await AsyncConnection.connect(database_url, autocommit=True) as other:
        await other.execute("NOTIFY here, 'payload'")
    async with pool.connection() as again:
        assert await get_pid(again) == pid
        await again.execute("UNLISTEN *")


async def test_a_connection_in_use_for_long_goes_back_to_psycopgs_pool(database_url: str) -> None:
    pool = FastPool(
        database_url, connection_class=FastConnection, kwargs={"autocommit": True}, recent_seconds=0.0, open=False
    )
    async with pool:
        for _ in range(3):
            async with pool.connection() as conn:
                await get_pid(conn)
        assert pool.get_stats()["requests_num"] == 3


async def test_a_closed_pool_has_no_connections_and_hands_out_none(database_url: str) -> None:
    pool = await open_pool(Settings(database_url=database_url, pool_size=4))
    async with pool.connection() as one, pool.connection() as two:
        conns = [one, two]
    late = await pool.getconn()
    await pool.close()
    with pytest.raises(PoolClosed):
        await pool.getconn()
    await pool.putconn(late)
    assert all(conn.closed for conn in [*conns, late])

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import AsyncConnection

from penstock.core.settings import Settings
from penstock.db.fast.prepared import fetch
from penstock.db.pool import Pool, open_pool

SLEEPING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' "
    "AND wait_event = 'PgSleep'"
)

VALUES: dict[str, tuple[str, Any]] = {
    "text": ("%(value)s::text", "ü 'quoted' %"),
    "bytes": ("%(value)b::bytea", b"\x00\xff\\"),
    "integer": ("%(value)s::bigint", -(2**62)),
    "float": ("%(value)s::float8", 0.1),
    "null": ("%(value)s::text", None),
    "uuid": ("%(value)s::uuid", UUID(int=7)),
    "interval": ("%(value)s::interval", timedelta(days=-3, seconds=5, microseconds=7)),
}


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    pool = await open_pool(Settings(database_url=database_url, pool_size=2))
    try:
        yield pool
    finally:
        await pool.close()


@pytest.fixture
async def conn(pool: Pool) -> AsyncIterator[AsyncConnection[Any]]:
    async with pool.connection() as conn:
        yield conn


@pytest.mark.parametrize("kind", VALUES)
async def test_parameters_of_every_type_round_trip(conn: AsyncConnection[Any], kind: str) -> None:
    placeholder, value = VALUES[kind]
    for _ in range(2):
        assert await fetch(conn, f"SELECT {placeholder}, {placeholder} WHERE 1 %% 2 = 1", {"value": value}) == [
            (value, value)
        ]


async def test_rows_equal_those_of_psycopg(conn: AsyncConnection[Any]) -> None:
    statement = "SELECT n, n::text, ARRAY[n, 2 * n], now() FROM generate_series(1, %(n)s::int) AS n"
    async with conn.transaction():
        expected = await (await conn.execute(statement, {"n": 3}, binary=True)).fetchall()
        assert await fetch(conn, statement, {"n": 3}) == expected
    assert await fetch(conn, statement, {"n": 0}) == []


async def test_errors_are_those_of_psycopg_and_the_connection_stays_usable(conn: AsyncConnection[Any]) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        await fetch(conn, "SELECT 1 / %(n)s::int", {"n": 0})
    with pytest.raises(psycopg.errors.UndefinedTable):
        await fetch(conn, "SELECT * FROM nowhere", {})
    assert await fetch(conn, "SELECT 1 / %(n)s::int", {"n": 1}) == [(1,)]


async def test_a_lost_connection_raises_the_error_of_psycopg(conn: AsyncConnection[Any], pool: Pool) -> None:
    ((pid,),) = await fetch(conn, "SELECT pg_backend_pid()", {})
    async with pool.connection() as other:
        await fetch(other, "SELECT pg_terminate_backend(%(pid)s::int, 5000)", {"pid": pid})
    with pytest.raises(psycopg.OperationalError):
        await fetch(conn, "SELECT pg_backend_pid()", {})
    assert conn.broken


async def test_a_cancelled_statement_leaves_the_connection_usable(conn: AsyncConnection[Any], pool: Pool) -> None:
    sleeping = asyncio.create_task(fetch(conn, "SELECT pg_sleep(%(s)s::float8)", {"s": 60.0}))
    async with pool.connection() as other:
        while await fetch(other, SLEEPING, {}) != [(1,)]:  # noqa: ASYNC110 - the state is the server's
            await asyncio.sleep(0.01)
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    assert await fetch(conn, "SELECT 1", {}) == [(1,)]


async def test_statements_of_one_connection_wait_for_each_other(conn: AsyncConnection[Any]) -> None:
    results = await asyncio.gather(*(fetch(conn, "SELECT %(n)s::int", {"n": n}) for n in range(20)))
    assert results == [[(n,)] for n in range(20)]


async def test_the_least_recently_used_statements_are_deallocated(conn: AsyncConnection[Any]) -> None:
    conn.prepared_max = 6
    for _ in range(2):
        for n in range(5):
            assert await fetch(conn, f"SELECT %(value)s::uuid IS NULL, {n}", {"value": uuid4()}) == [(False, n)]
    ((count,),) = await (
        await conn.execute("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'penstock%'")
    ).fetchall()
    assert count == 3


async def test_unsupported_parameters_are_refused(conn: AsyncConnection[Any]) -> None:
    with pytest.raises(TypeError, match="list"):
        await fetch(conn, "SELECT %(value)s::int[]", {"value": [1]})


async def test_statements_that_psycopg_deallocates_are_prepared_again(conn: AsyncConnection[Any]) -> None:
    assert await fetch(conn, "SELECT %(n)s::int", {"n": 1}) == [(1,)]
    for statement in ("DROP TABLE IF EXISTS nowhere", "DEALLOCATE ALL"):
        await conn.execute(statement)
        await conn.execute("SELECT 1")
        assert await fetch(conn, "SELECT %(n)s::int", {"n": 2}) == [(2,)]
    await conn.execute("DEALLOCATE ALL")
    async with conn.transaction():
        assert await fetch(conn, "SELECT %(n)s::int", {"n": 3}) == [(3,)]

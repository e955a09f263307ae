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
from penstock.db.fast import prepared
from penstock.db.fast.prepared import fetch
from penstock.db.pool import Pool, open_pool

VALUES: dict[str, tuple[str, Any]] = {
    "text": ("%(it)s::text", "ü 'quoted' %"),
    "bytes": ("%(it)b::bytea", b"\x00\xff\\"),
    "number": ("%(it)s::bigint", -(2**62)),
    "fraction": ("%(it)s::float8", 0.1),
    "nothing": ("%(it)s::text", None),
    "id": ("%(it)s::uuid", UUID(int=7)),
    "time": ("%(it)s::interval", timedelta(days=-3, seconds=5, microseconds=7)),
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
async def test_values_come_back_as_they_went(conn: AsyncConnection[Any], kind: str) -> None:
    placeholder, value = VALUES[kind]
    for _ in range(2):
        assert await fetch(conn, f"SELECT {placeholder}, {placeholder} WHERE 1 %% 2 = 1", {"it": value}) == [
            (value, value)
        ]


async def test_rows_are_those_of_the_driver(conn: AsyncConnection[Any]) -> None:
    statement = "SELECT n, n::text, ARRAY[n, 2 * n], now() FROM generate_series(1, %(n)s::int) AS n"
    async with conn.transaction():
        usual = await (await conn.execute(statement, {"n": 3}, binary=True)).fetchall()
        assert await fetch(conn, statement, {"n": 3}) == usual
    assert await fetch(conn, statement, {"n": 0}) == []


async def test_an_error_is_the_drivers_and_the_connection_goes_on(conn: AsyncConnection[Any]) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        await fetch(conn, "SELECT 1 / %(n)s::int", {"n": 0})
    with pytest.raises(psycopg.errors.UndefinedTable):
        await fetch(conn, "SELECT * FROM nowhere", {})
    assert await fetch(conn, "SELECT 1 / %(n)s::int", {"n": 1}) == [(1,)]


async def test_a_lost_connection_is_the_drivers_error_too(conn: AsyncConnection[Any], pool: Pool) -> None:
    ((pid,),) = await fetch(conn, "SELECT pg_backend_pid()", {})
    async with pool.connection() as other:
        await fetch(other, "SELECT pg_terminate_backend(%(pid)s::int, 5000)", {"pid": pid})
    with pytest.raises(psycopg.OperationalError):
        await fetch(conn, "SELECT pg_backend_pid()", {})
    assert conn.broken


async def test_who_is_cancelled_leaves_the_connection_usable(conn: AsyncConnection[Any]) -> None:
    sleeping = asyncio.create_task(fetch(conn, "SELECT pg_sleep(%(s)s::float8)", {"s": 60.0}))
    await asyncio.sleep(0.1)
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    assert await fetch(conn, "SELECT 1", {}) == [(1,)]


async def test_statements_of_one_connection_wait_for_each_other(conn: AsyncConnection[Any]) -> None:
    answers = await asyncio.gather(*(fetch(conn, "SELECT %(n)s::int", {"n": n}) for n in range(20)))
    assert answers == [[(n,)] for n in range(20)]


async def test_statements_that_were_not_used_for_long_make_room(
    conn: AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "_MOST_PREPARED", 3)
    for _ in range(2):
        for n in range(5):
            assert await fetch(conn, f"SELECT %(it)s::uuid IS NULL, {n}", {"it": uuid4()}) == [(False, n)]
    ((held,),) = await (
        await conn.execute("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'penstock%'")
    ).fetchall()
    assert held == 3


async def test_what_cannot_be_sent_is_refused(conn: AsyncConnection[Any]) -> None:
    with pytest.raises(TypeError, match="list"):
        await fetch(conn, "SELECT %(it)s::int[]", {"it": [1]})


async def test_what_the_driver_forgets_is_prepared_anew(conn: AsyncConnection[Any]) -> None:
    assert await fetch(conn, "SELECT %(n)s::int", {"n": 1}) == [(1,)]
    for forgetting in ("DROP TABLE IF EXISTS nowhere", "DEALLOCATE ALL"):
        await conn.execute(forgetting)
        await conn.execute("SELECT 1")
        assert await fetch(conn, "SELECT %(n)s::int", {"n": 2}) == [(2,)]
    await conn.execute("DEALLOCATE ALL")
    async with conn.transaction():
        assert await fetch(conn, "SELECT %(n)s::int", {"n": 3}) == [(3,)]

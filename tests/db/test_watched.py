from __future__ import annotations

import asyncio
import os
import selectors
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest
import uvloop
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict

from penstock.core.settings import Settings
from penstock.db.fast.connection import WatchedConnection
from penstock.db.pool import Pool, open_pool

# More than a socket takes, or gives, at once.
LARGE = "ä" * (4 << 20)


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    pool = await open_pool(Settings(database_url=database_url, pool_size=3))
    try:
        yield pool
    finally:
        await pool.close()


@pytest.fixture
async def conn(pool: Pool) -> AsyncIterator[AsyncConnection[Any]]:
    async with pool.connection() as conn:
        yield conn


async def ask(conn: AsyncConnection[Any], statement: str, *params: object) -> Any:
    row = await (await conn.execute(statement.encode(), params)).fetchone()
    return None if row is None else row[0]


async def until_busy(conn: AsyncConnection[Any], pid: int) -> None:
    """Wait until another backend works on a statement."""
    while not await ask(conn, "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND state = 'active'", pid):
        await conn.execute("SELECT pg_sleep(0.01)")


def open_files() -> set[str]:
    return {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd)}


def _is_open(fd: str) -> bool:
    try:
        os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return False
    return True


async def test_the_pools_connections_are_watched(conn: AsyncConnection[Any]) -> None:
    assert isinstance(conn, WatchedConnection)


async def test_what_is_larger_than_the_socket_takes_goes_there_and_back(conn: AsyncConnection[Any]) -> None:
    for _ in range(2):
        assert await ask(conn, "SELECT %s::text", LARGE) == LARGE
        assert await ask(conn, "SELECT 1") == 1


async def test_rows_that_come_in_many_pieces_all_arrive(conn: AsyncConnection[Any]) -> None:
    rows = await (await conn.execute("SELECT n, repeat('x', 1000) FROM generate_series(1, 5000) AS n")).fetchall()
    assert [n for n, _ in rows] == list(range(1, 5001))


async def test_errors_and_notices_are_the_drivers(conn: AsyncConnection[Any]) -> None:
    said: list[str | None] = []
    conn.add_notice_handler(lambda notice: said.append(notice.message_primary))
    await conn.execute("DO $$ BEGIN RAISE NOTICE 'a word'; END $$")
    with pytest.raises(psycopg.errors.DivisionByZero):
        await conn.execute("SELECT 1 / 0")
    assert said == ["a word"]
    assert await ask(conn, "SELECT 1") == 1


async def test_copy_and_pipelines_and_transactions_work(conn: AsyncConnection[Any]) -> None:
    await conn.execute("CREATE TEMP TABLE t (n int)")
    async with conn.transaction():
        async with conn.cursor().copy("COPY t FROM STDIN") as copy:
            for n in range(20_000):
                await copy.write_row((n,))
        with pytest.raises(psycopg.errors.DivisionByZero):
            async with conn.transaction():
                await conn.execute("DELETE FROM t WHERE 1 / 0 = 1")
    async with conn.pipeline():
        cursors = [await conn.execute("SELECT count(*) + %s FROM t", (n,)) for n in range(3)]
        counted = [await cursor.fetchone() for cursor in cursors]
    assert counted == [(20_000,), (20_001,), (20_002,)]


async def test_notifications_are_heard_while_others_speak(pool: Pool, conn: AsyncConnection[Any]) -> None:
    await conn.execute("LISTEN here")
    async with pool.connection() as other:
        for n in range(3):
            await other.execute(f"NOTIFY here, '{n}'".encode())
            assert await ask(other, "SELECT 1") == 1
    heard = [notice.payload async for notice in conn.notifies(timeout=5, stop_after=3)]
    assert heard == ["0", "1", "2"]
    assert await ask(conn, "SELECT 1") == 1


@pytest.mark.parametrize("statement", ["SELECT pg_sleep(60)", "SELECT pg_sleep(60), %s::text"])
async def test_who_is_cancelled_leaves_the_connection_usable(
    pool: Pool, conn: AsyncConnection[Any], statement: str
) -> None:
    pid = await ask(conn, "SELECT pg_backend_pid()")
    params = (LARGE,) if "%s" in statement else ()
    # Again and again: a long statement may not have been said to its end.
    for _ in range(20):
        sleeping = asyncio.create_task(ask(conn, statement, *params))
        async with pool.connection() as other:
            await until_busy(other, pid)
        sleeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeping
        assert await ask(conn, "SELECT pg_backend_pid()") == pid


async def test_who_is_cancelled_when_the_answer_is_there_leaves_nothing_for_the_next(
    conn: AsyncConnection[Any],
) -> None:
    for n in range(50):
        asking = asyncio.create_task(ask(conn, "SELECT %s::int", n))
        for _ in range(n % 7):
            await asyncio.sleep(0)
        if n % 3 == 0:
            await asyncio.sleep(0.002)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            assert await asking == n
        assert await ask(conn, "SELECT %s::int", -n) == -n


async def test_who_is_cancelled_before_the_server_has_begun_leaves_the_connection_usable(
    conn: AsyncConnection[Any],
) -> None:
    pid = await ask(conn, "SELECT pg_backend_pid()")
    for turns in range(10):
        sleeping = asyncio.create_task(ask(conn, "SELECT pg_sleep(60)"))
        for _ in range(turns):
            await asyncio.sleep(0)
        sleeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeping
    assert await ask(conn, "SELECT pg_backend_pid()") == pid


class CountingSelector(selectors.DefaultSelector):
    """Counts how often the event loop goes round."""

    turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.turns += 1
        return super().select(timeout)


def test_a_connection_that_is_lost_while_it_rests_costs_nothing_and_says_so_when_used(database_url: str) -> None:
    selector = CountingSelector()

    async def lose() -> int:
        pool = await open_pool(Settings(database_url=database_url, pool_size=2))
        try:
            async with pool.connection() as conn, pool.connection() as other:
                pid = await ask(conn, "SELECT pg_backend_pid()")
                await other.execute("SELECT pg_terminate_backend(%s::int, 5000)", (pid,))
                before = selector.turns
                await other.execute("SELECT pg_sleep(0.2)")
                turns = selector.turns - before
                with pytest.raises(psycopg.OperationalError):
                    await ask(conn, "SELECT 1")
                assert conn.broken
            return turns
        finally:
            await pool.close()

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        # Who looked at the dead socket again and again would go round thousands of times.
        assert runner.run(lose()) < 200


async def test_a_connection_that_is_lost_in_the_middle_says_so(pool: Pool, conn: AsyncConnection[Any]) -> None:
    pid = await ask(conn, "SELECT pg_backend_pid()")
    asking = asyncio.create_task(ask(conn, "SELECT pg_sleep(60)"))
    async with pool.connection() as other:
        await until_busy(other, pid)
        await other.execute("SELECT pg_terminate_backend(%s::int, 5000)", (pid,))
        with pytest.raises(psycopg.errors.AdminShutdown):
            await asking
        # A socket that gets the number of the lost one is nobody else's.
        one, two = socket.socketpair()
        with one, two:
            one.setblocking(False)
            two.send(b"x")
            assert await asyncio.get_running_loop().sock_recv(one, 1) == b"x"
        assert await ask(other, "SELECT 1") == 1


async def test_who_waits_on_a_connection_that_is_closed_is_told(pool: Pool) -> None:
    conn = await pool.getconn()
    pid = await ask(conn, "SELECT pg_backend_pid()")
    asking = asyncio.create_task(ask(conn, "SELECT pg_sleep(60)"))
    async with pool.connection() as other:
        await until_busy(other, pid)
    await conn.close()
    with pytest.raises(psycopg.OperationalError):
        await asking
    await pool.putconn(conn)


async def test_a_closed_connection_leaves_no_socket_behind(database_url: str) -> None:
    before = open_files()
    pool = await open_pool(Settings(database_url=database_url, pool_size=2))
    async with pool.connection() as one, pool.connection() as two:
        assert [await ask(conn, "SELECT 1") for conn in (one, two)] == [1, 1]
        pid = await ask(two, "SELECT pg_backend_pid()")
        await one.execute("SELECT pg_terminate_backend(%s::int, 5000)", (pid,))
        with pytest.raises(psycopg.OperationalError):
            await ask(two, "SELECT 1")
    await pool.close()
    del one, two
    assert {name for name in open_files() - before if name.startswith("socket")} == set()


#: What PostgreSQL tells its clients when it ends all of them: a warning, and then it is gone.
_NOTICE = b"SWARNING\0VWARNING\0C57P02\0Mterminating connection because of crash of another server process\0\0"


class Crashing:
    """A way to PostgreSQL at whose end it says something, on demand, and resets the connection at once."""

    def __init__(self, path: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._path = path
        self._pumps: list[asyncio.Task[None]] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._client: socket.socket
        self._there = socket.socket(socket.AF_UNIX)
        for each in (self._listening, self._there):
            each.setblocking(False)
        self.port = self._listening.getsockname()[1]

    async def pass_on(self) -> None:
        self._client, _ = await self._loop.sock_accept(self._listening)
        await self._loop.sock_connect(self._there, self._path)
        ways = [(self._client, self._there), (self._there, self._client)]
        self._pumps = [asyncio.create_task(self._pump(*way)) for way in ways]

    async def crash(self) -> None:
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        # Without a turn of the event loop in between: whoever listens hears of both at the same time.
        self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._client.send(b"N" + struct.pack("!i", len(_NOTICE) + 4) + _NOTICE)
        for each in (self._client, self._there, self._listening):
            each.close()

    async def _pump(self, one: socket.socket, other: socket.socket) -> None:
        while some := await self._loop.sock_recv(one, 1 << 16):
            await self._loop.sock_sendall(other, some)


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_connection_that_is_reset_after_a_last_word_says_so(
    database_url: str, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    parts = conninfo_to_dict(database_url)

    async def main() -> None:
        way = Crashing(f"{parts['host']}/.s.PGSQL.{parts['port']}")
        passing = asyncio.create_task(way.pass_on())
        conn = await WatchedConnection.connect(
            f"postgresql://{parts['user']}@127.0.0.1:{way.port}/{parts['dbname']}", sslmode="disable"
        )
        await passing
        said = asyncio.create_task(conn.execute("SELECT pg_sleep(60)"))
        async with await AsyncConnection.connect(database_url, autocommit=True) as other:
            await until_busy(other, conn.info.backend_pid)
        await way.crash()
        async with asyncio.timeout(20):
            with pytest.raises(psycopg.OperationalError):
                await said
        await conn.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())

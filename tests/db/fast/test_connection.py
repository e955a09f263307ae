from __future__ import annotations

import asyncio
import gc
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
from penstock.db.fast.connection import FastConnection
from penstock.db.pool import Pool, open_pool

# Larger than the buffers of a socket.
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


async def wait_until_active(conn: AsyncConnection[Any], pid: int) -> None:
    """Wait until another backend runs a statement."""
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


async def test_the_pool_uses_fast_connections(conn: AsyncConnection[Any]) -> None:
    assert isinstance(conn, FastConnection)


async def test_values_larger_than_the_socket_buffer_round_trip(conn: AsyncConnection[Any]) -> None:
    for _ in range(2):
        assert await ask(conn, "SELECT %s::text", LARGE) == LARGE
        assert await ask(conn, "SELECT 1") == 1


async def test_a_result_of_many_packets_arrives_completely(conn: AsyncConnection[Any]) -> None:
    rows = await (await conn.execute("SELECT n, repeat('x', 1000) FROM generate_series(1, 5000) AS n")).fetchall()
    assert [n for n, _ in rows] == list(range(1, 5001))


async def test_errors_and_notices_are_those_of_psycopg(conn: AsyncConnection[Any]) -> None:
    notices: list[str | None] = []
    conn.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    await conn.execute("DO $$ BEGIN RAISE NOTICE 'hello'; END $$")
    with pytest.raises(psycopg.errors.DivisionByZero):
        await conn.execute("SELECT 1 / 0")
    assert notices == ["hello"]
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


async def test_notifications_arrive_while_other_connections_are_used(pool: Pool, conn: AsyncConnection[Any]) -> None:
    await conn.execute("LISTEN here")
    async with pool.connection() as other:
        for n in range(3):
            await other.execute(f"NOTIFY here, '{n}'".encode())
            assert await ask(other, "SELECT 1") == 1
    payloads = [notice.payload async for notice in conn.notifies(timeout=5, stop_after=3)]
    assert payloads == ["0", "1", "2"]
    assert await ask(conn, "SELECT 1") == 1


@pytest.mark.parametrize("statement", ["SELECT pg_sleep(60)", "SELECT pg_sleep(60), %s::text"])
async def test_a_cancelled_statement_leaves_the_connection_usable(
    pool: Pool, conn: AsyncConnection[Any], statement: str
) -> None:
    pid = await ask(conn, "SELECT pg_backend_pid()")
    params = (LARGE,) if "%s" in statement else ()
    # Repeated, because a long statement may be cancelled before it is sent completely.
    for _ in range(20):
        sleeping = asyncio.create_task(ask(conn, statement, *params))
        async with pool.connection() as other:
            await wait_until_active(other, pid)
        sleeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeping
        assert await ask(conn, "SELECT pg_backend_pid()") == pid


async def test_a_statement_cancelled_when_its_result_arrives_leaves_nothing_for_the_next(
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


async def test_a_statement_cancelled_before_the_server_starts_it_leaves_the_connection_usable(
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
    """Counts the iterations of the event loop."""

    turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.turns += 1
        return super().select(timeout)


def test_an_idle_connection_that_is_lost_does_not_spin_and_raises_when_used(database_url: str) -> None:
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
        # Polling the dead socket would take thousands of iterations.
        assert runner.run(lose()) < 200


async def test_a_connection_lost_during_a_statement_raises(pool: Pool, conn: AsyncConnection[Any]) -> None:
    pid = await ask(conn, "SELECT pg_backend_pid()")
    asking = asyncio.create_task(ask(conn, "SELECT pg_sleep(60)"))
    async with pool.connection() as other:
        await wait_until_active(other, pid)
        await other.execute("SELECT pg_terminate_backend(%s::int, 5000)", (pid,))
        with pytest.raises(psycopg.errors.AdminShutdown):
            await asking
        # A new socket may get the descriptor number of the lost one.
        one, two = socket.socketpair()
        with one, two:
            one.setblocking(False)
            two.send(b"x")
            assert await asyncio.get_running_loop().sock_recv(one, 1) == b"x"
        assert await ask(other, "SELECT 1") == 1


async def test_a_statement_on_a_connection_that_is_closed_raises(pool: Pool) -> None:
    conn = await pool.getconn()
    pid = await ask(conn, "SELECT pg_backend_pid()")
    asking = asyncio.create_task(ask(conn, "SELECT pg_sleep(60)"))
    async with pool.connection() as other:
        await wait_until_active(other, pid)
    await conn.close()
    with pytest.raises(psycopg.OperationalError):
        await asking
    await pool.putconn(conn)


async def test_a_closed_connection_leaves_no_open_socket(database_url: str) -> None:
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


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_the_event_loop_forgets_the_socket_of_a_connection_that_was_not_closed(
    database_url: str, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        conn = await FastConnection.connect(database_url)
        assert await ask(conn, "SELECT 1") == 1
        link = os.readlink(f"/proc/self/fd/{conn.pgconn.socket}")
        (watched,) = {
            int(fd)
            for fd in os.listdir("/proc/self/fd")
            if _is_open(fd) and os.readlink(f"/proc/self/fd/{fd}") == link and int(fd) != conn.pgconn.socket
        }
        # As after a reset, where uvloop drops the callback and keeps the poll handle.
        loop.add_reader(watched, lambda: None)
        conn.pgconn.finish()
        del conn
        gc.collect()
        assert not loop.remove_reader(watched)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


#: The warning that PostgreSQL sends to its clients before it restarts after a crash.
_NOTICE = b"SWARNING\0VWARNING\0C57P02\0Mterminating connection because of crash of another server process\0\0"


class CrashingProxy:
    """A proxy to PostgreSQL that can send a warning and reset the connection in the same moment."""

    def __init__(self, path: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._path = path
        self._pumps: list[asyncio.Task[None]] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._client: socket.socket
        self._server = socket.socket(socket.AF_UNIX)
        for sock in (self._listening, self._server):
            sock.setblocking(False)
        self.port = self._listening.getsockname()[1]

    async def connect(self) -> None:
        self._client, _ = await self._loop.sock_accept(self._listening)
        await self._loop.sock_connect(self._server, self._path)
        pairs = [(self._client, self._server), (self._server, self._client)]
        self._pumps = [asyncio.create_task(self._pump(source, target)) for source, target in pairs]

    async def crash(self) -> None:
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        # No await in between, so the client sees the warning and the reset at the same time.
        self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._client.send(b"N" + struct.pack("!i", len(_NOTICE) + 4) + _NOTICE)
        for sock in (self._client, self._server, self._listening):
            sock.close()

    async def _pump(self, source: socket.socket, target: socket.socket) -> None:
        while data := await self._loop.sock_recv(source, 1 << 16):
            await self._loop.sock_sendall(target, data)


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_connection_reset_right_after_a_warning_raises(
    database_url: str, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    parts = conninfo_to_dict(database_url)

    async def main() -> None:
        proxy = CrashingProxy(f"{parts['host']}/.s.PGSQL.{parts['port']}")
        connecting = asyncio.create_task(proxy.connect())
        conn = await FastConnection.connect(
            f"postgresql://{parts['user']}@127.0.0.1:{proxy.port}/{parts['dbname']}", sslmode="disable"
        )
        await connecting
        statement = asyncio.create_task(conn.execute("SELECT pg_sleep(60)"))
        async with await AsyncConnection.connect(database_url, autocommit=True) as other:
            await wait_until_active(other, conn.info.backend_pid)
        await proxy.crash()
        async with asyncio.timeout(20):
            with pytest.raises(psycopg.OperationalError):
                await statement
        await conn.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())

"""The way to PostgreSQL: one pool of connections for a process, and the server behind it if it is ours."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo
from psycopg.rows import TupleRow
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from penstock.core.errors import (
    ConfigurationError,
    DatabaseError,
    DatabaseUnavailable,
    DatabaseVersionError,
)
from penstock.core.settings import Settings
from penstock.db import migrate
from penstock.db.fast.connection import WatchedConnection
from penstock.db.fast.pool import Connection as Connection
from penstock.db.fast.pool import LendingPool
from penstock.db.fast.pool import Pool as Pool
from penstock.db.health import Probe
from penstock.db.kill_backend import Backend, note_backend

if TYPE_CHECKING:
    from penstock.db.embedded.server import EmbeddedPostgres

logger = logging.getLogger(__name__)

OLDEST_SERVER = 15
NEWEST_TESTED_SERVER = 18

# What a connection string, or a variable of libpq, may say otherwise. A dead peer is noticed in about a minute,
# not in two hours.
_DEFAULTS: dict[str, Any] = {
    "application_name": "penstock",
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
# What it may not. A statement is prepared the first time it is used: ours are few and come again and again.
_FIXED: dict[str, Any] = {"client_encoding": "UTF8", "autocommit": True, "prepare_threshold": 0}

# The pauses between attempts to reconnect double; after so many seconds they begin anew with a short one.
_RECONNECT_SECONDS = 10.0
# The server keeps the plans of every segment that a connection has met, about a megabyte each, for as long as it lasts.
_LIFETIME_SECONDS = 600.0


async def open_pool(settings: Settings, *, conninfo: str | Callable[[], Awaitable[str]] | None = None) -> Pool:
    """Open a pool of autocommitting connections in UTC, after a look at the server's version.

    ``conninfo`` stands in for ``settings.database_url``; a function is asked before each new connection.
    """
    conninfo = conninfo if conninfo is not None else settings.database_url
    if conninfo is None:
        raise ConfigurationError(
            "no database is named: set PENSTOCK_DATABASE_URL, or open a Database, which starts its own"
        )
    first = conninfo if isinstance(conninfo, str) else await conninfo()
    kwargs = connect_options(first)
    # Before the pool, which would try again and again and in the end not say why.
    await _check_server(settings, first, kwargs)
    pool: Pool = LendingPool(
        conninfo,
        connection_class=WatchedConnection,
        kwargs=kwargs,
        min_size=1,
        max_size=settings.pool_size,
        configure=_configure,
        max_lifetime=_LIFETIME_SECONDS,
        # Left to itself, the pool pauses longer and longer, and comes back long after the server does.
        reconnect_timeout=_RECONNECT_SECONDS,
        reconnect_failed=AsyncConnectionPool.check,
        name="penstock",
        open=False,
    )
    try:
        await pool.open(wait=True)
    except BaseException as error:
        await pool.close()
        if isinstance(error, PoolTimeout):
            raise _unavailable(settings, error) from error
        raise
    return pool


def connect_options(conninfo: str) -> dict[str, Any]:
    """What every connection of ours is opened with, beside what its string says."""
    said = conninfo_to_dict(conninfo).keys() | _said_by_environment()
    return {name: value for name, value in _DEFAULTS.items() if name not in said} | _FIXED


class Database:
    """The database that the settings name, open on the running event loop.

    ::

        async with Database(Settings.from_env()) as database:
            async with database.connection() as conn:
                await conn.execute("SELECT 1")

    Without a ``database_url`` this is the embedded PostgreSQL: opening starts it, closing stops it if nobody
    else uses it. Opening also brings the schema up to date; with ``auto_upgrade`` off, a database that is not
    embedded is only looked at, and refused if its schema is not the one that this package works with.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._server: EmbeddedPostgres | None = None
        self._pool: Pool | None = None
        self._probe = Probe(self._connect_to_look)

    async def open(self) -> Self:
        """Start the server if it is ours, connect, and see to the schema."""
        if self._pool is not None:
            return self
        try:
            if self.settings.database_url is None:
                # Not at the top: who brings a PostgreSQL need not have what running one takes.
                from penstock.db.embedded.server import EmbeddedPostgres

                self._server = EmbeddedPostgres(self.settings.data_dir)
                self._pool = await open_pool(self.settings, conninfo=self._start_server)
            else:
                self._pool = await open_pool(self.settings)
            await self._see_to_schema()
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Close the connections and let go of the server. May be called more than once."""
        pool, self._pool = self._pool, None
        server, self._server = self._server, None
        try:
            await self._probe.close()
            if pool is not None:
                await pool.close()
        finally:
            if server is not None:
                await asyncio.to_thread(server.release)

    @property
    def pool(self) -> Pool:
        """The pool, while the database is open."""
        if self._pool is None:
            raise DatabaseError("the database is not open: use `async with Database(...)`, or await open()")
        return self._pool

    @property
    def conninfo(self) -> str:
        """What another process needs to connect to this database. It may hold a password: do not log it."""
        if self._server is not None:
            return self._server.url
        return self.settings.database_url or ""

    async def connect(self) -> Connection:
        """A connection of its own beside the pool's, for who keeps it long; the caller closes it."""
        return await AsyncConnection.connect(self.conninfo, **connect_options(self.conninfo))

    async def check(self, timeout: float = 2.0) -> None:
        """Raise DatabaseError unless the database answers in time and has the schema of this package.

        That takes no connection of the pool's, and no longer than it may, even if the server stands still.
        """
        try:
            await self._probe.ask(timeout)
        except (TimeoutError, psycopg.Error) as error:
            raise _unavailable(self.settings, error) from error

    @asynccontextmanager
    async def connection(self, timeout: float | None = None) -> AsyncIterator[Connection]:
        """Borrow a connection; waits up to ``timeout`` seconds (30 unless told) for a free one."""
        async with AsyncExitStack() as stack:
            try:
                conn = await stack.enter_async_context(self.pool.connection(timeout))
            except PoolTimeout as error:
                raise _unavailable(self.settings, error) from error
            yield conn

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _connect_to_look(self) -> WatchedConnection[TupleRow]:
        return await WatchedConnection.connect(self.conninfo, **connect_options(self.conninfo))

    async def _start_server(self) -> str:
        # Asked before each new connection, so a server that was killed comes back.
        if self._server is None:
            raise DatabaseError("the database was closed")
        return await asyncio.to_thread(self._server.start)

    async def _see_to_schema(self) -> None:
        async with self.connection() as conn:
            if self._server is not None or self.settings.auto_upgrade:
                for migration in await migrate.upgrade(conn):
                    logger.info("applied migration %s", migration)
            await migrate.verify(conn)


# Our statements look things up by key, few rows at a time. Their plans are made once, and do not turn to reading whole
# tables, or all versions of a row, because the statistics of a table that was just made or grows fast are wrong.
SESSION = """
    -- Asked of the server: behind a pooler, the driver was told something else.
    SELECT pg_backend_pid(), (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()),
           set_config('TimeZone', 'UTC', false),
           -- What is answered with success is on disk, whatever the role or the database says.
           set_config('synchronous_commit', CASE current_setting('synchronous_commit')
                      WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false),
           set_config('default_transaction_isolation', 'read committed', false),
           set_config('plan_cache_mode', 'force_generic_plan', false),
           set_config('enable_seqscan', 'off', false),
           set_config('enable_bitmapscan', 'off', false),
           set_config('enable_hashjoin', 'off', false),
           set_config('enable_mergejoin', 'off', false),
           set_config('jit', 'off', false)
"""


async def _configure(conn: Connection) -> None:
    # One width for all integers: a statement is prepared once and not per size of its numbers.
    # Some statements are a queue's own: with many queues, a hundred would be prepared over and over again.
    conn.prepared_max = 1000
    conn.adapters.register_dumper(int, Int8Dumper)
    conn.adapters.register_dumper(int, Int8BinaryDumper)
    row = await (await conn.execute(SESSION)).fetchone()
    if row is not None and row[1] is not None:
        note_backend(conn, Backend(row[0], row[1]))


def _said_by_environment() -> set[str]:
    # With PGSERVICE, that includes what its file says.
    return {option.keyword.decode() for option in Conninfo.get_defaults() if option.val}


async def _check_server(settings: Settings, conninfo: str, kwargs: dict[str, Any]) -> None:
    try:
        async with await AsyncConnection.connect(conninfo, **kwargs) as conn:
            version = conn.info.server_version // 10_000
    except psycopg.Error as error:
        raise _unavailable(settings, error) from error
    if version < OLDEST_SERVER:
        raise DatabaseVersionError(
            f"the server at {settings.redacted_url} is PostgreSQL {version}, and Penstock needs "
            f"{OLDEST_SERVER} or later: upgrade it, or set PENSTOCK_DATABASE_URL to a newer one"
        )
    if version > NEWEST_TESTED_SERVER:
        logger.warning(
            "PostgreSQL %s is newer than any that this Penstock was tested with (%s)",
            version,
            NEWEST_TESTED_SERVER,
        )


def _unavailable(settings: Settings, error: Exception) -> DatabaseUnavailable:
    return DatabaseUnavailable(
        f"PostgreSQL cannot be reached ({settings.redacted_url}): {str(error).strip()}. Check that it runs, "
        "that it has connections to spare and that PENSTOCK_DATABASE_URL is right. Where neither that nor "
        "DATABASE_URL nor PGHOST is set, Penstock starts a PostgreSQL of its own"
    )

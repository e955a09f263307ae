"""The database of a process: one connection pool, and the embedded PostgreSQL if it is used."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo
from psycopg.rows import TupleRow, class_row
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
from penstock.db.fast.connection import FastConnection, abort, is_lost
from penstock.db.fast.pool import Connection as Connection
from penstock.db.fast.pool import FastPool
from penstock.db.fast.pool import Pool as Pool
from penstock.db.kill_backend import register_backend
from penstock.db.statements import Statements

if TYPE_CHECKING:
    from penstock.db.embedded.server import EmbeddedPostgres


class HealthCheck:
    """Checks the database over its own connection.

    A connection of the pool would be blocked until a hanging statement is cancelled, and if all are in use, a healthy
    database would seem to be down. Concurrent calls share one check, so frequent checks cost the database little.
    """

    def __init__(self, connect: Callable[[], Awaitable[AsyncConnection[Any]]]) -> None:
        self._connect = connect
        self._conn: AsyncConnection[Any] | None = None
        self._check: asyncio.Task[Exception | None] | None = None

    async def run(self, seconds: float) -> None:
        """Raise an error unless the database responds in time and has the schema of this package."""
        if self._check is None or self._check.done():
            self._check = asyncio.create_task(self._run_check(seconds))
        # Shielded, because other callers wait for the same check.
        error = await asyncio.shield(self._check)
        if error is not None:
            raise error

    async def close(self) -> None:
        """Close the connection."""
        if self._check is not None:
            self._check.cancel()
        self._disconnect()
        if self._check is not None:
            await asyncio.wait([self._check])

    async def _run_check(self, seconds: float) -> Exception | None:
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            while True:
                is_new = self._conn is None or is_lost(self._conn)
                if self._conn is None or is_new:
                    async with asyncio.timeout_at(deadline):
                        self._conn = await self._connect()
                try:
                    await self._verify(self._conn, deadline)
                    return None
                except psycopg.OperationalError:
                    self._disconnect()
                    if is_new:
                        raise
                    # The connection was lost since the last check, or it hangs. A new one shows the current state.
        except TimeoutError:
            return TimeoutError(f"it does not respond within {seconds:g} s")
        except (DatabaseError, psycopg.Error) as error:
            return error

    async def _verify(self, conn: AsyncConnection[Any], deadline: float) -> None:
        # The timer closes the socket. Cancelling the statement would need a response of the server.
        timer = asyncio.get_running_loop().call_at(deadline, abort, conn)
        try:
            await migrate.verify(conn)
        finally:
            timer.cancel()

    def _disconnect(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            abort(conn)


logger = logging.getLogger(__name__)

_RowT = TypeVar("_RowT")

OLDEST_SERVER = 15
NEWEST_TESTED_SERVER = 18

# Defaults that a connection string or a variable of libpq overrides. The keepalives detect a dead peer in about a
# minute instead of two hours.
_DEFAULTS: dict[str, Any] = {
    "application_name": "penstock",
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
# Options that nothing overrides. Statements are prepared at first use, because the same few run again and again.
_FIXED: dict[str, Any] = {"client_encoding": "UTF8", "autocommit": True, "prepare_threshold": 0}

# A backend keeps the plans for every segment that its connection has used, about a megabyte each.
_LIFETIME_SECONDS = 600.0

#: Settings of a session and the identity of its backend.
SESSION = Statements("penstock.db", "session.sql")["configure"]


async def open_pool(
    settings: Settings,
    *,
    conninfo: str | Callable[[], Awaitable[str]] | None = None,
    reconnect_seconds: float = 10.0,
) -> Pool:
    """Check the version of the server and open a pool of autocommitting connections in UTC.

    Args:
        settings: the settings of the process.
        conninfo: replaces ``settings.database_url``; a function is called before each new connection.
        reconnect_seconds: the pauses of psycopg's pool between attempts to reconnect double for this long, then they
            start over. Without that, the pool would connect long after the server is back.
    """
    conninfo = conninfo if conninfo is not None else settings.database_url
    if conninfo is None:
        raise ConfigurationError(
            "no database is configured: set PENSTOCK_DATABASE_URL, or open a Database, which starts the embedded one"
        )
    first_conninfo = conninfo if isinstance(conninfo, str) else await conninfo()
    options = connect_options(first_conninfo)
    # Checked before the pool opens, because the pool retries for long and does not report why it fails.
    await _check_server(settings, first_conninfo, options)
    pool_options: dict[str, Any] = {
        "kwargs": options,
        "min_size": 1,
        "max_size": settings.pool_size,
        "configure": _configure,
        "max_lifetime": _LIFETIME_SECONDS,
        "reconnect_timeout": reconnect_seconds,
        "reconnect_failed": AsyncConnectionPool.check,
        "name": "penstock",
        "open": False,
    }
    pool: Pool
    if settings.fast_database:
        pool = FastPool(conninfo, connection_class=FastConnection, **pool_options)
    else:
        # FastPool detects closed connections without the round trip of this check.
        pool = AsyncConnectionPool(conninfo, check=AsyncConnectionPool.check_connection, **pool_options)
    try:
        await pool.open(wait=True)
    except BaseException as error:
        await pool.close()
        if isinstance(error, PoolTimeout):
            raise _unavailable(settings, error) from error
        raise
    return pool


def connect_options(conninfo: str) -> dict[str, Any]:
    """Return the options of every Penstock connection, to be passed with its connection string."""
    given = conninfo_to_dict(conninfo).keys() | _options_of_environment()
    return {name: value for name, value in _DEFAULTS.items() if name not in given} | _FIXED


class Database:
    """The database of the settings, open on the running event loop.

    ::

        async with Database(Settings.from_env()) as database:
            async with database.connection() as conn:
                await conn.execute("SELECT 1")

    Without a ``database_url`` this is the embedded PostgreSQL: opening starts it, and closing stops it if no other
    process uses it. Opening also upgrades the schema. With ``auto_upgrade`` off, a database that is not embedded is not
    changed, and is refused if it has another schema.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._server: EmbeddedPostgres | None = None
        self._pool: Pool | None = None
        self._health_check = HealthCheck(self._connect_for_health_check)

    async def open(self) -> Self:
        """Start the embedded server if it is used, connect, and upgrade or check the schema."""
        if self._pool is not None:
            return self
        try:
            if self.settings.database_url is None:
                # Imported here, because users of another PostgreSQL do not need the packages of the embedded one.
                from penstock.db.embedded.server import EmbeddedPostgres

                self._server = EmbeddedPostgres(self.settings.data_dir)
                self._pool = await open_pool(self.settings, conninfo=self._start_server)
            else:
                self._pool = await open_pool(self.settings)
            await self._upgrade_or_verify_schema()
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Close the connections and release the embedded server. May be called twice."""
        pool, self._pool = self._pool, None
        server, self._server = self._server, None
        try:
            await self._health_check.close()
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
        """The connection string of this database for another process. It may contain a password: do not log it."""
        if self._server is not None:
            return self._server.url
        return self.settings.database_url or ""

    async def connect(self) -> Connection:
        """Open a connection outside of the pool, for long use. The caller closes it."""
        return await AsyncConnection.connect(self.conninfo, **connect_options(self.conninfo))

    async def check(self, timeout: float = 2.0) -> None:
        """Raise DatabaseError unless the database responds in time and has the schema of this package.

        Uses no connection of the pool, and keeps to the timeout even if the server hangs.
        """
        try:
            await self._health_check.run(timeout)
        except (TimeoutError, psycopg.Error) as error:
            raise _unavailable(self.settings, error) from error

    @asynccontextmanager
    async def connection(self, timeout: float | None = None) -> AsyncIterator[Connection]:
        """Get a connection of the pool. Waits up to ``timeout`` seconds (default 30) for a free one."""
        async with AsyncExitStack() as stack:
            try:
                conn = await stack.enter_async_context(self.pool.connection(timeout))
            except PoolTimeout as error:
                raise _unavailable(self.settings, error) from error
            yield conn

    async def fetch(
        self, row_type: type[_RowT], statement: str, params: Mapping[str, Any] | None = None
    ) -> list[_RowT]:
        """Return the rows of a statement as objects of a class whose fields are the columns."""
        async with self.connection() as conn:
            cursor = conn.cursor(row_factory=class_row(row_type))
            return await (await cursor.execute(statement.encode(), params)).fetchall()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _connect_for_health_check(self) -> Connection:
        connection_class = FastConnection[TupleRow] if self.settings.fast_database else AsyncConnection[TupleRow]
        return await connection_class.connect(self.conninfo, **connect_options(self.conninfo))

    async def _start_server(self) -> str:
        # Called before each new connection, so it restarts a server that was killed.
        if self._server is None:
            raise DatabaseError("the database was closed")
        return await asyncio.to_thread(self._server.start)

    async def _upgrade_or_verify_schema(self) -> None:
        async with self.connection() as conn:
            if self._server is not None or self.settings.auto_upgrade:
                for migration in await migrate.upgrade(conn):
                    logger.info("applied migration %s", migration)
            await migrate.verify(conn)


async def _configure(conn: Connection) -> None:
    # The default of 100 is too small: each queue has statements for its own tables.
    conn.prepared_max = 1000
    # One width for all integers: otherwise a statement is prepared once for each size of its numbers.
    conn.adapters.register_dumper(int, Int8Dumper)
    conn.adapters.register_dumper(int, Int8BinaryDumper)
    row = await (await conn.execute(SESSION)).fetchone()
    if row is not None:
        pid, started_at, *_ = row
        register_backend(conn, pid, started_at)


def _options_of_environment() -> set[str]:
    # Includes the options of the service file if PGSERVICE is set.
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
            f"{OLDEST_SERVER} or later: upgrade it, or set {settings.database_source} to a newer server"
        )
    if version > NEWEST_TESTED_SERVER:
        logger.warning(
            "PostgreSQL %s is newer than the newest version that this Penstock was tested with (%s)",
            version,
            NEWEST_TESTED_SERVER,
        )


def _unavailable(settings: Settings, error: Exception) -> DatabaseUnavailable:
    return DatabaseUnavailable(
        f"PostgreSQL cannot be reached ({settings.redacted_url}): {_reason(error)}. Check that it runs, that it "
        f"has free connections and that {settings.database_source} is right. If nothing names a database, Penstock "
        "starts its embedded PostgreSQL"
    )


def _reason(error: Exception) -> str:
    """Return the message of an error without the questions that libpq asks in the lines after it."""
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if not line.endswith("?")) or str(error).strip()

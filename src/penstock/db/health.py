"""Health check of the database, with a timeout that holds even if the server hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
from psycopg import AsyncConnection

from penstock.core.errors import DatabaseError
from penstock.db import migrate
from penstock.db.fast.connection import abort, is_lost


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

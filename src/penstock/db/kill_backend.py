"""Terminates backends that lost their client, before a retry.

A backend whose connection was lost may not have read its last statement yet, and would still run it. Before a retry
checks whether the statement took effect, it terminates the backend. A role may terminate its own backends. A process id
can be reused, so a backend is identified by its start time too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import psycopg
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from penstock.db.retry import CONNECTION_ERRORS
from penstock.db.statements import Statements

_sql = Statements("penstock.db", "kill_backend.sql")
#: How often to wait a second for the processes to exit.
_MAX_ATTEMPTS = 5


class _Backend(NamedTuple):
    """The server process of a connection."""

    pid: int
    started_at: datetime


_backends: WeakKeyDictionary[AsyncConnection[Any], _Backend] = WeakKeyDictionary()


def register_backend(conn: AsyncConnection[Any], pid: int, started_at: datetime | None) -> None:
    """Record which process serves the connection. ``started_at`` is None if the role may not see it."""
    if started_at is not None:
        _backends[conn] = _Backend(pid, started_at)


class LostBackends:
    """The backends that one operation has lost in its attempts.

    ::

        lost_backends = LostBackends()
        while True:
            try:
                async with lost_backends.connection(pool) as conn:
                    return await operation(conn)
            except CONNECTION_ERRORS as error:
                await retry.pause(error)
    """

    __slots__ = ("_lost",)

    def __init__(self) -> None:
        self._lost: set[_Backend] = set()

    @asynccontextmanager
    async def connection(self, pool: AsyncConnectionPool[Any]) -> AsyncIterator[AsyncConnection[Any]]:
        """Get a connection once the lost backends have ended, and record its backend if it is lost, too."""
        async with pool.connection() as conn:
            await self._terminate(conn)
            try:
                yield conn
            except CONNECTION_ERRORS:
                # A backend that responded with an error has finished the statement.
                backend = _backends.get(conn) if conn.closed else None
                if backend is not None:
                    self._lost.add(backend)
                raise

    async def _terminate(self, conn: AsyncConnection[Any]) -> None:
        """Terminate the lost backends and wait for their end; after that they change nothing any more.

        Raises OperationalError, as a lost connection does, if one of them does not end.
        """
        for _ in range(_MAX_ATTEMPTS):
            if not self._lost:
                return
            pids = [backend.pid for backend in self._lost]
            start_times = [backend.started_at for backend in self._lost]
            rows = await (await conn.execute(_sql["terminate"], (pids, start_times))).fetchall()
            if all(has_exited for (has_exited,) in rows):
                self._lost.clear()
        if self._lost:
            raise psycopg.OperationalError("a PostgreSQL process that lost its client does not end")

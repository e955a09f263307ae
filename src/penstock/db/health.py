"""Whether the database answers, found out within a time that is kept whatever the database does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg

from penstock.core.errors import DatabaseError
from penstock.db import migrate
from penstock.db.fast.connection import WatchedConnection


class Probe:
    """Looks at the database over a connection of its own.

    One of the pool's would be busy for as long as it takes to give a statement up, and while all of them are in use a
    database that is well would seem to be away. Those who ask at the same time get the same answer, so that asking
    often costs the database nothing.
    """

    def __init__(self, connect: Callable[[], Awaitable[WatchedConnection[Any]]]) -> None:
        self._connect = connect
        self._conn: WatchedConnection[Any] | None = None
        self._looking: asyncio.Task[Exception | None] | None = None

    async def ask(self, seconds: float) -> None:
        """Raise unless it answers within that time and has the schema of this package."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(seconds))
        # Whoever hangs up takes the answer from nobody else.
        error = await asyncio.shield(self._looking)
        if error is not None:
            raise error

    async def close(self) -> None:
        """Let go of the connection."""
        if self._looking is not None:
            self._looking.cancel()
        self._drop()
        if self._looking is not None:
            await asyncio.wait([self._looking])

    async def _look(self, seconds: float) -> Exception | None:
        until = asyncio.get_running_loop().time() + seconds
        try:
            while True:
                is_new = self._conn is None or self._conn.is_lost
                if self._conn is None or is_new:
                    async with asyncio.timeout_at(until):
                        self._conn = await self._connect()
                try:
                    await self._verify(self._conn, until)
                    return None
                except psycopg.OperationalError:
                    self._drop()
                    if is_new:
                        raise
                    # It was lost while nobody asked, or stands still; a new one says how it is now.
        except TimeoutError:
            return TimeoutError(f"it does not answer within {seconds:g} s")
        except (DatabaseError, psycopg.Error) as error:
            return error

    async def _verify(self, conn: WatchedConnection[Any], until: float) -> None:
        # Not cancelled but cut off: to cancel a statement one has to talk to the server.
        timer = asyncio.get_running_loop().call_at(until, conn.cut)
        try:
            await migrate.verify(conn)
        finally:
            timer.cancel()

    def _drop(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.cut()

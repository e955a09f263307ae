"""Backends that lost their client: what they were sent may still be on its way to them, and they would do it.

Before anybody looks whether it was done, the backend is ended. A backend may end those of its own role, so this needs
no rights; and as a process id can be given to another one, it is known by when it began too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import psycopg

from penstock.db.retry import LOST

if TYPE_CHECKING:
    from psycopg import AsyncConnection

# Waits for the process to be gone, a second a look; one row for each that was there.
_END = """
    SELECT pg_terminate_backend(a.pid, 1000)
    FROM unnest(%s::integer[], %s::timestamptz[]) AS o (pid, began)
    JOIN pg_stat_activity a ON a.pid = o.pid AND a.backend_start = o.began
    WHERE a.pid <> pg_backend_pid()
"""


@dataclass(frozen=True, slots=True)
class Backend:
    """The process that serves a connection."""

    pid: int
    began: datetime


#: How often it is looked whether they are gone, each time for a second.
_MOST_LOOKS = 5
_backends: WeakKeyDictionary[AsyncConnection[Any], Backend] = WeakKeyDictionary()


def note_backend(conn: AsyncConnection[Any], backend: Backend) -> None:
    """Remember which process serves the connection."""
    _backends[conn] = backend


class Orphans:
    """The lost backends of one call, gathered while it tries again.

    ::

        orphans = Orphans()
        while True:
            try:
                async with pool.connection() as conn:
                    await orphans.end(conn)
                    with orphans.watching(conn):
                        return await act(conn)
            except LOST as error:
                await patience.pause(error)
    """

    __slots__ = ("_backends",)

    def __init__(self) -> None:
        self._backends: set[Backend] = set()

    @contextmanager
    def watching(self, conn: AsyncConnection[Any]) -> Iterator[None]:
        """While something is sent whose answer may be lost."""
        try:
            yield
        except LOST:
            # One that answers with an error has done with it.
            backend = _backends.get(conn) if conn.closed else None
            if backend is not None:
                self._backends.add(backend)
            raise

    async def end(self, conn: AsyncConnection[Any]) -> None:
        """End these processes and wait until they are gone: what they have not done by then, they never will.

        One that does not go is no better than a lost connection, and raised as such.
        """
        for _ in range(_MOST_LOOKS):
            if not self._backends:
                return
            pids = [backend.pid for backend in self._backends]
            began = [backend.began for backend in self._backends]
            found = await (await conn.execute(_END, (pids, began))).fetchall()
            if all(gone for (gone,) in found):
                self._backends.clear()
        if self._backends:
            raise psycopg.OperationalError("a process of PostgreSQL whose client is gone does not end")

"""The pool of connections: the driver's, with those that were used last at hand.

Lending one and taking it back costs the driver's pool as much as a short statement does, and it lends the one that has
rested longest, whose process at the server is a cold one.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, TypeAlias

from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from penstock.db.fast.connection import WatchedConnection

Connection: TypeAlias = AsyncConnection[TupleRow]
Pool: TypeAlias = AsyncConnectionPool[Connection]

_MOST_AT_HAND = 3
# For so long one is lent again and again before the driver's pool sees it, which retires those that are old.
_LONGEST_SECONDS = 60.0


class LendingPool(AsyncConnectionPool[Connection]):
    """A pool that lends at once what it has just got back, and nothing that the server has ended meanwhile.

    Nobody waits while there is one at hand: what comes back while somebody asks for one goes to who waits longest.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._at_hand: list[tuple[Connection, float]] = []
        self._out_until: dict[Connection, float] = {}
        self._asking = 0
        self._is_closing = False
        self._returns: set[asyncio.Task[None]] = set()

    def connection(  # type: ignore[override]  # what can be done with it is the same
        self, timeout: float | None = None
    ) -> AbstractAsyncContextManager[Connection]:
        """A connection, for as long as the context lasts."""
        return _Loan(self, timeout)

    async def getconn(self, timeout: float | None = None) -> Connection:
        """A connection, to be given back."""
        while self._at_hand:
            conn, until = self._at_hand.pop()
            if not _is_lost(conn):
                break
            await self._give_back(conn)
        else:
            self._asking += 1
            try:
                conn = await self._wait_for_one(timeout)
            finally:
                self._asking -= 1
            until = time.monotonic() + _LONGEST_SECONDS
        self._out_until[conn] = until
        return conn

    async def putconn(self, conn: Connection) -> None:
        """Take a connection back."""
        until = self._out_until.pop(conn, 0.0)
        if (
            not self._asking
            and not self._is_closing
            and len(self._at_hand) < _MOST_AT_HAND
            and conn.pgconn.transaction_status == TransactionStatus.IDLE
            and time.monotonic() < until
        ):
            self._at_hand.append((conn, until))
        else:
            await self._give_back(conn)

    async def close(self, timeout: float = 5.0) -> None:
        """Close the connections; those that are lent are closed when they come back."""
        self._is_closing = True
        while self._at_hand:
            await super().putconn(self._at_hand.pop()[0])
        await super().close(timeout)

    async def _wait_for_one(self, timeout: float | None) -> Connection:
        # Before Python 3.12, asyncio.wait_for, by which the driver's pool waits, forgets a cancellation if a connection
        # comes at that moment: a pop would wait on after its client was closed.
        task = asyncio.current_task()
        before = task.cancelling() if task is not None else 0
        until = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            conn = await super().getconn(until - time.monotonic())
            is_cancelled = task is not None and task.cancelling() > before
            if not is_cancelled and not _is_lost(conn):
                return conn
            # One that the server has ended is replaced by the driver's pool.
            await self._give_back(conn)
            if is_cancelled:
                raise asyncio.CancelledError

    async def _give_back(self, conn: Connection) -> None:
        """Let the driver's pool have it, even if who gives it back is cancelled: halfway, it would be lost to all."""
        task = asyncio.ensure_future(super().putconn(conn))
        self._returns.add(task)
        task.add_done_callback(self._returns.discard)
        await asyncio.shield(task)


def _is_lost(conn: Connection) -> bool:
    return conn.is_lost if isinstance(conn, WatchedConnection) else conn.closed


class _Loan(AbstractAsyncContextManager[Connection]):
    """A connection that is lent; a transaction that was left open ends with the loan."""

    __slots__ = ("_conn", "_pool", "_timeout")

    def __init__(self, pool: LendingPool, timeout: float | None) -> None:
        self._pool = pool
        self._timeout = timeout

    async def __aenter__(self) -> Connection:
        self._conn = await self._pool.getconn(self._timeout)
        return self._conn

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._conn.pgconn.transaction_status != TransactionStatus.IDLE:
                await self._conn.__aexit__(kind, error, trace)
        finally:
            await self._pool.putconn(self._conn)

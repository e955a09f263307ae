"""Retry of operations after lost connections, and of transactions that were rolled back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from penstock.core.backoff import Backoff, RetryTimer
from penstock.core.errors import DatabaseUnavailable

_T = TypeVar("_T")

#: The classes of error that a lost connection raises.
CONNECTION_ERRORS = (psycopg.OperationalError, psycopg.InterfaceError)

#: The pauses between attempts to reach the database.
RECONNECT_BACKOFF = Backoff(first=0.05, longest=1.0)

# Prefixes of SQLSTATE: connection lost, read-only replica, idle transaction ended, rollback, insufficient resources,
# object in use, lock not available, shutdown, system error.
_TRANSIENT = ("08", "25006", "25P03", "40", "53", "55006", "55P03", "57P", "58")


class DatabaseRetry:
    """The pauses of one retry loop, for up to ``seconds``.

    ::

        retry = DatabaseRetry(30)
        while True:
            try:
                return await operation()
            except CONNECTION_ERRORS as error:
                await retry.pause(error)
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timer = RetryTimer(RECONNECT_BACKOFF, seconds)

    async def pause(self, error: Exception) -> None:
        """Wait for the next attempt, or raise DatabaseUnavailable if the time is up."""
        await asyncio.sleep(self.next_pause(error))

    def next_pause(self, error: Exception) -> float:
        """Return the seconds until the next attempt, or raise DatabaseUnavailable if the time is up."""
        pause = self._timer.next_pause()
        if pause is None:
            raise DatabaseUnavailable(
                f"PostgreSQL could not be reached for {self._seconds:g} s: {str(error).strip()}; check that it runs "
                "and that this process can reach it, then try again"
            ) from error
        return pause


def is_transient(error: psycopg.Error) -> bool:
    """Return whether the same statement may succeed later.

    ``CONNECTION_ERRORS`` do not tell: psycopg raises OperationalError for a value too long for an index too.
    """
    if error.sqlstate is None:
        return isinstance(error, CONNECTION_ERRORS)
    return error.sqlstate.startswith(_TRANSIENT)


async def run_with_retry(
    pool: AsyncConnectionPool[Any], seconds: float, operation: Callable[[AsyncConnection[Any]], Awaitable[_T]]
) -> _T:
    """Run an idempotent operation with a connection of the pool, and again if the connection is lost."""
    retry = DatabaseRetry(seconds)
    while True:
        try:
            async with pool.connection() as conn:
                return await operation(conn)
        except CONNECTION_ERRORS as error:
            await retry.pause(error)


async def in_transaction(
    pool: AsyncConnectionPool[Any], operation: Callable[[AsyncConnection[Any]], Awaitable[_T]]
) -> _T:
    """Run an operation in a transaction of its own, and again if PostgreSQL rolls it back because of others."""
    while True:
        try:
            async with pool.connection() as conn, conn.transaction():
                return await operation(conn)
        except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
            continue

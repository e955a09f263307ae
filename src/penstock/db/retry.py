"""The one way to go on over a lost connection: for what can be asked twice without harm."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from penstock.core.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool

_Answer = TypeVar("_Answer")


class Patience:
    """How long somebody keeps trying, with pauses that grow.

    ::

        patience = Patience(30)
        while True:
            try:
                return await ask()
            except LOST as error:
                await patience.pause(error)
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._next = 0.05

    async def pause(self, error: Exception) -> None:
        """Wait a little before the next try, or raise DatabaseUnavailable if there is to be none."""
        if asyncio.get_running_loop().time() + self._next > self._deadline:
            raise DatabaseUnavailable(
                f"given up after {self._seconds:g} s without a database: {str(error).strip()}; "
                "check that PostgreSQL runs, and try again"
            ) from error
        await asyncio.sleep(self._next)
        self._next = min(self._next * 2, 1.0)


#: What a lost connection raises.
LOST = (psycopg.OperationalError, psycopg.InterfaceError)

#: Lost, full, restarting, a replica that takes over, somebody in the way: what a moment later may be otherwise.
_NOT_NOW = ("08", "25006", "25P03", "40", "53", "55006", "55P03", "57P", "58")


def is_not_now(error: psycopg.Error) -> bool:
    """Whether the database cannot do it now, whatever it was asked; else it is about what it was asked.

    LOST alone does not tell: a value too long for an index and a statement that took too long are of its kind too.
    """
    return isinstance(error, LOST) if error.sqlstate is None else error.sqlstate.startswith(_NOT_NOW)


async def patiently(
    pool: AsyncConnectionPool[Any], seconds: float, act: Callable[[AsyncConnection[Any]], Awaitable[_Answer]]
) -> _Answer:
    """Do with a connection what can be done twice without harm, and again if it is lost."""
    patience = Patience(seconds)
    while True:
        try:
            async with pool.connection() as conn:
                return await act(conn)
        except LOST as error:
            await patience.pause(error)

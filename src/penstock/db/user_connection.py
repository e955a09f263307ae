"""A connection of the user's own, in the middle of a transaction, used as one of ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, cast

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow, tuple_row
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from penstock.core.errors import InvalidRequest

#: psycopg's connection, asynchronous or not.
UserConnection: TypeAlias = AsyncConnection[Any] | Connection[Any]


async def borrow(connection: object) -> AsyncConnection[Any]:
    """The connection for our statements, or raise InvalidRequest if what is done on it would be no part of anything.

    Ours go through cursors of their own: the user's row factory and the like are not touched, and not relied upon.
    """
    if not isinstance(connection, AsyncConnection | Connection):
        raise InvalidRequest(
            f"connection must be one of psycopg, with a transaction in progress, not {type(connection).__name__}"
        )
    status = connection.info.transaction_status
    if connection.closed or status == TransactionStatus.INERROR:
        raise InvalidRequest("the connection's transaction has failed or ended already: begin it anew")
    if status == TransactionStatus.IDLE and connection.autocommit:
        raise InvalidRequest(
            "the connection is in no transaction, and commits each statement by itself: use it inside "
            "`async with connection.transaction():`"
        )
    borrowed: Any = _Threaded(connection) if isinstance(connection, Connection) else _Borrowed(connection)
    # The first statement of a transaction, if there was none.
    cursor = await borrowed.execute("SHOW transaction_isolation")
    ((isolation,),) = await cursor.fetchall()
    if isolation != "read committed":
        raise InvalidRequest(
            f"the connection's transaction is {isolation} and sees nothing of what others commit meanwhile, so that an "
            "event's place in its partition cannot be told; use read committed, PostgreSQL's default"
        )
    # Of a connection, the log uses what these have.
    return cast("AsyncConnection[Any]", borrowed)


class _Borrowed:
    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection
        self.info = connection.info

    async def execute(
        self, query: str, params: Any = None, *, prepare: bool | None = None, binary: bool = False
    ) -> AsyncCursor[TupleRow]:
        cursor = AsyncCursor(self._connection, row_factory=tuple_row)
        _adapt(cursor)
        return await cursor.execute(query, params, prepare=prepare, binary=binary)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A savepoint: if it is left by an error, the user's transaction goes on as if nothing had been tried."""
        async with self._connection.transaction():
            yield


class _Threaded:
    """The same for a synchronous connection: whoever owns it waits for us, and its statements run in a thread."""

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection
        self.info = connection.info

    async def execute(
        self, query: str, params: Any = None, *, prepare: bool | None = None, binary: bool = False
    ) -> _Fetched:
        return await asyncio.to_thread(self._execute, query, params, prepare, binary)

    def _execute(self, query: str, params: Any, prepare: bool | None, binary: bool) -> _Fetched:
        with Cursor(self._connection, row_factory=tuple_row) as cursor:
            _adapt(cursor)
            cursor.execute(query, params, prepare=prepare, binary=binary)
            return _Fetched(cursor.fetchall() if cursor.description is not None else [], cursor.rowcount)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        block = self._connection.transaction()
        await asyncio.to_thread(block.__enter__)
        try:
            yield
        except BaseException as error:
            await asyncio.to_thread(block.__exit__, type(error), error, error.__traceback__)
            raise
        await asyncio.to_thread(block.__exit__, None, None, None)


class _Fetched:
    def __init__(self, rows: list[TupleRow], rowcount: int) -> None:
        self._rows = rows
        self.rowcount = rowcount

    async def fetchall(self) -> list[TupleRow]:
        return self._rows

    async def fetchone(self) -> TupleRow | None:
        return self._rows[0] if self._rows else None


def _adapt(cursor: AsyncCursor[Any] | Cursor[Any]) -> None:
    # As the pool's connections do: one width for all integers.
    cursor.adapters.register_dumper(int, Int8Dumper)
    cursor.adapters.register_dumper(int, Int8BinaryDumper)

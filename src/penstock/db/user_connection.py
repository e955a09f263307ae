"""Penstock's statements on a connection of the user, inside the user's transaction."""

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

#: A connection of psycopg, asynchronous or synchronous.
UserConnection: TypeAlias = AsyncConnection[Any] | Connection[Any]


async def wrap_user_connection(connection: object) -> AsyncConnection[Any]:
    """Wrap a connection for Penstock's statements. Raises InvalidRequest if it has no transaction in progress.

    The statements run on their own cursors, so they neither use nor change the row factory of the connection.
    """
    if not isinstance(connection, AsyncConnection | Connection):
        raise InvalidRequest(
            f"connection must be a psycopg connection with a transaction in progress, not {type(connection).__name__}"
        )
    status = connection.info.transaction_status
    if connection.closed or status == TransactionStatus.INERROR:
        raise InvalidRequest("the transaction of the connection has failed or ended: begin a new one")
    if status == TransactionStatus.IDLE and connection.autocommit:
        raise InvalidRequest(
            "the connection has no transaction in progress and commits each statement: use it inside "
            "`async with connection.transaction():`"
        )
    wrapped: Any = (
        _SyncUserConnection(connection) if isinstance(connection, Connection) else _AsyncUserConnection(connection)
    )
    # Starts the transaction if none is in progress.
    cursor = await wrapped.execute("SHOW transaction_isolation")
    ((isolation,),) = await cursor.fetchall()
    if isolation != "read committed":
        raise InvalidRequest(
            f"the transaction of the connection is {isolation}, which hides concurrent commits, so the offsets of "
            "events cannot be determined: use read committed, the default of PostgreSQL"
        )
    # The log uses only the methods that the wrapper has.
    return cast("AsyncConnection[Any]", wrapped)


class _AsyncUserConnection:
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
        """Open a savepoint. An error rolls back to it, and the user's transaction goes on."""
        async with self._connection.transaction():
            yield


class _SyncUserConnection:
    """Runs the statements of a synchronous connection in a thread, while its owner waits."""

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection
        self.info = connection.info

    async def execute(
        self, query: str, params: Any = None, *, prepare: bool | None = None, binary: bool = False
    ) -> _FetchedRows:
        return await asyncio.to_thread(self._execute, query, params, prepare, binary)

    def _execute(self, query: str, params: Any, prepare: bool | None, binary: bool) -> _FetchedRows:
        with Cursor(self._connection, row_factory=tuple_row) as cursor:
            _adapt(cursor)
            cursor.execute(query, params, prepare=prepare, binary=binary)
            return _FetchedRows(cursor.fetchall() if cursor.description is not None else [], cursor.rowcount)

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


class _FetchedRows:
    def __init__(self, rows: list[TupleRow], rowcount: int) -> None:
        self._rows = rows
        self.rowcount = rowcount

    async def fetchall(self) -> list[TupleRow]:
        return self._rows

    async def fetchone(self) -> TupleRow | None:
        return self._rows[0] if self._rows else None


def _adapt(cursor: AsyncCursor[Any] | Cursor[Any]) -> None:
    # One width for all integers, as on the connections of the pool.
    cursor.adapters.register_dumper(int, Int8Dumper)
    cursor.adapters.register_dumper(int, Int8BinaryDumper)

"""``Table``: a PostgreSQL table as a source, in the order of an increasing column."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import psycopg
from psycopg import AsyncConnection, sql
from psycopg.rows import class_row, scalar_row

from penstock.core.errors import InvalidRequest
from penstock.core.names import check_name
from penstock.db.retry import CONNECTION_ERRORS
from penstock.db.scalar import fetch_scalar
from penstock.db.statements import Statements, quote_identifier
from penstock.db.table_names import find_table
from penstock.sources.base import Position, ReadResult, Source

_logger = logging.getLogger("penstock.sources")
_sql = Statements("penstock.sources", "table.sql")

#: Most transactions that write when rows are read end within these pauses. The others are checked at the next read.
_SETTLE_PAUSES = (0.002, 0.01, 0.03)


class _SourceColumn(NamedTuple):
    name: str
    is_primary_key: bool
    is_unique: bool
    resolution_seconds: float | None


@dataclass(slots=True)
class _ReadBound:
    """The key of the last row at a moment, and the transactions that may still add rows before it."""

    values: Sequence[str]
    writers: set[str]


class Table(Source):
    """Reads rows in the order of an increasing column: a serial key (new rows), or the time of the last change.

    The primary key orders rows with the same value. A row is read when all transactions that wrote to the table at the
    time of the read have ended, so that none can commit a row before it.

    Args:
        table: The table.
        column: The increasing column.
        url: The database of the table.
        notify: A channel on which a NOTIFY, such as from a trigger, starts the next read at once. Without it the table
            is read every second.
        behind_seconds: Read only rows older than this. A time that is taken when a transaction begins (``now()``) needs
            the longest duration of a transaction. A column with a coarse resolution needs at least the resolution.
        follow: Wait for more rows at the end of the table.
    """

    kind: ClassVar[str] = "table"

    def __init__(
        self,
        table: str,
        *,
        column: str,
        url: str,
        notify: str | None = None,
        behind_seconds: float = 0.0,
        follow: bool = True,
    ) -> None:
        self._table_name = check_name(table, "table")
        self._column = column
        self._url = url
        self._notify = None if notify is None else check_name(notify, "channel")
        self._behind_seconds = behind_seconds
        self._follow = follow
        self.name = f"table:{table}"[:200].rstrip()
        self._conn: AsyncConnection[Any] | None = None
        self._table: sql.SQL | None = None
        self._key_columns: list[str] = []
        self._bound: _ReadBound | None = None

    async def open(self) -> None:
        """Connect, read the columns of the table, and listen on the channel."""
        conn = await AsyncConnection.connect(self._url, autocommit=True)
        self._conn, self._bound = conn, None
        if await fetch_scalar(conn, _sql["is_standby"]):
            await conn.close()
            if self._key_columns:  # it was a primary before, and may become one again
                raise psycopg.OperationalError("the database is a standby at the moment")
            raise InvalidRequest(
                f"the database of table {self._table_name!r} is a standby, which does not know the writing "
                "transactions, so that rows would be skipped: read from its primary"
            )
        self._table = await find_table(conn, self._table_name)
        if self._table is None:
            raise InvalidRequest(
                f"there is no table {self._table_name!r}: name its schema too, if it has another than public"
            )
        async with conn.cursor(row_factory=class_row(_SourceColumn)) as column_cursor:
            columns = await (await column_cursor.execute(_sql["columns"], [self._table_name])).fetchall()
        self._key_columns = self._choose_key_columns(columns)
        if self._notify is not None:
            await conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._notify)))

    async def read(self, position: Position, limit: int) -> ReadResult:
        """Return the next rows."""
        try:
            return await self._read(await self._connect(), position, limit)
        except CONNECTION_ERRORS as error:
            _logger.warning("%s: %s; the table is read again later", self.name, str(error).strip())
            self._bound = None
            return ReadResult([], position)
        except psycopg.Error as error:
            message = str(error).strip()
            raise InvalidRequest(f"table {self._table_name!r} cannot be read by {self._column!r}: {message}") from error

    async def wait(self, seconds: float) -> None:
        """Wait for a NOTIFY, at most for ``seconds``."""
        if self._notify is None or self._conn is None or self._conn.closed:
            await asyncio.sleep(seconds)
            return
        try:
            async for _ in self._conn.notifies(timeout=seconds, stop_after=1):
                pass
        except CONNECTION_ERRORS:
            await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close the connection."""
        if self._conn is not None:
            await self._conn.close()
            self._conn = None

    async def _connect(self) -> AsyncConnection[Any]:
        if self._conn is None or self._conn.closed or self._conn.broken:
            await self.open()
        assert self._conn is not None  # noqa: S101 - open() has set it
        return self._conn

    def _choose_key_columns(self, columns: Sequence[_SourceColumn]) -> list[str]:
        """Return the columns that order the rows: the increasing column, then the primary key."""
        by_name = {column.name: column for column in columns}
        if self._column not in by_name:
            raise InvalidRequest(
                f"table {self._table_name!r} has no column {self._column!r}; it has {', '.join(by_name)}"
            )
        primary_key = [column.name for column in columns if column.is_primary_key]
        increasing = by_name[self._column]
        resolution = increasing.resolution_seconds
        if not primary_key and not increasing.is_unique:
            raise InvalidRequest(
                f"table {self._table_name!r} has no primary key, and several rows can have the same {self._column!r}, "
                f"so that rows would be skipped: add a primary key, or a unique index on {self._column!r} alone"
            )
        if self._behind_seconds and resolution is None:
            raise InvalidRequest(
                f"behind_seconds needs a date or timestamp, and column {self._column!r} of table {self._table_name!r} "
                "is neither: leave it out"
            )
        if resolution and not increasing.is_unique and self._behind_seconds < resolution:
            raise InvalidRequest(
                f"the resolution of column {self._column!r} of table {self._table_name!r} is so coarse that rows could "
                f"get a value that was read already, and would be skipped: set behind_seconds={resolution:g} or more, "
                "or read by another column"
            )
        return [self._column, *(name for name in primary_key if name != self._column)]

    async def _read(self, conn: AsyncConnection[Any], position: Position, limit: int) -> ReadResult:
        after: list[str] = [] if position is None else position["after"]
        if self._bound is None:
            last = await self._last_key(conn, after, only_old=bool(self._behind_seconds))
            if last is None:
                # Rows that are too young are read later, so the source has not ended.
                is_all_read = not self._behind_seconds or await self._last_key(conn, after, only_old=False) is None
                return ReadResult([], position, ended=is_all_read and not self._follow)
            # The writers are read after the last row: one that began before is listed, or has ended and its rows are
            # visible to the next statement.
            self._bound = _ReadBound(last, await self._list_writers(conn))
        if not await self._has_settled(conn, self._bound):
            return ReadResult([], position)
        params = {"limit": limit, **_numbered("p", after), **_numbered("b", self._bound.values)}
        rows = await (await conn.execute(self._build_statement("rows", after), params)).fetchall()
        if len(rows) < limit:
            self._bound = None
        if not rows:
            return ReadResult([], position)
        lines = [data.encode() for *_, data in rows]
        *last_key, _ = rows[-1]
        return ReadResult(lines, {"after": last_key})

    async def _last_key(
        self, conn: AsyncConnection[Any], after: Sequence[str], *, only_old: bool
    ) -> Sequence[str] | None:
        params: dict[str, object] = {**_numbered("p", after)}
        if only_old:
            params["behind"] = self._behind_seconds
        return await (await conn.execute(self._build_statement("last", after, only_old=only_old), params)).fetchone()

    async def _list_writers(self, conn: AsyncConnection[Any]) -> set[str]:
        async with conn.cursor(row_factory=scalar_row) as cursor:
            return set(await (await cursor.execute(_sql["writers"], {"table": self._table_name})).fetchall())

    async def _has_settled(self, conn: AsyncConnection[Any], bound: _ReadBound) -> bool:
        """Return whether all transactions that wrote at the time of the bound have ended."""
        for pause in _SETTLE_PAUSES:
            if not bound.writers:
                break
            bound.writers &= await self._list_writers(conn)
            if bound.writers:
                await asyncio.sleep(pause)
        return not bound.writers

    def _build_statement(self, name: str, after: Sequence[str], *, only_old: bool = False) -> sql.Composed:
        columns = [quote_identifier("t", column) for column in self._key_columns]
        comma = sql.SQL(", ")
        after_position: sql.Composable = sql.SQL("true")
        if after:
            # A position of an early version can have fewer columns.
            known = columns[: len(after)]
            values = comma.join(sql.Placeholder(f"p{i}") for i in range(len(known)))
            after_position = sql.SQL("({}) > ({})").format(comma.join(known), values)
        return sql.SQL(_sql[name]).format(
            table=self._table,
            column=columns[0],
            order=comma.join(columns),
            descending=comma.join(sql.SQL("{} DESC").format(column) for column in columns),
            # As text, from which PostgreSQL can read a value of any type.
            key=comma.join(sql.SQL("{}::text").format(column) for column in columns),
            after_position=after_position,
            bound=comma.join(sql.Placeholder(f"b{i}") for i in range(len(columns))),
            is_old_enough=sql.SQL(_sql["is_old_enough"]).format(column=columns[0]) if only_old else sql.SQL("true"),
        )


def _numbered(letter: str, values: Sequence[str]) -> dict[str, str]:
    return {f"{letter}{i}": value for i, value in enumerate(values)}

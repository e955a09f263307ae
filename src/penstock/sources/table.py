"""A PostgreSQL table as a source: its rows in the order of a column that grows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import psycopg
from psycopg import AsyncConnection, sql

from penstock.core.errors import InvalidRequest
from penstock.core.names import check_name
from penstock.db.retry import LOST
from penstock.db.statements import Statements, quoted
from penstock.db.table_names import find_table
from penstock.sources.base import Position, Read, Source

_logger = logging.getLogger("penstock.sources")
_sql = Statements("penstock.sources", "table.sql")

#: Those who write when rows are found are mostly done a moment later; others are asked after at the next look.
_PAUSES = (0.002, 0.01, 0.03)


@dataclass(slots=True)
class _Bound:
    """How far the rows went at a moment, and who was writing then and may still add some before that."""

    values: Sequence[str]
    writers: set[str]


class Table(Source):
    """Reads rows by a column whose values grow: a key of its own (new rows), or the time of the last change.

    Rows of one value are told apart by the primary key. A row is read when every transaction that was writing to the
    table as the row was found has ended: none of them can commit one before it any more. For a time that is taken when
    a transaction begins and written later (``now()``), say how much later that may be: rows younger than
    ``behind_seconds`` are left for the next look. A coarse column needs that too: others may still get the value that
    was read. Where ``notify`` names a channel, a NOTIFY on it (from a trigger, say) brings the next look at once;
    without, it comes every second.
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
        self._names = check_name(table, "table")
        self._column = column
        self._url = url
        self._notify = None if notify is None else check_name(notify, "channel")
        self._behind = behind_seconds
        self._follow = follow
        self.name = f"table:{table}"[:200].rstrip()
        self._conn: AsyncConnection[Any] | None = None
        self._table: sql.SQL | None = None
        self._order: list[str] = []
        self._bound: _Bound | None = None

    async def open(self) -> None:
        """Connect, look at the table, listen."""
        conn = await AsyncConnection.connect(self._url, autocommit=True)
        self._conn, self._bound = conn, None
        row = await (await conn.execute(_sql["is_standby"])).fetchone()
        if row is not None and row[0]:
            await conn.close()
            if self._order:  # it was none before: it may be about to become the primary
                raise psycopg.OperationalError("the database is a standby for now")
            raise InvalidRequest(
                f"the database of table {self._names!r} is a standby, which does not know who is writing: "
                "read from its primary, or rows would be passed over"
            )
        self._table = await find_table(conn, self._names)
        if self._table is None:
            raise InvalidRequest(
                f"there is no table {self._names!r}: name its schema too, if it has another than public"
            )
        self._order = self._order_by(await (await conn.execute(_sql["columns"], [self._names])).fetchall())
        if self._notify is not None:
            await conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._notify)))

    async def read(self, position: Position, most: int) -> Read:
        """The next rows."""
        try:
            return await self._read(await self._connection(), position, most)
        except LOST as error:
            # The table's own server is away; nothing is lost by waiting for it.
            _logger.warning("%s: %s; it is looked at again", self.name, str(error).strip())
            self._bound = None
            await asyncio.sleep(1.0)
            return Read([], position)
        except psycopg.Error as error:
            said = str(error).strip()
            raise InvalidRequest(f"table {self._names!r} cannot be read by {self._column!r}: {said}") from error

    async def wait(self, seconds: float) -> None:
        """Wait for a NOTIFY, or for so long."""
        if self._notify is None or self._conn is None or self._conn.closed:
            await asyncio.sleep(seconds)
            return
        try:
            async for _ in self._conn.notifies(timeout=seconds, stop_after=1):
                pass
        except LOST:
            await asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close the connection."""
        if self._conn is not None:
            await self._conn.close()
            self._conn = None

    async def _connection(self) -> AsyncConnection[Any]:
        if self._conn is None or self._conn.closed or self._conn.broken:
            await self.open()
        assert self._conn is not None  # noqa: S101
        return self._conn

    def _order_by(self, columns: Sequence[tuple[str, bool, bool, float | None]]) -> list[str]:
        """The columns that put rows in one order, if there are such."""
        known = {name: (is_unique, step) for name, _, is_unique, step in columns}
        if self._column not in known:
            raise InvalidRequest(f"table {self._names!r} has no column {self._column!r}; it has {', '.join(known)}")
        keys = [name for name, is_key, _, _ in columns if is_key]
        is_unique, step = known[self._column]
        if not keys and not is_unique:
            raise InvalidRequest(
                f"table {self._names!r} has no primary key, and several rows may have one {self._column!r}: some would "
                f"be passed over. Give it a primary key, or a unique index on {self._column!r} alone"
            )
        if self._behind and step is None:
            raise InvalidRequest(
                f"behind_seconds is for a column that says when, and {self._column!r} of table {self._names!r} is no "
                "date or timestamp: leave it out"
            )
        if step and not is_unique and self._behind < step:
            raise InvalidRequest(
                f"column {self._column!r} of table {self._names!r} is so coarse that rows get a value which was read "
                f"already, and would be passed over: say behind_seconds={step:g} or more, or read by a finer one"
            )
        return [self._column, *(name for name in keys if name != self._column)]

    async def _read(self, conn: AsyncConnection[Any], position: Position, most: int) -> Read:
        after: list[str] = [] if position is None else position["after"]
        if self._bound is None:
            last = await self._last(conn, after, behind=bool(self._behind))
            if last is None:
                # Rows that are too young yet are waited for.
                is_all = not self._behind or await self._last(conn, after, behind=False) is None
                return Read([], position, ended=is_all and not self._follow)
            # After the look, so that whoever had begun by then is among them, or has ended and is seen by the next.
            self._bound = _Bound(last, await self._writers(conn))
        if not await self._is_settled(conn, self._bound):
            return Read([], position)
        params = {"most": most, **_numbered("p", after), **_numbered("b", self._bound.values)}
        rows = await (await conn.execute(self._statement("rows", after), params)).fetchall()
        if len(rows) < most:
            self._bound = None
        if not rows:
            return Read([], position)
        return Read([row[-1].encode() for row in rows], {"after": list(rows[-1][:-1])})

    async def _last(self, conn: AsyncConnection[Any], after: Sequence[str], *, behind: bool) -> Sequence[str] | None:
        params = {"behind": self._behind, **_numbered("p", after)} if behind else _numbered("p", after)
        return await (await conn.execute(self._statement("last", after, behind=behind), params)).fetchone()

    async def _writers(self, conn: AsyncConnection[Any]) -> set[str]:
        rows = await (await conn.execute(_sql["writers"], {"table": self._names})).fetchall()
        return {row[0] for row in rows}

    async def _is_settled(self, conn: AsyncConnection[Any], bound: _Bound) -> bool:
        """Whether all who were writing have ended."""
        for pause in _PAUSES:
            if not bound.writers:
                break
            bound.writers &= await self._writers(conn)
            if bound.writers:
                await asyncio.sleep(pause)
        return not bound.writers

    def _statement(self, name: str, after: Sequence[str], *, behind: bool = False) -> sql.Composed:
        columns = [quoted("t", each) for each in self._order]
        comma = sql.SQL(", ")
        beyond: sql.Composable = sql.SQL("true")
        if after:
            # One that an earlier version stored may know fewer columns.
            held = columns[: len(after)]
            values = comma.join(sql.Placeholder(f"p{i}") for i in range(len(held)))
            beyond = sql.SQL("({}) > ({})").format(comma.join(held), values)
        return sql.SQL(_sql[name]).format(
            table=self._table,
            column=columns[0],
            order=comma.join(columns),
            downwards=comma.join(sql.SQL("{} DESC").format(column) for column in columns),
            # As text, which every type can be read back from.
            after=comma.join(sql.SQL("{}::text").format(column) for column in columns),
            beyond=beyond,
            bound=comma.join(sql.Placeholder(f"b{i}") for i in range(len(columns))),
            behind=sql.SQL(_sql["behind"]).format(column=columns[0]) if behind else sql.SQL("true"),
        )


def _numbered(letter: str, values: Sequence[str]) -> dict[str, str]:
    return {f"{letter}{i}": value for i, value in enumerate(values)}

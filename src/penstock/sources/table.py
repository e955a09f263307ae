"""A PostgreSQL table as a source: its rows in the order of a column that grows."""

from __future__ import annotations

import asyncio
from itertools import takewhile
from typing import Any, ClassVar

import psycopg
from psycopg import AsyncConnection, sql

from penstock.core.errors import InvalidRequest
from penstock.db.statements import Statements, quoted
from penstock.sources.contract import Position, Read, Source

_sql = Statements("penstock.sources", "table.sql")


class Table(Source):
    """Reads rows by a column whose values grow: a key of its own (new rows), or the time of the last change.

    Rows of one value are told apart by the primary key. A row is read when no transaction runs any more that could
    commit one before it. For a time that is taken when a transaction begins and written later (``now()``), say how much
    later that may be: rows younger than ``behind_seconds`` are left for the next look. Where ``notify`` names a
    channel, a NOTIFY on it (from a trigger, say) brings the next look at once; without, it comes every second.
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
        self._names = table
        self._column = column
        self._url = url
        self._notify = notify
        self._behind = behind_seconds
        self._follow = follow
        self.name = f"table:{table}"[:200]
        self._conn: AsyncConnection[Any] | None = None
        self._first: sql.Composed | None = None
        self._next: sql.Composed | None = None
        self._order: list[str] = []

    async def open(self) -> None:
        """Connect, look at the table, listen."""
        conn = await AsyncConnection.connect(self._url, autocommit=True)
        self._conn = conn
        found = await (await conn.execute(_sql["columns"], [self._names])).fetchall()
        if not found:
            raise InvalidRequest(
                f"there is no table {self._names!r}: name its schema too, if it has another than public"
            )
        known = [name for name, _ in found]
        if self._column not in known:
            raise InvalidRequest(f"table {self._names!r} has no column {self._column!r}; it has {', '.join(known)}")
        keys = [name for name, is_key in found if is_key and name != self._column]
        self._order = [self._column, *keys]
        self._prepare()
        if self._notify is not None:
            await conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._notify)))

    async def read(self, position: Position, most: int) -> Read:
        """The next rows."""
        params: dict[str, Any] = {"most": most, "behind": self._behind}
        if position is not None:
            params |= {f"p{i}": value for i, value in enumerate(position["after"])}
        try:
            conn = await self._connection()
            statement = self._first if position is None else self._next
            assert statement is not None  # noqa: S101 - made when it was opened
            rows = await (await conn.execute(statement, params)).fetchall()
        except (psycopg.OperationalError, psycopg.InterfaceError):
            # The table's own server is away; nothing is lost by waiting for it.
            await asyncio.sleep(1.0)
            return Read([], position)
        if not rows:
            return Read([], position, ended=not self._follow)
        # Up to the first one that another may still come before.
        certain = list(takewhile(lambda row: row[-2], rows))
        after = {"after": list(certain[-1][:-2])} if certain else position
        return Read([row[-1].encode() for row in certain], after)

    async def wait(self, seconds: float) -> None:
        """Wait for a NOTIFY, or for so long."""
        if self._notify is None or self._conn is None or self._conn.closed:
            await asyncio.sleep(seconds)
            return
        try:
            async for _ in self._conn.notifies(timeout=seconds, stop_after=1):
                pass
        except (psycopg.OperationalError, psycopg.InterfaceError):
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

    def _prepare(self) -> None:
        parts = [part.strip('"') if part.startswith('"') else part.lower() for part in self._names.split(".")]
        columns = [quoted("t", name) for name in self._order]
        settled: sql.Composable = sql.SQL(_sql["settled"])
        if self._behind:
            settled = settled + sql.SQL(" AND ") + sql.SQL(_sql["behind"]).format(column=columns[0])
        made = {
            "table": quoted(*parts),
            "column": columns[0],
            "order": sql.SQL(", ").join(columns),
            # As text, which every type can be read back from.
            "after": sql.SQL(", ").join(sql.SQL("{}::text").format(column) for column in columns),
            "settled": settled,
            "values": sql.SQL(", ").join(sql.Placeholder(f"p{i}") for i in range(len(columns))),
        }
        self._first = sql.SQL(_sql["first"]).format(**{k: v for k, v in made.items() if k != "values"})
        self._next = sql.SQL(_sql["next"]).format(**{k: v for k, v in made.items() if k != "column"})

"""The current window of each key of a query, and the changes between two reads.

A key whose window is no longer current leaves the view without a trace. Subscribers therefore get the difference
between two reads of the whole view.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from psycopg.rows import class_row

from penstock.core.errors import Conflict, NotFound
from penstock.db.pool import Connection, Database
from penstock.db.statements import Statements, fill_placeholders, quote_identifier
from penstock.server.live.query_results import (
    MAX_ROWS,
    QueryPosition,
    ResultChanges,
    ResultRead,
    ResultRow,
    begin_snapshot,
)

_sql = Statements("penstock.server.live", "query_results.sql")

#: Between two cycles the view changes by the clock alone, and is read this often.
_CLOCK_SECONDS = 1.0


class CurrentResultReader:
    """Reads the view of current windows of a query that runs on Spark."""

    def __init__(self, database: Database, query_id: int, name: str) -> None:
        self._database = database
        self._id = query_id
        self._name = name
        #: The last read: the cycle and the keys that it was for, and when it was.
        self._version: tuple[int, list[str] | None] | None = None
        self._read_at = 0.0
        self._rows: dict[str | None, ResultRow] = {}
        self._is_truncated = False

    async def read(
        self, since: QueryPosition | None, resumed: Iterable[int], *, snapshot: bool, keys: frozenset[str] | None
    ) -> ResultRead:
        """See :class:`~penstock.server.live.query_results.LiveResultReader`. A resumed subscriber gets a snapshot."""
        followed = None if keys is None else sorted(keys)
        before, changes = self._rows, None
        async with self._database.connection() as conn, conn.transaction():
            await begin_snapshot(conn)
            position = await self._read_position(conn)
            version = (position.cycle, followed)
            is_due = version != self._version or time.monotonic() - self._read_at >= _CLOCK_SECONDS
            rows = await self._read_rows(conn, position, followed) if is_due else None
        if rows is not None:
            # Only after the whole read has succeeded: else the next one would miss these changes.
            self._version, self._read_at = version, time.monotonic()
            self._is_truncated = len(rows) > MAX_ROWS
            self._rows = {row[0]: row for row in rows[:MAX_ROWS]}
            changes = self._changes(position, before)
        everything = None
        if snapshot or any(True for _ in resumed):
            everything = ResultChanges(
                position, list(self._rows.values()), is_snapshot=True, is_truncated=self._is_truncated
            )
        return ResultRead(position, changes if since is not None else None, {}, everything, must_restart=False)

    def _changes(self, position: QueryPosition, before: dict[str | None, ResultRow]) -> ResultChanges:
        rows = [row for key, row in self._rows.items() if before.get(key) != row]
        gone = [key for key in before if key not in self._rows]
        return ResultChanges(
            position, rows, replaced=[*(key for key, _ in rows), *gone], is_truncated=self._is_truncated
        )

    async def _read_position(self, conn: Connection) -> QueryPosition:
        cursor = conn.cursor(row_factory=class_row(QueryPosition))
        position = await (await cursor.execute(_sql["position"].encode(), {"query": self._id})).fetchone()
        if position is None:
            raise NotFound("the query was deleted")
        return position

    async def _read_rows(self, conn: Connection, position: QueryPosition, keys: list[str] | None) -> list[ResultRow]:
        if not position.has_tables:
            return []
        if position.current_view is None:
            raise Conflict(
                f"query {self._name!r} has no view of current windows: start it again with this version. The name of "
                "a query that has one takes at most 55 bytes"
            )
        view = quote_identifier(position.current_view).as_string()
        statement = fill_placeholders(_sql["snapshot"], view=view).encode()
        rows: list[ResultRow] = await (await conn.execute(statement, {"keys": keys, "limit": MAX_ROWS + 1})).fetchall()
        return rows

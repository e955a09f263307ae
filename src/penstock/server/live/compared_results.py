"""Results whose changes are the difference between two reads, because a row can disappear without a trace.

A key whose window is no longer current leaves the view of current windows. Clients that compute a query commit
independently of each other, so no cycle number orders their changes, and they delete rows.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from psycopg.rows import class_row, scalar_row

from penstock.core.errors import Conflict, NotFound
from penstock.db.pg_arrays import int_array
from penstock.db.pool import Connection, Database
from penstock.db.statements import Statements, fill_placeholders, quote_identifier
from penstock.server.live.query_results import (
    MAX_ROWS,
    QueryPosition,
    ResultChanges,
    ResultRead,
    ResultRow,
    begin_snapshot,
    read_position,
)

_sql = Statements("penstock.server.live", "query_results.sql")
_client_sql = Statements("penstock.server.live", "client_results.sql")

#: Between two cycles the view of current windows changes by the clock alone, and is read this often.
_CLOCK_SECONDS = 1.0
#: Identifies a row of the state of a client query: partition id and state key.
_StateId: TypeAlias = tuple[int, str]
#: The end of a row's JSON, its column is_open, while the row exists and after its deletion.
_OPEN, _CLOSED = "true}", "false}"


@dataclass(frozen=True)
class _Results:
    """The rows of one read, by what identifies them."""

    position: QueryPosition
    rows: dict[Any, ResultRow] = field(default_factory=dict)
    is_truncated: bool = False
    #: Equal to that of the next read if nothing has changed between them.
    version: object = None
    #: The version of each row of a query that clients compute.
    row_versions: dict[_StateId, int] = field(default_factory=dict)
    read_at: float = 0.0


class ComparingReader(ABC):
    """Reads all rows, and compares them with those of the last read."""

    def __init__(self, database: Database, query_id: int) -> None:
        self._database = database
        self._id = query_id
        position = QueryPosition(has_tables=True, has_sessions=False, current_view=None, cycle=0, committed_at=None)
        self._last = _Results(position)

    async def read(
        self, since: QueryPosition | None, resumed: Sequence[int], *, snapshot: bool, keys: frozenset[str] | None
    ) -> ResultRead:
        """See :class:`~penstock.server.live.query_results.LiveResultReader`. A resumed subscriber gets a snapshot."""
        last = self._last
        async with self._database.connection() as conn, conn.transaction():
            await begin_snapshot(conn)
            now = await self._read_results(conn, last, None if keys is None else sorted(keys))
        # Only after the whole read has succeeded: else the next one would miss these changes.
        self._last = now
        changes = everything = None
        if since is not None and now.rows is not last.rows:
            changes = self._compare(last.rows, now)
        if snapshot or resumed:
            rows = list(now.rows.values())
            everything = ResultChanges(now.position, rows, is_snapshot=True, is_truncated=now.is_truncated)
        return ResultRead(now.position, changes, {}, everything, must_restart=False)

    @abstractmethod
    async def _read_results(self, conn: Connection, last: _Results, keys: list[str] | None) -> _Results:
        """Return the results of some keys, with the rows of the last read if nothing has changed since."""

    @abstractmethod
    def _compare(self, before: dict[Any, ResultRow], now: _Results) -> ResultChanges: ...


class KeyedResultReader(ComparingReader):
    """Reads a view that has one row for each key. ``max_age`` is the longest time between reads within a cycle."""

    max_age = math.inf

    async def _read_results(self, conn: Connection, last: _Results, keys: list[str] | None) -> _Results:
        position = await read_position(conn, self._id)
        version = (position.cycle, keys)
        if version == last.version and time.monotonic() - last.read_at < self.max_age:
            return replace(last, position=position)
        rows = await self._read_rows(conn, position, keys)
        by_key = {key: (key, text) for key, text in rows[:MAX_ROWS]}
        return _Results(position, by_key, len(rows) > MAX_ROWS, version, read_at=time.monotonic())

    @abstractmethod
    async def _read_rows(self, conn: Connection, position: QueryPosition, keys: list[str] | None) -> list[ResultRow]:
        """Return the rows of some keys or all, and one more than fit into a message if there are more."""

    def _compare(self, before: dict[Any, ResultRow], now: _Results) -> ResultChanges:
        rows = [row for key, row in now.rows.items() if before.get(key) != row]
        gone = [key for key in before if key not in now.rows]
        replaced = [*(key for key, _ in rows), *gone]
        return ResultChanges(now.position, rows, replaced=replaced, is_truncated=now.is_truncated)


class CurrentResultReader(KeyedResultReader):
    """Reads the view with the current window of each key of a query that runs on Spark."""

    max_age = _CLOCK_SECONDS

    def __init__(self, database: Database, query_id: int, name: str) -> None:
        super().__init__(database, query_id)
        self._name = name

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


class ViewResultReader(KeyedResultReader):
    """Reads the rows of a materialized view, by their key as text: several columns are a JSON array."""

    async def _read_rows(self, conn: Connection, position: QueryPosition, keys: list[str] | None) -> list[ResultRow]:
        cursor = conn.cursor(row_factory=scalar_row)
        view = await (await cursor.execute(_sql["view_columns"].encode(), {"query": self._id})).fetchone()
        if view is None:
            return []
        columns = [each["name"] for each in view["columns"] if not each["is_hidden"]]
        key_columns = [quote_identifier("t", name).as_string() for name in view["key"]]
        texts = [f"{column}::text" for column in key_columns]
        statement = fill_placeholders(
            _sql["view_rows"],
            id=int(self._id),
            key=texts[0] if len(texts) == 1 else f"array_to_json(ARRAY[{', '.join(texts)}])::text",
            columns=", ".join(quote_identifier("t", name).as_string() for name in columns),
            order=", ".join(key_columns),
        )
        params = {"keys": keys, "limit": MAX_ROWS + 1}
        rows: list[ResultRow] = await (await conn.execute(statement.encode(), params)).fetchall()
        return rows


class _StateVersion(NamedTuple):
    rows: int
    checksum: Decimal | None
    updated_at: datetime | None


class ClientResultReader(ComparingReader):
    """Reads the state of a query that clients compute. A read fetches only the rows that have changed since the last.

    Each read that finds a change counts as a cycle.
    """

    async def _read_results(self, conn: Connection, last: _Results, keys: list[str] | None) -> _Results:
        version = await self._read_version(conn)
        if (version, keys) == last.version:
            return last
        params = {"query": self._id, "keys": keys, "limit": MAX_ROWS + 1}
        found = await (await conn.execute(_client_sql["row_versions"].encode(), params, binary=True)).fetchall()
        versions: dict[_StateId, int] = {(partition, key): changed for partition, key, changed in found[:MAX_ROWS]}
        rows = {id: row for id, row in last.rows.items() if versions.get(id) == last.row_versions[id]}
        rows |= await self._fetch_rows(conn, [id for id in versions if id not in rows])
        position = last.position._replace(cycle=last.position.cycle + 1, committed_at=version.updated_at)
        return _Results(position, rows, len(found) > MAX_ROWS, (version, keys), versions)

    async def _read_version(self, conn: Connection) -> _StateVersion:
        cursor = conn.cursor(row_factory=class_row(_StateVersion))
        version = await (await cursor.execute(_client_sql["version"].encode(), {"query": self._id})).fetchone()
        if version is None:
            raise NotFound("the query was deleted")
        return version

    async def _fetch_rows(self, conn: Connection, ids: Sequence[_StateId]) -> dict[_StateId, ResultRow]:
        if not ids:
            return {}
        params = {
            "query": self._id,
            "partitions": int_array(partition for partition, _ in ids),
            "state_keys": [key for _, key in ids],
        }
        rows = await (await conn.execute(_client_sql["rows"].encode(), params)).fetchall()
        return {(partition, state_key): (key, text) for partition, state_key, key, text in rows}

    def _compare(self, before: dict[Any, ResultRow], now: _Results) -> ResultChanges:
        rows = [row for id, row in now.rows.items() if before.get(id) is not row]
        closed = [(key, text.removesuffix(_OPEN) + _CLOSED) for id, (key, text) in before.items() if id not in now.rows]
        return ResultChanges(now.position, rows, closed, is_truncated=now.is_truncated)

"""Results of a query that clients compute: its open state and the changes to it.

The clients commit independently of each other, so no cycle number orders their changes, and a deleted row leaves no
trace. Subscribers therefore get the difference between two reads of the whole state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple, TypeAlias

from psycopg.rows import class_row

from penstock.core.errors import NotFound
from penstock.db.pg_arrays import int_array
from penstock.db.pool import Connection, Database
from penstock.db.statements import Statements
from penstock.server.live.query_results import (
    MAX_ROWS,
    QueryPosition,
    ResultChanges,
    ResultRead,
    ResultRow,
    begin_snapshot,
)

_sql = Statements("penstock.server.live", "client_results.sql")

#: Identifies a row of the state: partition id and state key.
_StateId: TypeAlias = tuple[int, str]
#: The end of a row's JSON, its column is_open, while the row exists and after its deletion.
_OPEN, _CLOSED = "true}", "false}"


@dataclass(frozen=True, slots=True)
class _SnapshotRow:
    """A row of the state as it was at the last read."""

    version: int
    row: ResultRow

    def closed(self) -> ResultRow:
        """Return the row as it is reported after its deletion."""
        key, text = self.row
        return key, text.removesuffix(_OPEN) + _CLOSED


class _StateVersion(NamedTuple):
    rows: int
    checksum: Decimal | None
    updated_at: datetime | None


class ClientQueryResults:
    """Reads the state of a client query. A read fetches only the rows that have changed since the last one."""

    def __init__(self, database: Database, query_id: int) -> None:
        self._database = database
        self._id = query_id
        #: The version of the state that was read last, and the keys that were read.
        self._version: tuple[_StateVersion, list[str] | None] | None = None
        self._position = QueryPosition(
            has_tables=True, has_sessions=False, current_view=None, cycle=0, committed_at=None
        )
        self._rows_by_id: dict[_StateId, _SnapshotRow] = {}
        self._is_truncated = False

    async def read(
        self, since: QueryPosition | None, resumed: Iterable[int], *, snapshot: bool, keys: frozenset[str] | None
    ) -> ResultRead:
        """See :class:`~penstock.server.live.query_results.LiveResultReader`. A resumed subscriber gets a snapshot."""
        followed = None if keys is None else sorted(keys)
        before, changes = self._rows_by_id, None
        state: tuple[dict[_StateId, _SnapshotRow], bool] | None = None
        async with self._database.connection() as conn, conn.transaction():
            await begin_snapshot(conn)
            version = await self._read_version(conn)
            if (version, followed) != self._version:
                state = await self._read_state(conn, followed)
        if state is not None:
            # Only after the whole read has succeeded: else the next one would miss these changes.
            self._rows_by_id, self._is_truncated = state
            self._version = (version, followed)
            self._position = self._position._replace(cycle=self._position.cycle + 1, committed_at=version.updated_at)
            changes = self._changes(before)
        everything = None
        if snapshot or any(True for _ in resumed):
            rows = [row.row for row in self._rows_by_id.values()]
            everything = ResultChanges(self._position, rows, is_snapshot=True, is_truncated=self._is_truncated)
        return ResultRead(self._position, changes if since is not None else None, {}, everything, False)

    async def _read_version(self, conn: Connection) -> _StateVersion:
        cursor = conn.cursor(row_factory=class_row(_StateVersion))
        version = await (await cursor.execute(_sql["version"].encode(), {"query": self._id})).fetchone()
        if version is None:
            raise NotFound("the query was deleted")
        return version

    async def _read_state(self, conn: Connection, keys: list[str] | None) -> tuple[dict[_StateId, _SnapshotRow], bool]:
        """Return the rows and whether there are more. Fetch only rows that have changed since the last read."""
        params = {"query": self._id, "keys": keys, "limit": MAX_ROWS + 1}
        rows = await (await conn.execute(_sql["row_versions"].encode(), params, binary=True)).fetchall()
        versions: dict[_StateId, int] = {(partition, key): updated_at for partition, key, updated_at in rows[:MAX_ROWS]}
        unchanged = {id: row for id, row in self._rows_by_id.items() if versions.get(id) == row.version}
        new = await self._fetch_rows(conn, [id for id in versions if id not in unchanged])
        return unchanged | {id: _SnapshotRow(versions[id], row) for id, row in new.items()}, len(rows) > MAX_ROWS

    def _changes(self, before: dict[_StateId, _SnapshotRow]) -> ResultChanges:
        rows = [row.row for id, row in self._rows_by_id.items() if before.get(id) is not row]
        closed = [row.closed() for id, row in before.items() if id not in self._rows_by_id]
        return ResultChanges(self._position, rows, closed, is_truncated=self._is_truncated)

    async def _fetch_rows(self, conn: Connection, ids: Sequence[_StateId]) -> dict[_StateId, ResultRow]:
        if not ids:
            return {}
        params = {
            "query": self._id,
            "partitions": int_array(partition for partition, _ in ids),
            "state_keys": [key for _, key in ids],
        }
        rows = await (await conn.execute(_sql["rows"].encode(), params)).fetchall()
        return {(partition, state_key): (key, text) for partition, state_key, key, text in rows}

"""Results of a query and their changes, read once per cycle for all subscribers.

Each row has the time of its last write, and a cycle writes after the previous cycle was committed. The changes since a
cycle are therefore the rows written after the commit of that cycle, which the ledger knows. A client that resumes a
stream gets what it missed in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec
from psycopg.rows import class_row, scalar_row

from penstock.core.clock import EPOCH
from penstock.core.errors import NotFound
from penstock.db.pool import Connection, Database
from penstock.db.scalar import fetch_scalar
from penstock.db.statements import Statements, fill_placeholders, quote_identifier
from penstock.server.live.subscriber import LiveMessage

_sql = Statements("penstock.server.live", "query_results.sql")

#: Rows in one message.
MAX_ROWS = 100_000


#: A window: its key, and the whole row as JSON. A plain tuple: one read may return a hundred thousand.
ResultRow: TypeAlias = tuple[str | None, str]


class QueryPosition(NamedTuple):
    """The last committed cycle of a query, and which tables it has."""

    has_tables: bool
    has_sessions: bool
    #: The view with the current window of each key; None if there is none.
    current_view: str | None
    cycle: int
    committed_at: datetime | None


@dataclass(frozen=True)
class ResultChanges:
    """Changes to a query's windows up to a cycle. A snapshot has only ``rows``: all open windows."""

    position: QueryPosition
    rows: Sequence[ResultRow]
    closed: Sequence[ResultRow] = ()
    #: Keys whose open windows are all in ``rows``: merged session windows disappear without a trace.
    replaced: Sequence[str | None] = ()
    is_snapshot: bool = False
    is_truncated: bool = False

    def __bool__(self) -> bool:
        return self.is_snapshot or bool(self.rows or self.closed or self.replaced)

    def for_keys(self, keys: frozenset[str]) -> ResultChanges:
        rows, closed, replaced = self._by_key
        return ResultChanges(
            self.position,
            [row for key in keys for row in rows.get(key, ())],
            [row for key in keys for row in closed.get(key, ())],
            [key for key in keys if key in replaced],
            self.is_snapshot,
            self.is_truncated,
        )

    @cached_property
    def _by_key(
        self,
    ) -> tuple[dict[str | None, list[ResultRow]], dict[str | None, list[ResultRow]], frozenset[str | None]]:
        # Indexed once: there may be many subscribers with a few keys each.
        return _group_by_key(self.rows), _group_by_key(self.closed), frozenset(self.replaced)

    def to_message(self, stream_id: int) -> LiveMessage:
        head = msgspec.json.encode({"cycle": self.position.cycle, "committed_at": self.position.committed_at})
        parts = [head[:-1], b',"rows":[', _join(self.rows), b"]"]
        if not self.is_snapshot:
            parts += [b',"closed":[', _join(self.closed), b"]"]
        if self.replaced:
            parts += [b',"keys":', msgspec.json.encode(self.replaced)]
        event = "snapshot" if self.is_snapshot else "changes"
        return LiveMessage(event, b"".join([*parts, b"}"]), f"{stream_id}-{self.position.cycle}")


def parse_resume_id(stream_id: int, resume_id: str) -> int | None:
    """Return the cycle after which a stream resumes; None if the id is invalid or of another query."""
    given_id, _, cycle = resume_id.rpartition("-")
    is_number = cycle.isascii() and cycle.isdigit() and len(cycle) < 19
    return int(cycle) if is_number and given_id == str(stream_id) else None


@dataclass(frozen=True)
class ResultRead:
    position: QueryPosition
    #: Changes since the previous position.
    changes: ResultChanges | None
    #: Changes since each cycle from which a client resumes.
    missed: Mapping[int, ResultChanges]
    snapshot: ResultChanges | None
    #: Whether the changes since the previous position are unknown, so that all subscribers need the snapshot.
    must_restart: bool


class LiveResultReader(Protocol):
    async def read(
        self, since: QueryPosition | None, resumed: Sequence[int], *, snapshot: bool, keys: frozenset[str] | None
    ) -> ResultRead:
        """Read the changes since a position and since each resumed cycle, and a snapshot if one is needed."""
        ...


class QueryResultReader:
    """Reads the windows of a query that runs on Spark. Each read is one transaction with one snapshot."""

    def __init__(self, database: Database, query_id: int, name: str) -> None:
        self._database = database
        self._id = query_id
        self._view = quote_identifier(name).as_string()

    async def read(
        self, since: QueryPosition | None, resumed: Sequence[int], *, snapshot: bool, keys: frozenset[str] | None
    ) -> ResultRead:
        """See :class:`LiveResultReader`."""
        followed = None if keys is None else sorted(keys)
        async with self._database.connection() as conn, conn.transaction():
            await begin_snapshot(conn)
            position = await read_position(conn, self._id)
            changes, must_restart = None, False
            if since is not None and position.cycle != since.cycle:
                if _is_after(position, since):
                    changes = await self._read_changes(conn, position, since.committed_at, followed)
                else:
                    must_restart = True
            missed: dict[int, ResultChanges] = {}
            for cycle in resumed:
                committed_at = await self._find_commit(conn, cycle)
                if committed_at is not None and cycle <= position.cycle:
                    missed[cycle] = await self._read_changes(conn, position, committed_at, followed)
            snapshot = snapshot or must_restart or any(cycle not in missed for cycle in resumed)
            everything = await self._read_snapshot(conn, position, followed) if snapshot else None
        return ResultRead(position, changes, missed, everything, must_restart)

    async def _find_commit(self, conn: Connection, cycle: int) -> datetime | None:
        params = {"query": self._id, "cycle": cycle}
        committed_at: datetime | None = await fetch_scalar(conn, _sql["commit"].encode(), params)
        return committed_at

    async def _read_snapshot(self, conn: Connection, position: QueryPosition, keys: list[str] | None) -> ResultChanges:
        rows = await self._read_rows(conn, "snapshot", keys=keys) if position.has_tables else []
        return ResultChanges(position, rows[:MAX_ROWS], is_snapshot=True, is_truncated=len(rows) > MAX_ROWS)

    async def _read_changes(
        self, conn: Connection, position: QueryPosition, since: datetime | None, keys: list[str] | None
    ) -> ResultChanges:
        if not position.has_tables:
            return ResultChanges(position, [])
        since = since or EPOCH
        closed = await self._read_rows(conn, "closed", since=since, keys=keys)
        replaced: list[str | None] = []
        if position.has_sessions:
            cursor = conn.cursor(row_factory=scalar_row)
            changed = await (await cursor.execute(self._statement("changed_keys"), {"since": since})).fetchall()
            replaced = [key for key in changed if keys is None or key in keys]
            rows = await self._read_rows(conn, "open_of_keys", keys=[key or "" for key in replaced])
        else:
            rows = await self._read_rows(conn, "changed", since=since, keys=keys)
        is_truncated = len(rows) > MAX_ROWS or len(closed) > MAX_ROWS
        return ResultChanges(position, rows[:MAX_ROWS], closed[:MAX_ROWS], replaced, is_truncated=is_truncated)

    async def _read_rows(self, conn: Connection, name: str, **params: Any) -> list[ResultRow]:
        rows: list[ResultRow] = await (
            await conn.execute(self._statement(name), {**params, "limit": MAX_ROWS + 1})
        ).fetchall()
        return rows

    def _statement(self, name: str) -> bytes:
        return fill_placeholders(_sql[name], view=self._view, id=int(self._id)).encode()


async def read_position(conn: Connection, query_id: int) -> QueryPosition:
    cursor = conn.cursor(row_factory=class_row(QueryPosition))
    position = await (await cursor.execute(_sql["position"].encode(), {"query": query_id})).fetchone()
    if position is None:
        raise NotFound("the query was deleted")
    return position


async def begin_snapshot(conn: Connection) -> None:
    """Configure a transaction that reads whole tables at one point in time."""
    await conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    await conn.execute(_sql["allow_scans"].encode())


def _is_after(position: QueryPosition, since: QueryPosition) -> bool:
    """Return whether commit times increase. If the clock was set back, the changes since then are unknown."""
    return since.committed_at is None or (
        position.committed_at is not None and position.committed_at > since.committed_at
    )


def _group_by_key(rows: Sequence[ResultRow]) -> dict[str | None, list[ResultRow]]:
    groups: dict[str | None, list[ResultRow]] = {}
    for row in rows:
        key, _ = row
        groups.setdefault(key, []).append(row)
    return groups


def _join(rows: Sequence[ResultRow]) -> bytes:
    return ",".join([json for _, json in rows]).encode()

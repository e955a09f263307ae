"""What a query's results are now and how they change: read once for each cycle, however many follow it.

Rows carry when they were last written, and each cycle writes after the one before it was committed. So what has changed
since a cycle is what was written after that cycle's commit, which the ledger knows; a reader that was away can be told
the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

import msgspec

from penstock.core.errors import NotFound
from penstock.core.timestamps import EPOCH
from penstock.db.pool import Connection, Database
from penstock.db.statements import Statements, filled, quoted
from penstock.server.live.subscriber import Frame

_sql = Statements("penstock.server.live", "results.sql")

#: A message has so many rows at the most.
MOST_ROWS = 100_000


#: Key and JSON.
Row = tuple[str | None, str]


@dataclass(frozen=True)
class Head:
    """How far a query is."""

    has_tables: bool
    has_sessions: bool
    cycle: int
    committed_at: datetime | None


@dataclass(frozen=True)
class Changes:
    """What happened to a query's windows up to a cycle. A snapshot has only rows, which are all there are."""

    head: Head
    rows: Sequence[Row]
    closed: Sequence[Row] = ()
    #: Of these keys, the rows are all that is open: sessions grow and grow together, and leave nothing behind.
    replaced: Sequence[str | None] = ()
    is_snapshot: bool = False
    is_cut: bool = False

    def __bool__(self) -> bool:
        return self.is_snapshot or bool(self.rows or self.closed or self.replaced)

    def of(self, keys: frozenset[str]) -> Changes:
        """What concerns some keys; looked up, for there may be many readers with a few keys each."""
        rows, closed, replaced = self._by_key
        return Changes(
            self.head,
            [row for key in keys for row in rows.get(key, ())],
            [row for key in keys for row in closed.get(key, ())],
            [key for key in keys if key in replaced],
            self.is_snapshot,
            self.is_cut,
        )

    @cached_property
    def _by_key(self) -> tuple[dict[str | None, list[Row]], dict[str | None, list[Row]], frozenset[str | None]]:
        return _grouped(self.rows), _grouped(self.closed), frozenset(self.replaced)

    def frame(self, query_id: int) -> Frame:
        """As a message."""
        head = msgspec.json.encode({"cycle": self.head.cycle, "committed_at": self.head.committed_at})
        parts = [head[:-1], b',"rows":[', _joined(self.rows), b"]"]
        if not self.is_snapshot:
            parts += [b',"closed":[', _joined(self.closed), b"]"]
        if self.replaced:
            parts += [b',"keys":', msgspec.json.encode(self.replaced)]
        event = "snapshot" if self.is_snapshot else "changes"
        return Frame(event, b"".join([*parts, b"}"]), resume_id(query_id, self.head.cycle))


def resume_id(query_id: int, cycle: int) -> str:
    """Where a stream can be taken up: the cycle, and of which query, should another get its name."""
    return f"{query_id}-{cycle}"


def resumed_cycle(query_id: int, given: str) -> int | None:
    """The cycle after which a reader wants to go on; None, if that is of no use."""
    of, _, cycle = given.rpartition("-")
    return int(cycle) if cycle.isascii() and cycle.isdigit() and len(cycle) < 19 and of == str(query_id) else None


class Readable(Protocol):
    """Where the results of a query are read."""

    async def read(
        self, since: Head | None, resumed: Iterable[int], *, snapshot: bool, keys: frozenset[str] | None
    ) -> Moment:
        """Everything that readers need now: what changed since a head and since each of some cycles, and a snapshot."""
        ...


class Results:
    """Reads a query's windows. Each read is one transaction, and sees one moment."""

    def __init__(self, database: Database, query_id: int, name: str) -> None:
        self._database = database
        self._id = query_id
        self._view = quoted(name).as_string()

    async def read(
        self, since: Head | None, resumed: Iterable[int], *, snapshot: bool, keys: frozenset[str] | None
    ) -> Moment:
        """As :class:`Readable` says."""
        async with self._database.connection() as conn, conn.transaction():
            await conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            await conn.execute(_sql["look_closely"])
            row = await (await conn.execute(_sql["head"], {"query": self._id})).fetchone()
            if row is None:
                raise NotFound("the query was deleted")
            head = Head(row[0], row[1], row[2] or 0, row[3])
            wanted = None if keys is None else sorted(keys)
            changes, begins_anew = None, False
            if since is not None and head.cycle != since.cycle:
                if _follows(head, since):
                    changes = await self._changes(conn, head, since.committed_at, wanted)
                else:
                    begins_anew = True
            caught_up: dict[int, Changes] = {}
            for cycle in resumed:
                found = await (await conn.execute(_sql["cycle"], {"query": self._id, "cycle": cycle})).fetchone()
                if found is not None and cycle <= head.cycle:
                    caught_up[cycle] = await self._changes(conn, head, found[0], wanted)
            snapshot = snapshot or begins_anew or any(cycle not in caught_up for cycle in resumed)
            whole = await self._snapshot(conn, head, wanted) if snapshot else None
        return Moment(head, changes, caught_up, whole, begins_anew)

    async def _snapshot(self, conn: Connection, head: Head, keys: list[str] | None) -> Changes:
        rows = await self._rows(conn, "snapshot", keys=keys) if head.has_tables else []
        return Changes(head, rows[:MOST_ROWS], is_snapshot=True, is_cut=len(rows) > MOST_ROWS)

    async def _changes(self, conn: Connection, head: Head, since: datetime | None, keys: list[str] | None) -> Changes:
        if not head.has_tables:
            return Changes(head, [])
        since = since or EPOCH
        closed = await self._rows(conn, "closed", since=since, keys=keys)
        replaced: list[str | None] = []
        if head.has_sessions:
            touched = await (await conn.execute(self._statement("touched"), {"since": since})).fetchall()
            replaced = [key for (key,) in touched if keys is None or key in keys]
            rows = await self._rows(conn, "open_of", keys=[key or "" for key in replaced])
        else:
            rows = await self._rows(conn, "changed", since=since, keys=keys)
        is_cut = len(rows) > MOST_ROWS or len(closed) > MOST_ROWS
        return Changes(head, rows[:MOST_ROWS], closed[:MOST_ROWS], replaced, is_cut=is_cut)

    async def _rows(self, conn: Connection, name: str, **params: Any) -> list[Row]:
        found: list[Row] = await (
            await conn.execute(self._statement(name), {**params, "most": MOST_ROWS + 1})
        ).fetchall()
        return found

    def _statement(self, name: str) -> bytes:
        return filled(_sql[name], view=self._view, id=int(self._id)).encode()


@dataclass(frozen=True)
class Moment:
    """What was read in one go."""

    head: Head
    changes: Changes | None
    caught_up: Mapping[int, Changes]
    snapshot: Changes | None
    #: Whether those who follow need the snapshot too.
    begins_anew: bool


def _follows(head: Head, since: Head) -> bool:
    """Whether time went forward: with a clock that was set back, nobody can say what has changed."""
    return since.committed_at is None or (head.committed_at is not None and head.committed_at > since.committed_at)


def _grouped(rows: Sequence[Row]) -> dict[str | None, list[Row]]:
    groups: dict[str | None, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[0], []).append(row)
    return groups


def _joined(rows: Sequence[Row]) -> bytes:
    return ",".join([text for _, text in rows]).encode()

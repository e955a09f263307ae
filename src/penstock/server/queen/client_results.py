"""The results of a query that clients compute for themselves: its open state, and how that changes.

Its workers commit on their own, so no order of cycles says what is new, and what is deleted leaves nothing behind.
Whoever follows such a query is told the difference between two looks at the whole of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from penstock.core.errors import NotFound
from penstock.db.pg_arrays import numbers
from penstock.db.pool import Connection, Database
from penstock.db.statements import Statements
from penstock.log.notify import Topic
from penstock.server.live.results import MOST_ROWS, Changes, Head, Moment, Row

_sql = Statements("penstock.server.live", "results.sql")

#: A row of the state: its partition, and its key there.
_Place: TypeAlias = tuple[int, str]
#: How the text of a row ends, as the statement has it, and how that of one that is gone does.
_OPEN, _CLOSED = "true}", "false}"


def shared_cycles_of(query_id: int) -> Topic:
    """The cycles that the workers of such a query commit over this process."""
    return f"shared cycles {query_id}"


@dataclass(frozen=True, slots=True)
class _Seen:
    """A row as it was at the last look."""

    version: int
    row: Row

    def closed(self) -> Row:
        """What is said of it when it is gone."""
        key, text = self.row
        return key, text.removesuffix(_OPEN) + _CLOSED


class SharedResults:
    """Reads the state of such a query: which rows there are, if something has changed, and of those what is new."""

    def __init__(self, database: Database, query_id: int) -> None:
        self._database = database
        self._id = query_id
        self._mark: Any = None
        self._head = Head(True, False, 0, None)
        self._seen: dict[_Place, _Seen] = {}
        self._is_cut = False

    async def read(
        self, since: Head | None, resumed: Iterable[int], *, snapshot: bool, keys: frozenset[str] | None
    ) -> Moment:
        """As :class:`~penstock.server.live.results.Readable` says; who comes back is given a snapshot."""
        wanted = None if keys is None else sorted(keys)
        before, changes = self._seen, None
        looked: tuple[dict[_Place, _Seen], bool] | None = None
        async with self._database.connection() as conn, conn.transaction():
            await conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            await conn.execute(_sql["look_closely"])
            found = await (await conn.execute(_sql["shared_mark"], {"query": self._id})).fetchone()
            if found is None:
                raise NotFound("the query was deleted")
            if (*found, wanted) != self._mark:
                looked = await self._look(conn, wanted)
        if looked is not None:
            # Not before the read is over: whoever could not be told now is told the next time.
            self._seen, self._is_cut = looked
            self._mark = (*found, wanted)
            self._head = Head(True, False, self._head.cycle + 1, found[2])
            changes = self._changes(before)
        whole = None
        if snapshot or any(True for _ in resumed):
            rows = [seen.row for seen in self._seen.values()]
            whole = Changes(self._head, rows, is_snapshot=True, is_cut=self._is_cut)
        return Moment(self._head, changes if since is not None else None, {}, whole, False)

    async def _look(self, conn: Connection, keys: list[str] | None) -> tuple[dict[_Place, _Seen], bool]:
        """What there is, and whether that is not all of it; read anew is only what has changed since the last look."""
        params = {"query": self._id, "keys": keys, "most": MOST_ROWS + 1}
        found = await (await conn.execute(_sql["shared_versions"], params, binary=True)).fetchall()
        versions: dict[_Place, int] = {(partition, key): version for partition, key, version in found[:MOST_ROWS]}
        kept = {place: seen for place, seen in self._seen.items() if versions.get(place) == seen.version}
        new = await self._rows(conn, [place for place in versions if place not in kept])
        return kept | {place: _Seen(versions[place], row) for place, row in new.items()}, len(found) > MOST_ROWS

    def _changes(self, before: dict[_Place, _Seen]) -> Changes:
        rows = [seen.row for place, seen in self._seen.items() if before.get(place) is not seen]
        closed = [seen.closed() for place, seen in before.items() if place not in self._seen]
        return Changes(self._head, rows, closed, is_cut=self._is_cut)

    async def _rows(self, conn: Connection, places: Sequence[_Place]) -> dict[_Place, Row]:
        if not places:
            return {}
        params = {
            "query": self._id,
            "partitions": numbers(partition for partition, _ in places),
            "state_keys": [key for _, key in places],
        }
        found = await (await conn.execute(_sql["shared_rows"], params)).fetchall()
        return {(partition, state_key): (key, text) for partition, state_key, key, text in found}

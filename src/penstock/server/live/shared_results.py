"""The results of a query that clients compute for themselves: its open state, and how that changes.

Its workers commit on their own, so no order of cycles says what is new, and what is deleted leaves nothing behind.
Whoever follows such a query is told the difference between two looks at the whole of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.core.errors import NotFound
from penstock.db.pool import Connection, Database
from penstock.db.statements import Statements
from penstock.log.signals import Topic
from penstock.server.live.results import MOST_ROWS, Changes, Head, Moment, Row

_sql = Statements("penstock.server", "live.sql")


def shared_cycles_of(query_id: int) -> Topic:
    """The cycles that the workers of such a query commit over this process."""
    return f"shared cycles {query_id}"


class SharedResults:
    """Reads the state of such a query, whole, when something of it has changed."""

    def __init__(self, database: Database, query_id: int) -> None:
        self._database = database
        self._id = query_id
        self._mark: Any = None
        self._head = Head(True, False, 0, None)
        #: The rows of the last look by partition and key of the state: what is open, and what it will be once closed.
        self._seen: dict[tuple[int, str], tuple[Row, Row]] = {}
        self._is_cut = False

    async def read(
        self, since: Head | None, resumed: Iterable[int], *, snapshot: bool, keys: frozenset[str] | None
    ) -> Moment:
        """As :class:`~penstock.server.live.results.Readable` says; who comes back is given a snapshot."""
        wanted = None if keys is None else sorted(keys)
        changes = None
        async with self._database.connection() as conn, conn.transaction():
            await conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            await conn.execute(_sql["look_closely"])
            found = await (await conn.execute(_sql["shared_mark"], {"query": self._id})).fetchone()
            if found is None:
                raise NotFound("the query was deleted")
            mark = (*found, wanted)
            if mark != self._mark:
                before = self._seen
                await self._look(conn, wanted)
                self._head = Head(True, False, self._head.cycle + 1, found[2])
                self._mark = mark
                changes = self._changes(before)
        whole = None
        if snapshot or any(True for _ in resumed):
            whole = Changes(self._head, [row for row, _ in self._seen.values()], is_snapshot=True, is_cut=self._is_cut)
        return Moment(self._head, changes if since is not None else None, {}, whole, False)

    async def _look(self, conn: Connection, keys: list[str] | None) -> None:
        params = {"query": self._id, "keys": keys, "most": MOST_ROWS + 1}
        rows = await (await conn.execute(_sql["shared_rows"], params)).fetchall()
        self._is_cut = len(rows) > MOST_ROWS
        self._seen = {
            (partition_id, state_key): ((key, is_open), (key, is_closed))
            for partition_id, state_key, key, is_open, is_closed in rows[:MOST_ROWS]
        }

    def _changes(self, before: dict[tuple[int, str], tuple[Row, Row]]) -> Changes:
        rows = [now[0] for place, now in self._seen.items() if before.get(place) != now]
        closed = [then[1] for place, then in before.items() if place not in self._seen]
        return Changes(self._head, rows, closed, is_cut=self._is_cut)

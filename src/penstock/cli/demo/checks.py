"""Whether it adds up: what the queries say of each window, against what was sent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import errors, sql
from psycopg.rows import dict_row

from penstock.cli.demo.expected import KEPT, Books
from penstock.core.timestamps import EPOCH

if TYPE_CHECKING:
    from penstock.db.pool import Connection

_CLOSED = sql.SQL(
    "SELECT key, window_start, updated_at, {columns} FROM penstock_history.{query}"
    " WHERE NOT is_open AND updated_at > %s"
)
_ALL = sql.SQL("SELECT key, window_start, updated_at, {columns} FROM penstock_history.{query}")


@dataclass(frozen=True, slots=True)
class Check:
    """Something that has to be so."""

    what: str
    expected: str
    found: str

    @property
    def holds(self) -> bool:
        """Whether it is so."""
        return self.expected == self.found


class Auditor:
    """Compares windows when they have closed, and in the end those that are open too."""

    def __init__(self, books: Books) -> None:
        self.compared = 0
        self._books = books
        self._wrong: list[tuple[str, str]] = []
        self._seen = dict.fromkeys(KEPT, EPOCH)

    def wrong(self, foreign: Collection[str] = ()) -> list[str]:
        """Windows that are not what was sent, but those of queues into which somebody else has pushed too."""
        return [said for query, said in self._wrong if KEPT[query].queue not in foreign]

    async def look(self, conn: Connection) -> None:
        """Compare the windows that have closed since the last time."""
        for query in KEPT:
            rows = await self._rows(conn, query, _CLOSED, [self._seen[query]])
            self._seen[query] = max((row["updated_at"] for row in rows), default=self._seen[query])
            self._compare(query, rows)

    async def finish(self, conn: Connection, foreign: Collection[str]) -> Check:
        """Compare everything that is left, and say what came of it."""
        await self.look(conn)
        missing = 0
        for query, kept in KEPT.items():
            self._compare(query, await self._rows(conn, query, _ALL, []))
            missing += 0 if kept.queue in foreign else len(self._books.places(query))
        wrong = len(self.wrong(foreign))
        told = f"{self.compared:,}"
        found = told + (f", {wrong:,} of them wrong" if wrong else "") + (f", {missing:,} missing" if missing else "")
        return Check("windows as Python has them", told, found)

    def _compare(self, query: str, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            place = row["key"], round(row["window_start"].timestamp() * 1000)
            expected = self._books.expected(query, place)
            if expected is None:
                continue  # compared before, or none of ours
            found = {column: row[column] for column in KEPT[query].columns}
            self.compared += 1
            if found != expected:
                said = f"{query} {place[0]} {row['window_start']:%H:%M:%S}: {found} instead of {expected}"
                self._wrong.append((query, said))
            self._books.forget(query, place)

    async def _rows(
        self, conn: Connection, query: str, statement: sql.SQL, parameters: Sequence[object]
    ) -> list[dict[str, Any]]:
        columns = sql.SQL(", ").join(map(sql.Identifier, KEPT[query].columns))
        text = statement.format(columns=columns, query=sql.Identifier(query))
        try:
            async with conn.cursor(row_factory=dict_row) as cursor:
                await cursor.execute(text, parameters)
                return await cursor.fetchall()
        except errors.UndefinedTable:
            return []  # the query has not seen an event yet

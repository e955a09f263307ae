"""What there is to see: the live numbers, out of the views that anybody may read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from psycopg import errors

from penstock.cli.demo.expected import KEPT
from penstock.db.statements import Statements

if TYPE_CHECKING:
    from penstock.db.pool import Connection

QUEUES = ("clicks", "orders", "readings", "calls", "calls.allowed", "sites.5s", "revenue.10s", "sensors.5s", "alerts")
QUERIES = ("sites", "online", "pages", "revenue", "sensors", "partner")
_MOST = 6

_sql = Statements("penstock.cli.demo", "queries.sql")


@dataclass(frozen=True, slots=True)
class QueryNumbers:
    """A query in numbers."""

    name: str
    cycles: int
    events: int
    windows: int
    late: int
    dead: int
    lag: int


@dataclass(slots=True)
class Look:
    """Everything at one moment."""

    queries: dict[str, QueryNumbers] = field(default_factory=dict)
    appended: dict[str, int] = field(default_factory=dict)
    online: Sequence[tuple[str, Any]] = ()
    pages: Sequence[tuple[str, Any]] = ()
    revenue: Sequence[tuple[str, Any]] = ()
    sensors: Sequence[tuple[str, Any]] = ()
    firing: Sequence[str] = ()
    dead_letters: Sequence[tuple[str, int, str]] = ()
    #: Calls that the gate has let through.
    allowed: int = 0
    #: Seconds from the append of an event to its result, lately.
    freshness: float | None = None

    @property
    def waiting(self) -> int:
        """Calls that wait at the gate."""
        return self.queries["partner"].lag if "partner" in self.queries else self.appended.get("calls", 0)

    @property
    def behind(self) -> int:
        """Events that the queries with windows have yet to read."""
        return sum(self.appended.get(kept.queue, 0) - self.numbers(name).events for name, kept in KEPT.items())

    def numbers(self, query: str) -> QueryNumbers:
        """A query in numbers, also of one that has not begun."""
        return self.queries.get(query) or QueryNumbers(query, 0, 0, 0, 0, 0, 0)


async def look(conn: Connection) -> Look:
    """Look at everything."""
    found = Look()
    found.queries = {row[0]: QueryNumbers(*row) for row in await _rows(conn, "queries")}
    found.appended = dict(await _rows(conn, "appended"))
    found.online = await _rows(conn, "online")
    found.pages = await _rows(conn, "pages")
    found.revenue = await _rows(conn, "revenue")
    found.sensors = await _rows(conn, "sensors")
    found.firing = [row[0] for row in await _rows(conn, "firing")]
    found.dead_letters = await _rows(conn, "dead_letters")
    ((found.allowed,),) = await _rows(conn, "gates")
    ((found.freshness,),) = await _rows(conn, "freshness")
    return found


async def there_already(conn: Connection) -> list[str]:
    """Queues and queries of the demonstration's names that are there, and may be somebody's."""
    return [row[0] for row in await _rows(conn, "there_already")]


async def _rows(conn: Connection, name: str) -> list[Any]:
    params = {"names": list(QUERIES), "queues": list(QUEUES), "most": _MOST}
    try:
        return await (await conn.execute(_sql[name], params)).fetchall()
    except errors.UndefinedTable:
        return []  # a query makes its views when it has seen an event

"""The current numbers of the demo, from the public views of the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from psycopg import errors

from penstock.cli.demo.expected import WINDOWED_QUERIES
from penstock.db.pool import Connection
from penstock.db.statements import Statements

QUEUES = ("clicks", "orders", "readings", "calls", "calls.allowed", "sites.5s", "revenue.10s", "sensors.5s", "alerts")
QUERIES = (*WINDOWED_QUERIES, "partner")
_PARAMETERS = {"names": list(QUERIES), "queues": list(QUEUES), "limit": 6}

_sql = Statements("penstock.cli.demo", "snapshot.sql")


class QueryCounters(NamedTuple):
    cycles: int = 0
    events: int = 0
    dead: int = 0
    lag: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The numbers at one moment."""

    queries: Mapping[str, QueryCounters]
    appended: Mapping[str, int]
    #: Pairs of key and value: the largest ones of each query.
    online: Sequence[tuple[str, Any]]
    pages: Sequence[tuple[str, Any]]
    revenue: Sequence[tuple[str, Any]]
    sensors: Sequence[tuple[str, Any]]
    #: Pairs of rule and key.
    firing: Sequence[tuple[str, str]]
    #: Pairs of group and count.
    dead_letters: Sequence[tuple[str, int]]
    #: Calls that the gate has let through.
    allowed: int
    #: Seconds from the append of an event to its result.
    freshness: float | None

    @property
    def waiting(self) -> int:
        """Calls that wait at the gate."""
        return self.queries["partner"].lag if "partner" in self.queries else self.appended.get("calls", 0)

    @property
    def behind(self) -> int:
        """Events that the queries with windows have not read yet."""
        return sum(
            self.appended.get(query.queue, 0) - self.query(name).events for name, query in WINDOWED_QUERIES.items()
        )

    def query(self, name: str) -> QueryCounters:
        return self.queries.get(name, QueryCounters())


async def read_snapshot(conn: Connection) -> Snapshot:
    queries = {name: QueryCounters(*counters) for name, *counters in await _rows(conn, "queries")}
    lists = {
        name: await _rows(conn, name) for name in ("online", "pages", "revenue", "sensors", "firing", "dead_letters")
    }
    ((allowed,),) = await _rows(conn, "gates")
    ((freshness,),) = await _rows(conn, "freshness")
    return Snapshot(queries, dict(await _rows(conn, "appended")), **lists, allowed=allowed, freshness=freshness)


async def existing_names(conn: Connection) -> list[str]:
    """Return the queues and queries that exist already and have a name of the demo's."""
    return [name for (name,) in await _rows(conn, "existing")]


async def _rows(conn: Connection, name: str) -> list[Any]:
    try:
        return await (await conn.execute(_sql[name], _PARAMETERS)).fetchall()
    except errors.UndefinedTable:
        return []  # a query creates its views with its first event

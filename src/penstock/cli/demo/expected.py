"""The results that the queries must return: counted in Python from the events pushed, and compared window by window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from psycopg import errors, sql
from psycopg.rows import dict_row

from penstock.cli.demo.demo_output import Check
from penstock.cli.demo.traffic import VALUE_FIELDS
from penstock.core.clock import EPOCH
from penstock.db.pool import Connection

_RESULTS = sql.SQL(
    "SELECT key, window_start, updated_at, {columns} FROM penstock_history.{query}"
    " WHERE updated_at > %(since)s AND (%(with_open)s OR NOT is_open)"
)


class ExpectedQuery(NamedTuple):
    """A query of examples/analytics/streams.py, and the columns of its result to compare."""

    queue: str
    size_ms: int
    slide_ms: int
    key_field: str
    columns: tuple[str, ...]

    def window_starts(self, at_ms: int) -> range:
        """Return the starts of the windows that contain a time."""
        return range(at_ms // self.slide_ms * self.slide_ms, at_ms - self.size_ms, -self.slide_ms)


WINDOWED_QUERIES = {
    "sites": ExpectedQuery("clicks", 5_000, 5_000, "site", ("views", "users")),
    "online": ExpectedQuery("clicks", 60_000, 10_000, "site", ("users",)),
    "pages": ExpectedQuery("clicks", 120_000, 20_000, "url", ("views",)),
    "revenue": ExpectedQuery("orders", 10_000, 10_000, "customer", ("orders", "revenue", "largest")),
    "sensors": ExpectedQuery("readings", 5_000, 5_000, "sensor", ("count", "min", "max", "alerts")),
}


@dataclass(slots=True)
class _Window:
    count: int = 0
    users: set[str] = field(default_factory=set)
    values: list[Decimal] = field(default_factory=list)


_COLUMNS: dict[str, Callable[[_Window], object]] = {
    "views": lambda window: window.count,
    "users": lambda window: len(window.users),
    "orders": lambda window: window.count,
    "revenue": lambda window: sum(window.values),
    "largest": lambda window: max(window.values),
    "count": lambda window: window.count,
    "min": lambda window: min(window.values),
    "max": lambda window: max(window.values),
    "alerts": lambda window: sum(value > 80 for value in window.values),
}


class ExpectedResults:
    """Counts the events pushed, and compares the windows of the queries with them."""

    def __init__(self) -> None:
        #: Events pushed and invalid events, by queue.
        self.pushed: Counter[str] = Counter()
        self.invalid: Counter[str] = Counter()
        self.revenue = Decimal(0)
        self.compared = 0
        #: Windows with another result than expected, as pairs of queue and message.
        self.wrong: list[tuple[str, str]] = []
        #: Windows to compare, by key and start in milliseconds.
        self._windows: dict[str, dict[tuple[str, int], _Window]] = {query: {} for query in WINDOWED_QUERIES}
        self._since = dict.fromkeys(WINDOWED_QUERIES, EPOCH)

    def add(self, queue: str, events: Iterable[dict[str, Any]]) -> None:
        """Count events that a queue has accepted."""
        queries = [(name, query) for name, query in WINDOWED_QUERIES.items() if query.queue == queue]
        for event in events:
            data = event["data"]
            value = data.get(VALUE_FIELDS.get(queue))
            self.pushed[queue] += 1
            if isinstance(value, str):
                self.invalid[queue] += 1
                continue
            if queue == "orders":
                self.revenue += Decimal(str(value))
            for name, query in queries:
                for start in query.window_starts(data["at"]):
                    window = self._windows[name].setdefault((data[query.key_field], start), _Window())
                    window.count += 1
                    if value is None:
                        window.users.add(data["user"])
                    else:
                        window.values.append(Decimal(str(value)))

    async def compare(self, conn: Connection, *, with_open: bool = False) -> None:
        """Compare the windows that have closed since the last call, or all that were not compared yet."""
        for name, query in WINDOWED_QUERIES.items():
            columns = sql.SQL(", ").join(map(sql.Identifier, query.columns))
            statement = _RESULTS.format(columns=columns, query=sql.Identifier(name))
            since = EPOCH if with_open else self._since[name]
            try:
                async with conn.cursor(row_factory=dict_row) as cursor:
                    rows = await (await cursor.execute(statement, {"since": since, "with_open": with_open})).fetchall()
            except errors.UndefinedTable:
                continue  # the query has not read an event yet
            for row in rows:
                self._since[name] = max(self._since[name], row["updated_at"])
                self._compare_row(name, query, row)

    def _compare_row(self, name: str, query: ExpectedQuery, row: dict[str, Any]) -> None:
        window = self._windows[name].pop((row["key"], round(row["window_start"].timestamp() * 1000)), None)
        if window is None:
            return  # compared before, or of events that somebody else has pushed
        self.compared += 1
        expected = {column: _COLUMNS[column](window) for column in query.columns}
        found = {column: row[column] for column in query.columns}
        if found != expected:
            message = f"{name} {row['key']} {row['window_start']:%H:%M:%S}: {found} instead of {expected}"
            self.wrong.append((query.queue, message))

    async def finish(self, conn: Connection, foreign: Collection[str]) -> Check:
        """Compare all windows that are left. Queues with events of others (``foreign``) are not checked."""
        await self.compare(conn, with_open=True)
        wrong = sum(queue not in foreign for queue, _ in self.wrong)
        missing = sum(
            len(self._windows[name]) for name, query in WINDOWED_QUERIES.items() if query.queue not in foreign
        )
        found = (
            f"{self.compared:,}"
            + (f", {wrong:,} wrong" if wrong else "")
            + (f", {missing:,} missing" if missing else "")
        )
        return Check("windows as computed in Python", f"{self.compared:,}", found)

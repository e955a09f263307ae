"""The open windows of a query: columns, sorted rows, totals, and the recent values of each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from psycopg import sql
from psycopg.rows import dict_row

from penstock.console.data.text_search import like_pattern
from penstock.db.pool import Connection, Database
from penstock.db.statements import Statements, fill_placeholders, quote_identifier

_sql = Statements("penstock.console.data", "open_windows.sql")

#: The columns that the view of every query has.
_COMMON_COLUMNS = ("key", "window_start", "window_end", "updated_at")
_NUMERIC_TYPES = ("bigint", "integer", "numeric", "double precision", "real", "smallint")
#: Aggregates whose sum over all keys is meaningful. Distinct counts are not: several keys may have a value.
_ADDITIVE = ("count", "count_if", "sum")
#: Number of closed windows in the history of a key.
_HISTORY_WINDOWS = 24


class WindowColumn(NamedTuple):
    """A column of a query's result."""

    name: str
    is_number: bool


@dataclass(frozen=True, slots=True)
class WindowedQuery:
    id: int
    name: str
    description: tuple[str, ...]
    #: The view with the current window of each key. A query that an earlier version started has none.
    current_view: str | None = None

    def is_additive(self, column: str) -> bool:
        """Return whether the sum of a column over all keys is meaningful."""
        for line in self.description:
            label, _, definition = line.partition(": ")
            if label == f"aggregate {column}":
                return definition.partition("(")[0].strip() in _ADDITIVE
        return False

    @property
    def has_overlapping_windows(self) -> bool:
        """Whether an event counts in several windows of a key."""
        windows = [line for line in self.description if line.startswith("window: ")]
        return len(windows) > 1 or any(line.startswith("window: sliding ") for line in windows)


@dataclass(frozen=True, slots=True)
class OpenWindowsRequest:
    """The rows to read and their order. Browsers with equal requests share the reads."""

    query: WindowedQuery
    columns: tuple[WindowColumn, ...]
    sort: str
    is_descending: bool
    search: str
    offset: int
    limit: int
    #: All open windows, or only the current one of each key.
    all_windows: bool = False

    @property
    def number_columns(self) -> list[str]:
        return [column.name for column in self.columns if column.is_number]


class WindowRow(NamedTuple):
    key: str | None
    start: datetime
    end: datetime
    updated_at: datetime
    values: Mapping[str, Any]
    #: The values of the last closed windows of the key, oldest first.
    history: Sequence[float] = ()


@dataclass(frozen=True)
class OpenWindows:
    """The requested rows, with totals over all rows."""

    windows: int
    keys: int
    matching: int
    updated_at: datetime | None
    #: Sum and maximum of each numeric column, exact unless the column is a double.
    sums: Mapping[str, Decimal | float | None]
    largest: Mapping[str, Decimal | float | None]
    rows: Sequence[WindowRow]


async def list_windowed_queries(database: Database) -> list[WindowedQuery]:
    async with database.connection() as conn:
        rows = await (await conn.execute(_sql["queries"])).fetchall()
    return [WindowedQuery(id, name, tuple(description), view) for id, name, description, view in rows]


async def read_columns(database: Database, query: WindowedQuery) -> tuple[WindowColumn, ...]:
    view = sql.Identifier("penstock_live", query.name).as_string()
    async with database.connection() as conn:
        rows = await (await conn.execute(_sql["columns"], {"view": view})).fetchall()
    return tuple(
        WindowColumn(name, column_type in _NUMERIC_TYPES)
        for position, (name, column_type) in enumerate(rows)
        # The second column of a view may repeat the key under the name of its field.
        if name not in _COMMON_COLUMNS and (position, column_type) != (1, "text")
    )


async def read_open_windows(database: Database, request: OpenWindowsRequest) -> OpenWindows:
    async with database.connection() as conn, conn.transaction():
        await conn.execute(_sql["configure_planner"])
        totals_cursor = conn.cursor(row_factory=dict_row)
        totals = await (await totals_cursor.execute(_fill("totals", request), _params(request))).fetchone()
        assert totals is not None  # noqa: S101 - an aggregate has one row
        cursor = await conn.execute(_fill("rows", request), _params(request))
        names = [column.name for column in request.columns]
        rows = [
            WindowRow(key, start, end, updated_at, dict(zip(names, values, strict=True)))
            for key, start, end, updated_at, *values in await cursor.fetchall()
        ]
        history = await _read_history(conn, request, rows)
    numbers = list(enumerate(request.number_columns))
    return OpenWindows(
        totals["windows"],
        totals["keys"],
        totals["matching"],
        totals["updated_at"],
        sums={name: totals[f"sum_{i}"] for i, name in numbers},
        largest={name: totals[f"max_{i}"] for i, name in numbers},
        rows=[row._replace(history=history.get(row.key or "", ())) for row in rows],
    )


async def _read_history(
    conn: Connection, request: OpenWindowsRequest, rows: Sequence[WindowRow]
) -> dict[str, Sequence[float]]:
    """Return the history of the column that the rows are sorted by, or of the first numeric column."""
    numbers = request.number_columns
    column = request.sort if request.sort in numbers else next(iter(numbers), None)
    if column is None or not rows:
        return {}
    length = max(row.end - row.start for row in rows)
    since = max(row.end for row in rows) - length * _HISTORY_WINDOWS
    params = {"since": since, "keys": list({row.key or "" for row in rows})}
    histories = await (await conn.execute(_fill("history", request, column), params)).fetchall()
    return {key or "": [value for value in values if value is not None] for key, values in histories}


def _params(request: OpenWindowsRequest) -> dict[str, Any]:
    return {"limit": request.limit, "offset": request.offset, "search": like_pattern(request.search)}


def _fill(name: str, request: OpenWindowsRequest, column: str = "") -> bytes:
    order = _quote(request.sort) + (" DESC" if request.is_descending else "")
    view = _quote(request.query.name)
    numbers = enumerate(map(_quote, request.number_columns))
    current = f"({fill_placeholders(_sql['current_windows'], view=view)})"
    if request.query.current_view is not None:
        current = f"penstock_live.{_quote(request.query.current_view)}"
    text = fill_placeholders(
        _sql[name],
        aggregates="".join(f", sum(v.{number}) AS sum_{i}, max(v.{number}) AS max_{i}" for i, number in numbers),
        values="".join(f", v.{_quote(selected.name)}" for selected in request.columns),
        matches="v.key ILIKE %(search)s" if request.search else "true",
        order=f"v.{order}",
        source=f"penstock_live.{view}" if request.all_windows else current,
        view=view,
        column=_quote(column),
    )
    return text.encode()


def _quote(name: str) -> str:
    """Quote a name for a statement that takes parameters."""
    return quote_identifier(name).as_string()

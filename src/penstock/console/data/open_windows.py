"""The open windows of a query: its columns, the rows that come first in some order, and how each key went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import sql

from penstock.db.pool import Connection, Database
from penstock.db.statements import Statements, fill_placeholders, quote_identifier

_sql = Statements("penstock.console.data", "open_windows.sql")

#: What every view has.
_OF_EVERY_VIEW = ("key", "window_start", "window_end", "updated_at")
_NUMERIC = ("bigint", "integer", "numeric", "double precision", "real", "smallint")
#: Aggregates of which those of all keys make sense together; who is counted under two keys is counted twice.
_ADDITIVE = ("count", "count_if", "sum", "count_distinct", "approx_distinct")
#: A course goes over so many windows.
_COURSE = 24


@dataclass(frozen=True, slots=True)
class WindowedQuery:
    """A query that has windows."""

    id: int
    name: str
    description: tuple[str, ...]

    def adds_up(self, column: str) -> bool:
        """Whether it makes sense to add a column of all keys."""
        for line in self.description:
            label, _, what = line.partition(": ")
            if label == f"aggregate {column}":
                return what.partition("(")[0].strip() in _ADDITIVE
        return False


@dataclass(frozen=True, slots=True)
class Asked:
    """Which rows, in which order: what browsers that look at the same share."""

    query: WindowedQuery
    columns: tuple[tuple[str, bool], ...]
    sort: str
    is_descending: bool
    search: str
    offset: int
    limit: int
    #: Every open window, or of each key the one that counts now.
    every: bool = False

    @property
    def numbers(self) -> list[str]:
        """The columns that are numbers."""
        return [name for name, is_number in self.columns if is_number]


@dataclass(frozen=True)
class Board:
    """What was found."""

    windows: int
    keys: int
    matching: int
    updated_at: datetime | None
    sums: Mapping[str, float | None]
    largest: Mapping[str, float | None]
    #: Key, window and update, then the columns.
    rows: Sequence[tuple[Any, ...]]
    courses: Mapping[str, Sequence[float]]


async def windowed_queries(database: Database) -> list[WindowedQuery]:
    """All queries that have windows, by name."""
    async with database.connection() as conn:
        rows = await (await conn.execute(_sql["queries"])).fetchall()
    return [WindowedQuery(row[0], row[1], tuple(row[2])) for row in rows]


async def columns_of(database: Database, query: WindowedQuery) -> tuple[tuple[str, bool], ...]:
    """The columns of a query's result, and whether each is a number."""
    view = sql.Identifier("penstock_live", query.name).as_string()
    async with database.connection() as conn:
        rows = await (await conn.execute(_sql["columns"], {"view": view})).fetchall()
    shown = [(name, kind) for name, kind in rows if name not in _OF_EVERY_VIEW]
    # The key may be shown a second time, under the name of the field that it is.
    if shown and rows[1][0] == shown[0][0] and rows[1][1] == "text":
        shown = shown[1:]
    return tuple((name, kind in _NUMERIC) for name, kind in shown)


async def read_board(database: Database, asked: Asked) -> Board:
    """Look at the open windows."""
    async with database.connection() as conn, conn.transaction():
        await conn.execute(_sql["look_closely"])
        numbers = asked.numbers
        found = await (await conn.execute(_filled("totals", asked), _params(asked))).fetchone()
        assert found is not None  # noqa: S101 - an aggregate has one row
        windows, keys, matching, updated_at, *figures = found
        rows = await (await conn.execute(_filled("rows", asked), _params(asked))).fetchall()
        courses = await _courses(conn, asked, rows)
    pairs = list(zip(figures[::2], figures[1::2], strict=True))
    return Board(
        windows,
        keys,
        matching,
        updated_at,
        {name: _float(total) for name, (total, _) in zip(numbers, pairs, strict=True)},
        {name: _float(most) for name, (_, most) in zip(numbers, pairs, strict=True)},
        rows,
        courses,
    )


async def _courses(conn: Connection, asked: Asked, rows: Sequence[tuple[Any, ...]]) -> dict[str, Sequence[float]]:
    column = asked.sort if asked.sort in asked.numbers else next(iter(asked.numbers), None)
    if column is None or not rows:
        return {}
    length = max(end - start for _, start, end, *_ in rows)
    since = max(end for _, _, end, *_ in rows) - length * _COURSE
    params = {"since": since, "keys": list({row[0] or "" for row in rows})}
    found = await (await conn.execute(_filled("courses", asked, column), params)).fetchall()
    return {key or "": [value for value in values if value is not None] for key, values in found}


def _params(asked: Asked) -> dict[str, Any]:
    return {"limit": asked.limit, "offset": asked.offset, "search": f"%{_escaped(asked.search)}%"}


def _filled(name: str, asked: Asked, column: str = "") -> bytes:
    order = _name(asked.sort) + (" DESC" if asked.is_descending else "")
    view = _name(asked.query.name)
    text = fill_placeholders(
        _sql[name],
        sums="".join(f", sum(v.{_name(each)}), max(v.{_name(each)})" for each in asked.numbers),
        values="".join(f", v.{_name(each)}" for each, _ in asked.columns),
        matches="v.key ILIKE %(search)s" if asked.search else "true",
        order=f"v.{order}",
        shown=f"penstock_live.{view}" if asked.every else f"({fill_placeholders(_sql['one_a_key'], view=view)})",
        view=view,
        column=_name(column),
    )
    return text.encode()


def _name(name: str) -> str:
    """A name as part of a statement that takes parameters."""
    return quote_identifier(name).as_string()


def _escaped(search: str) -> str:
    return search.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_").replace("\0", "")


def _float(value: Any) -> float | None:
    return None if value is None else float(value)

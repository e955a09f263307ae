"""Reads the result of a query from its views, as Python values, Arrow or pandas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from msgspec import Raw, Struct
from msgspec.json import Decoder

from penstock.core.errors import InvalidRequest, NotFound
from penstock.db.statements import Statements, fill_placeholders, quote_identifier

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.db.pool import Connection, Database

_sql = Statements("penstock.engine.results", "result_reader.sql")

#: Rows of one page.
PAGE_ROWS = 100_000

ResultView: TypeAlias = Literal["live", "current", "history"]

# Numbers keep all their digits.
_decoder = Decoder(float_hook=Decimal)

_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "numeric": lambda value: Decimal(str(value)),
    "double precision": float,
    "real": float,
    "timestamp with time zone": lambda value: datetime.fromisoformat(value).astimezone(UTC),
}


class RowColumn(Struct, frozen=True):
    """A column of a query's result, with its type in PostgreSQL."""

    name: str
    type: str


class RowPage(Struct, frozen=True):
    """Rows of a query's result, by the end of their windows. ``more`` is true if there are others."""

    columns: list[RowColumn]
    rows: list[Raw]
    more: bool = False


@dataclass(frozen=True, slots=True)
class RowRequest:
    """The rows to read.

    Args:
        query: The query's id.
        view: ``live``: the open windows. ``current``: the current window of each key. ``history``: the closed windows.
        key: Only the windows of this key.
        since: Only windows that end after this time.
        until: Only windows that end at this time or before.
        include_open: With ``history``, also the open windows.
    """

    query: str
    view: ResultView = "live"
    key: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    include_open: bool = False


class QueryRows(list[dict[str, Any]]):
    """The rows of a query's result: a list of dicts, by the end of their windows.

    Sums are exact (``decimal.Decimal``), and times are in UTC.
    """

    def __init__(self, rows: Iterable[dict[str, Any]] = (), columns: Iterable[RowColumn] = ()) -> None:
        super().__init__(rows)
        self.columns = list(columns)

    def to_arrow(self) -> pa.Table:
        """Return the rows as a table of Arrow, which needs pyarrow."""
        import pyarrow as pa

        return pa.table({column.name: _arrow_column(column, self) for column in self.columns})

    def to_pandas(self) -> Any:  # a DataFrame; pandas has no types
        """Return the rows as a DataFrame of pandas, which needs pandas and pyarrow."""
        return self.to_arrow().to_pandas()


class _QueryViews(NamedTuple):
    has_result: bool
    current_view: str | None
    #: Columns and key of a materialized view; None for other queries.
    view: dict[str, Any] | None


async def read_page(database: Database, request: RowRequest, limit: int = PAGE_ROWS) -> RowPage:
    """Read the first rows of a result.

    Raises:
        NotFound: there is no such query, or it has no windows yet.
    """
    async with database.connection() as conn, conn.transaction():
        await conn.execute(_sql["allow_scans"].encode())
        views = await _find_views(conn, request.query)
        schema, view = _choose_view(views, request)
        columns = await (await conn.execute(_sql["columns"], {"schema": schema, "view": view})).fetchall()
        if views.view is None:
            statement = fill_placeholders(
                _sql["rows"],
                view=quote_identifier(schema, view).as_string(),
                closed="NOT v.is_open" if request.view == "history" and not request.include_open else "true",
            )
        else:
            statement = _view_statement(views.view, request)
        params = {"key": request.key, "since": request.since, "until": request.until, "limit": limit + 1}
        rows = await (await conn.execute(statement.encode(), params)).fetchall()
    return RowPage(
        [RowColumn(name, kind) for name, kind in columns],
        [Raw(text.encode()) for (text,) in rows[:limit]],
        len(rows) > limit,
    )


async def read_rows(fetch: Callable[[RowRequest], Awaitable[RowPage]], request: RowRequest) -> QueryRows:
    """Read all rows of a result, page by page. A page ends between two windows that end at different times."""
    rows = QueryRows()
    while True:
        page = await fetch(request)
        rows.columns = page.columns
        decoded = [_decode(row, page.columns) for row in page.rows]
        if not page.more:
            rows += decoded
            return rows
        if all(column.name != "window_end" for column in page.columns):
            raise InvalidRequest(
                f"the view {request.query!r} has more than {len(decoded):,} rows: read those of one key with key=..., "
                "or query it with SQL"
            )
        last_end = decoded[-1]["window_end"]
        complete = [row for row in decoded if row["window_end"] != last_end]
        if not complete:
            raise InvalidRequest(
                f"query {request.query!r} has more than {len(decoded):,} windows that end at {last_end.isoformat()}: "
                "read the rows of one key with key=..., or query the view with SQL"
            )
        rows += complete
        request = replace(request, since=complete[-1]["window_end"])


async def _find_views(conn: Connection, query: str) -> _QueryViews:
    row = await (await conn.execute(_sql["find_views"], {"query": query})).fetchone()
    if row is None:
        raise NotFound(f"there is no query {query!r}: `penstock query list` lists the queries")
    return _QueryViews._make(row)


def _view_statement(view: dict[str, Any], request: RowRequest) -> str:
    """The statement that reads the rows of a materialized view, in the order of its key."""
    hidden = {column["name"] for column in view["columns"] if column["is_hidden"]}
    key = [name for name in view["key"] if name not in hidden]
    if request.since is not None or request.until is not None:
        raise InvalidRequest(
            f"{request.query!r} is a materialized view, whose rows have no windows: leave out the times"
        )
    if request.key is not None and (hidden or len(key) != 1):
        raise InvalidRequest(f"the key of {request.query!r} is not one column: query the view with SQL")
    columns = [f"v.{quote_identifier(name).as_string()}" for name in key]
    return fill_placeholders(
        _sql["view_rows"],
        view=quote_identifier("penstock_live", request.query).as_string(),
        of_key="true" if request.key is None else f"{columns[0]}::text = %(key)s",
        key=", ".join(columns) or "1",
    )


def _choose_view(views: _QueryViews, request: RowRequest) -> tuple[str, str]:
    if views.view is not None:
        if request.view == "history":
            raise NotFound(f"{request.query!r} is a materialized view, which has no history: read its live rows")
        return "penstock_live", request.query
    if not views.has_result:
        raise NotFound(f"query {request.query!r} has no rows: it has no windows, or has read no event yet")
    if request.view == "history":
        return "penstock_history", request.query
    if request.view == "live":
        return "penstock_live", request.query
    if views.current_view is None:
        raise NotFound(
            f"query {request.query!r} has no view of current windows: start it again with this version, under an id of "
            "at most 55 bytes"
        )
    return "penstock_live", views.current_view


def _decode(row: Raw, columns: list[RowColumn]) -> dict[str, Any]:
    values: dict[str, Any] = _decoder.decode(row)
    for column in columns:
        convert = _CONVERTERS.get(column.type)
        if convert is not None and values[column.name] is not None:
            values[column.name] = convert(values[column.name])
    return values


def _arrow_column(column: RowColumn, rows: list[dict[str, Any]]) -> pa.Array:
    import pyarrow as pa

    types = {
        "bigint": pa.int64(),
        "integer": pa.int32(),
        "double precision": pa.float64(),
        "real": pa.float32(),
        "boolean": pa.bool_(),
        "text": pa.string(),
        "timestamp with time zone": pa.timestamp("us", tz="UTC"),
    }
    values = [row[column.name] for row in rows]
    if column.type == "numeric":
        # The type has as many digits as the values. Without values, it is that of sums.
        return (
            pa.array(values) if any(value is not None for value in values) else pa.array(values, pa.decimal128(38, 18))
        )
    return pa.array(values, types.get(column.type))

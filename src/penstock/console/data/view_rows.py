"""A page of the rows of a materialized view, as text, with the rows that the last commits changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from penstock.console.data.text_search import like_pattern
from penstock.console.data.views import VisibleColumn
from penstock.db.pool import Connection, Database
from penstock.db.scalar import fetch_scalar
from penstock.db.statements import Statements, fill_placeholders, quote_identifier

_sql = Statements("penstock.console.data", "view_rows.sql")

#: The column of the time of a row's last change.
UPDATED_AT = "updated_at"
#: Rows are counted up to this number.
MAX_COUNT = 10_000


@dataclass(frozen=True, slots=True)
class ViewRowsRequest:
    """The rows to read and their order. Browsers with equal requests share the reads."""

    query_id: int
    columns: tuple[VisibleColumn, ...]
    #: All columns of the key, also the hidden ones: the order of rows that are equal otherwise.
    key: tuple[str, ...]
    #: The columns in which a text is searched.
    searched: tuple[str, ...]
    sort: str = UPDATED_AT
    is_descending: bool = True
    search: str = ""
    offset: int = 0
    limit: int = 100


class ViewRow(NamedTuple):
    updated_at: datetime
    #: The values as PostgreSQL writes them, which is exact.
    values: Sequence[str | None]
    #: True if a commit since the read before has changed the row.
    is_changed: bool


@dataclass(frozen=True, slots=True)
class ViewRows:
    rows: Sequence[ViewRow]
    #: The number of rows that match; more than MAX_COUNT if there are more.
    matching: int
    committed_at: datetime | None
    #: Counts the reads that found a new commit.
    version: int


class ViewRowsReader:
    """Reads the rows of a request again whenever the view has committed."""

    def __init__(self, database: Database, request: ViewRowsRequest) -> None:
        self._database = database
        self._request = request
        self._last: ViewRows | None = None

    async def read(self) -> ViewRows:
        async with self._database.connection() as conn, conn.transaction():
            await conn.execute(_sql["begin"])
            committed_at = await fetch_scalar(conn, _sql["last_commit"], {"query": self._request.query_id})
            if self._last is None or self._last.committed_at != committed_at:
                self._last = await self._read_rows(conn, committed_at)
        return self._last

    async def _read_rows(self, conn: Connection, committed_at: datetime | None) -> ViewRows:
        request, last = self._request, self._last
        await conn.execute(_sql["configure_planner"])
        params = {
            "search": like_pattern(request.search),
            "limit": request.limit,
            "offset": request.offset,
            "most": MAX_COUNT + 1,
        }
        rows = await (await conn.execute(_fill("rows", request), params)).fetchall()
        count = await (await conn.execute(_fill("count", request), params)).fetchone()
        # A cycle takes the time of its rows after the commit of the cycle before.
        shown = [
            ViewRow(at, values, last is not None and (last.committed_at is None or at > last.committed_at))
            for at, *values in rows
        ]
        return ViewRows(shown, 0 if count is None else count[0], committed_at, 0 if last is None else last.version + 1)


def _fill(name: str, request: ViewRowsRequest) -> bytes:
    direction = "DESC NULLS LAST" if request.is_descending else "ASC NULLS LAST"
    order = [f"t.{_quote(request.sort)} {direction}", *(f"t.{_quote(key)}" for key in request.key)]
    matches = [f"t.{_quote(name)}::text ILIKE %(search)s" for name in request.searched]
    text = fill_placeholders(
        _sql[name],
        id=request.query_id,
        values="".join(f", t.{_quote(column.name)}::text" for column in request.columns),
        matches=" OR ".join(matches) if request.search else "true",
        order=", ".join(order),
    )
    return text.encode()


def _quote(name: str) -> str:
    return quote_identifier(name).as_string()

"""A PostgreSQL table as a sink: a row for each key, written with the acknowledgement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from penstock.core import json
from penstock.core.errors import InvalidRequest, SinkRejected
from penstock.core.names import check_name
from penstock.db.patience import LOST
from penstock.db.statements import Statements, quoted
from penstock.sinks.checks import read_mapping, read_texts
from penstock.sinks.contract import Guarantee, TransactionalSink

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.log.event import Event
    from penstock.log.log import Batch

_sql = Statements("penstock.sinks", "table.sql")

#: What a column can hold that is not in the event's data.
_OF_EVENT = {
    "$id": lambda event: event.id,
    "$key": lambda event: event.key,
    "$time": lambda event: event.time,
    "$queue": lambda event: event.queue,
    "$partition": lambda event: event.partition,
    "$offset": lambda event: event.offset,
    "$data": lambda event: event.data,
}


class Table(TransactionalSink):
    """Writes events into a table, a row each; one whose key is there already takes that row's place.

    Fields of the data go to the columns of their names, the others are left out. ``columns`` says otherwise:
    ``{"customer": "$key", "city": "address.city"}`` takes the event's key (there are ``$id``, ``$key``, ``$time``,
    ``$queue``, ``$partition``, ``$offset`` and ``$data``) and a field within a field. ``key`` names the columns that
    rows are told apart by, the primary key unless you say so; they need a unique index.

    In the queues' own database the rows and the acknowledgement are one transaction: exactly once. With the ``url`` of
    another one, rows are written before: at least once, which a key makes harmless.
    """

    def __init__(
        self,
        table: str,
        *,
        key: Sequence[str] | str | None = None,
        columns: Mapping[str, str] | None = None,
        url: str | None = None,
    ) -> None:
        self._names = check_name(table, "table")
        self.name = f"table:{table}"[:200].rstrip()
        self._key = None if key is None else read_texts("key", [key] if isinstance(key, str) else key)
        self._mapping = None if columns is None else read_mapping("columns", columns)
        for source in (self._mapping or {}).values():
            if source.startswith("$") and source not in _OF_EVENT:
                raise InvalidRequest(f"there is no {source!r}; an event has {', '.join(_OF_EVENT)}")
        self._url = url
        if url is not None:
            self.guarantee: Guarantee = "at_least_once"
        self._other: AsyncConnection[Any] | None = None
        self._columns: list[str] | None = None
        self._statement: sql.Composed | None = None

    async def close(self) -> None:
        """Close the connection to the other database."""
        if self._other is not None:
            await self._other.close()

    async def write_in(self, connection: AsyncConnection[Any], events: Sequence[Event]) -> Sequence[Batch]:
        """Write the rows."""
        if not events:
            return []
        if self._url is not None:
            if self._other is None or self._other.closed or self._other.broken:
                self._other = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
            connection = self._other
        try:
            async with connection.transaction():
                await self._write(connection, events)
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            raise SinkRejected(f"{self.name}: {str(error).strip()}") from error
        except LOST:
            raise
        except psycopg.Error:
            # The table may have been changed: look at it again.
            self._statement = None
            raise
        return []

    async def _write(self, connection: AsyncConnection[Any], events: Sequence[Event]) -> None:
        if self._statement is None:
            self._statement = await self._prepare(connection)
        rows: list[dict[str, Any]] = []
        bad: dict[int, str] = {}
        for i, event in enumerate(events):
            try:
                rows.append(self._row(event))
            except (KeyError, TypeError) as error:
                bad[i] = str(error)
        if bad:
            raise SinkRejected(f"{self.name}: {next(iter(bad.values()))}", events=frozenset(bad))
        if self._key:
            # A statement may touch a row once; the last one for a key is the one that stays.
            rows = list({json.encode([row.get(name) for name in self._key or ()]): row for row in rows}.values())
        await connection.execute(self._statement, [json.encode(rows).decode()])

    async def _prepare(self, connection: AsyncConnection[Any]) -> sql.Composed:
        found = await (await connection.execute(_sql["columns"], [self._names])).fetchall()
        if not found:
            raise InvalidRequest(f"there is no table {self._names!r}: create it first, or name its schema too")
        known = [name for name, _ in found]
        self._key = self._key if self._key is not None else [name for name, is_key in found if is_key]
        self._columns = known if self._mapping is None else list(self._mapping)
        missing = [name for name in (*self._columns, *self._key) if name not in known]
        if missing:
            raise InvalidRequest(f"table {self._names!r} has no column {missing[0]!r}; it has {', '.join(known)}")
        table = quoted(*_split(self._names))
        columns = sql.SQL(", ").join(map(quoted, self._columns))
        statement = sql.SQL(_sql["insert"]).format(table=table, columns=columns)
        if not self._key:
            return statement
        key = sql.SQL(", ").join(map(quoted, self._key))
        others = [name for name in self._columns if name not in self._key]
        if not others:
            return sql.Composed([statement, sql.SQL(" "), sql.SQL(_sql["keep"]).format(key=key)])
        replace = sql.SQL(_sql["replace"]).format(
            key=key,
            others=sql.SQL(", ").join(map(quoted, others)),
            excluded=sql.SQL(", ").join(quoted("excluded", name) for name in others),
        )
        return sql.Composed([statement, sql.SQL(" "), replace])

    def _row(self, event: Event) -> dict[str, Any]:
        if self._mapping is not None:
            return {column: _take(event, source) for column, source in self._mapping.items()}
        if not isinstance(event.data, Mapping):
            raise TypeError("an event that is no object has no columns; use columns={'name': '$data'}")
        return dict(event.data)


def _take(event: Event, source: str) -> Any:
    if source in _OF_EVENT:
        return _OF_EVENT[source](event)
    value = event.data
    for name in source.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _split(name: str) -> list[str]:
    """The parts of ``schema.table``, as PostgreSQL reads them: in quotes as it is, else in lower case."""
    parts: list[str] = []
    for part in name.split("."):
        quoted = len(part) > 1 and part[0] == part[-1] == '"'
        parts.append(part[1:-1] if quoted else part.lower())
    return parts

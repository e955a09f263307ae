"""A PostgreSQL table as a sink: a row for each key, written with the acknowledgement."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from penstock.core import json
from penstock.core.errors import InvalidRequest, SinkRejected
from penstock.core.names import check_name
from penstock.db.pool import connect_options
from penstock.db.retry import is_not_now
from penstock.db.statements import Statements, quoted
from penstock.db.table_names import find_table
from penstock.sinks.base import Guarantee, TransactionalSink
from penstock.sinks.validation import read_mapping, read_texts

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
#: There is no such field.
_NOTHING: Any = object()


@dataclass(frozen=True, slots=True)
class _Shape:
    """A table, as far as rows of it are written."""

    columns: tuple[str, ...]
    #: Those that have a default: they are left to the table by an event that says nothing of them.
    optional: frozenset[str]
    key: tuple[str, ...]
    #: As statements name it.
    table: sql.SQL

    def names_itself(self, row: Mapping[str, Any]) -> bool:
        """Whether it is the row that says which one it is, and not a default."""
        left_to_the_table = self.optional.difference(row).union(set(self.key).difference(self.columns))
        return bool(self.key) and left_to_the_table.isdisjoint(self.key)


class Table(TransactionalSink):
    """Writes events into a table, a row each; one whose key is there already takes that row's place.

    Fields of the data go to the columns of their names, the others are left out. A column that an event has no field
    for is NULL; one with a default is left to the table: a new row has the default, one that is there keeps its value.
    ``columns`` says otherwise: ``{"customer": "$key", "city": "address.city"}`` takes the event's key (there are
    ``$id``, ``$key``, ``$time``, ``$queue``, ``$partition``, ``$offset`` and ``$data``) and a field within a field.
    ``key`` names the columns that rows are told apart by, the primary key unless you say so; they need a unique index.

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
        self._shape: _Shape | None = None

    async def open(self) -> None:
        """Connect to the other database, if there is one."""
        if self._url is not None:
            await self._connect(self._url)

    async def close(self) -> None:
        """Close the connection to the other database."""
        if self._other is not None:
            await self._other.close()

    async def write_in(self, connection: AsyncConnection[Any], events: Sequence[Event]) -> Sequence[Batch]:
        """Write the rows."""
        if not events:
            return []
        if self._url is not None:
            connection = await self._connect(self._url)
        try:
            async with connection.transaction():
                await self._write(connection, events)
        except (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded) as error:
            raise SinkRejected(f"{self.name}: {str(error).strip()}") from error
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.InvalidColumnReference) as error:
            self._shape = None
            raise InvalidRequest(f"{self.name} is not set up for it: {str(error).strip()}") from error
        except psycopg.Error as error:
            if not is_not_now(error):
                # The table may have been changed: look at it again.
                self._shape = None
            raise
        return []

    async def _connect(self, url: str) -> AsyncConnection[Any]:
        if self._other is None or self._other.closed or self._other.broken:
            self._other = await psycopg.AsyncConnection.connect(url, **connect_options(url))
        return self._other

    async def _write(self, connection: AsyncConnection[Any], events: Sequence[Event]) -> None:
        shape = self._shape = self._shape or await self._look(connection)
        rows: list[dict[str, Any]] = []
        bad: dict[int, str] = {}
        for i, event in enumerate(events):
            try:
                rows.append(self._row(event, shape))
            except TypeError as error:
                bad[i] = str(error)
        if bad:
            raise SinkRejected(f"{self.name}: {next(iter(bad.values()))}", events=frozenset(bad))
        # Rows that leave the same columns to the table are written together.
        alike: dict[frozenset[str], list[dict[str, Any]]] = {}
        for row in _last_of_each(rows, shape):
            alike.setdefault(shape.optional.difference(row), []).append(row)
        for left_out, some in alike.items():
            await connection.execute(self._statement(shape, left_out), [json.encode(some).decode()])

    async def _look(self, connection: AsyncConnection[Any]) -> _Shape:
        table = await find_table(connection, self._names)
        if table is None:
            raise InvalidRequest(f"there is no table {self._names!r}: create it first, or name its schema too")
        found = await (await connection.execute(_sql["columns"], [self._names])).fetchall()
        known = {name: has_default for name, _, has_default, is_writable in found if is_writable}
        primary = [name for name, is_key, *_ in found if is_key]
        key = self._key if self._key is not None else [name for name in primary if known.keys() >= set(primary)]
        columns = tuple(known) if self._mapping is None else tuple(self._mapping)
        missing = [name for name in (*columns, *key) if name not in known]
        if missing:
            raise InvalidRequest(
                f"table {self._names!r} has no column {missing[0]!r} that can be written; it has {', '.join(known)}"
            )
        return _Shape(columns, frozenset(name for name in columns if known[name]), tuple(key), table)

    def _statement(self, shape: _Shape, left_out: Collection[str]) -> sql.Composed:
        named = [name for name in shape.columns if name not in left_out]
        statement = sql.SQL(_sql["insert"]).format(table=shape.table, columns=sql.SQL(", ").join(map(quoted, named)))
        if not shape.key:
            return statement
        key = sql.SQL(", ").join(map(quoted, shape.key))
        others = [name for name in named if name not in shape.key]
        if not others:
            return sql.Composed([statement, sql.SQL(" "), sql.SQL(_sql["keep"]).format(key=key)])
        replace = sql.SQL(_sql["replace"]).format(
            key=key,
            others=sql.SQL(", ").join(map(quoted, others)),
            excluded=sql.SQL(", ").join(quoted("excluded", name) for name in others),
        )
        return sql.Composed([statement, sql.SQL(" "), replace])

    def _row(self, event: Event, shape: _Shape) -> dict[str, Any]:
        if self._mapping is not None:
            taken = {column: _take(event, source) for column, source in self._mapping.items()}
            row = {column: value for column, value in taken.items() if value is not _NOTHING}
        elif isinstance(event.data, Mapping):
            row = {name: event.data[name] for name in shape.columns if name in event.data}
        else:
            raise TypeError("an event that is no object has no columns; use columns={'name': '$data'}")
        if shape.optional.issuperset(shape.columns) and not row:
            raise TypeError("it has no field for any column of the table")
        return row


def _last_of_each(rows: Sequence[dict[str, Any]], shape: _Shape) -> list[dict[str, Any]]:
    """The last row for each key, as a statement may touch a row once; with what those before it said and it does not.

    What the table would have kept, had they been written one by one.
    """
    last: dict[object, dict[str, Any]] = {}
    for i, row in enumerate(rows):
        name: object = json.encode([row.get(each) for each in shape.key]) if shape.names_itself(row) else i
        before = last.pop(name, {})
        last[name] = {each: value for each, value in before.items() if each in shape.optional} | row
    return list(last.values())


def _take(event: Event, source: str) -> Any:
    if source in _OF_EVENT:
        return _OF_EVENT[source](event)
    value = event.data
    for name in source.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return _NOTHING
        value = value[name]
    return value

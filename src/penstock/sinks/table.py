"""``Table``: writes events as rows of a PostgreSQL table."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.core import json
from penstock.core.errors import InvalidRequest, SinkRejected, UnknownField
from penstock.core.names import check_name
from penstock.core.option_checks import check_flag
from penstock.core.suggestions import closest_names, describe_known
from penstock.db.pool import connect_options
from penstock.db.retry import is_transient
from penstock.sinks.base import Guarantee, TransactionalSink
from penstock.sinks.sink_options import read_mapping, read_texts
from penstock.sinks.table_changes import KeyedChange, key_of, merge_by_key, read_change
from penstock.sinks.target_table import TargetTable, read_target

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.log.event import Event
    from penstock.log.write.encode.batch import Batch

_logger = logging.getLogger("penstock.sinks")

#: Values of an event that are not in its data, for the option ``columns``.
_EVENT_VALUES = {f"${name}": attrgetter(name) for name in ("id", "key", "time", "queue", "partition", "offset", "data")}
_MISSING: Any = object()


class Table(TransactionalSink):
    """Writes each event as a row of a table, or updates the row with the same key.

    A field of the data goes to the column of the same name; other fields are left out. A column without a field is
    NULL. A column with a default and without a field keeps its value, and has the default in a new row.

    In the database of the queues, the rows and the acknowledgement are one transaction: exactly once. With the ``url``
    of another database the rows are written first: at least once. With a key, writing a row twice changes nothing.

    Args:
        table: The table.
        key: The columns that identify a row; they need a unique index (default: the primary key).
        columns: The source of each column: ``{"customer": "$key", "city": "address.city"}``. A source is a path in the
            data, or ``$id``, ``$key``, ``$time``, ``$queue``, ``$partition``, ``$offset`` or ``$data``.
        url: The database of the table, if it is not the database of the queues.
        changes: Whether the events are changes of a materialized view, ``{"op": ..., "before": ..., "after": ...}``:
            the fields are those of ``after``, and a row that disappears is deleted. The table needs a key, which
            should be the key of the view.
    """

    def __init__(
        self,
        table: str,
        *,
        key: Sequence[str] | str | None = None,
        columns: Mapping[str, str] | None = None,
        url: str | None = None,
        changes: bool = False,
    ) -> None:
        self._table_name = check_name(table, "table")
        self.name = f"table:{table}"[:200].rstrip()
        self._key = None if key is None else read_texts("key", [key] if isinstance(key, str) else key)
        self._mapping = None if columns is None else read_mapping("columns", columns)
        for source in (self._mapping or {}).values():
            if source.startswith("$") and source not in _EVENT_VALUES:
                raise InvalidRequest(f"an event has no {source!r}; it has {', '.join(_EVENT_VALUES)}")
        #: The columns that are read from the data, with their paths.
        self._paths = {column: path for column, path in (self._mapping or {}).items() if path not in _EVENT_VALUES}
        self._is_first_batch = True
        self._url = url
        self._applies_changes = check_flag("changes", changes)
        if url is not None:
            self.guarantee: Guarantee = "at_least_once"
        self._own_connection: AsyncConnection[Any] | None = None
        self._target: TargetTable | None = None

    def check_fields(self, fields: Collection[str]) -> None:
        """Raise UnknownField if a path of ``columns`` starts with none of the fields."""
        for column, path in self._paths.items():
            name = path.split(".")[0]
            if name not in fields:
                raise UnknownField(
                    f"{self.name}: the results have no field {name!r} for column {column!r}; "
                    f"{describe_known(name, fields)}",
                    field=name,
                    suggestions=closest_names(name, fields),
                )

    async def open(self) -> None:
        """Connect to the other database, if ``url`` is set."""
        if self._url is not None:
            await self._connect(self._url)

    async def close(self) -> None:
        """Close the connection to the other database."""
        if self._own_connection is not None:
            await self._own_connection.close()

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
            self._target = None
            raise InvalidRequest(f"{self.name} cannot be written as configured: {str(error).strip()}") from error
        except psycopg.Error as error:
            if not is_transient(error):
                # The table may have been changed: read its columns again.
                self._target = None
            raise
        return []

    async def _connect(self, url: str) -> AsyncConnection[Any]:
        if self._own_connection is None or self._own_connection.closed or self._own_connection.broken:
            self._own_connection = await psycopg.AsyncConnection.connect(url, **connect_options(url))
        return self._own_connection

    async def _write(self, connection: AsyncConnection[Any], events: Sequence[Event]) -> None:
        target = self._target = self._target or await self._read_target(connection)
        changes: list[KeyedChange] = []
        reasons: dict[int, str] = {}
        for i, event in enumerate(events):
            try:
                changes.append(self._build_change(event, target))
            except SinkRejected as error:
                reasons[i] = str(error)
        if reasons:
            raise SinkRejected(f"{self.name}: {next(iter(reasons.values()))}", events=frozenset(reasons))
        if self._is_first_batch:
            self._is_first_batch = False
            self._warn_of_missing_fields([each.row for each in changes if each.row is not None], events)
        deleted, rows = merge_by_key(changes, target)
        if deleted:
            await connection.execute(target.delete_statement(), [json.encode(deleted).decode()])
        # Rows that leave the same columns to the table go into one statement.
        by_missing: dict[frozenset[str], list[dict[str, Any]]] = {}
        for row in rows:
            by_missing.setdefault(target.optional.difference(row), []).append(row)
        for missing, batch in by_missing.items():
            await connection.execute(target.write_statement(missing), [json.encode(batch).decode()])

    def _warn_of_missing_fields(self, rows: Sequence[dict[str, Any]], events: Sequence[Event]) -> None:
        rows_read = [event.data.get("after") if self._applies_changes else event.data for event in events]
        fields = {str(name) for row in rows_read if isinstance(row, Mapping) for name in row}
        for column in self._paths.keys() - set[str]().union(*rows):
            path = self._paths[column]
            _logger.warning(
                "%s: none of the first events has the field %r for column %r; %s",
                self.name,
                path,
                column,
                describe_known(path.split(".")[0], fields),
            )

    async def _read_target(self, connection: AsyncConnection[Any]) -> TargetTable:
        target = await read_target(connection, self._table_name, self._key, self._mapping)
        if self._applies_changes and not target.key:
            raise InvalidRequest(
                f"table {self._table_name!r} has no primary key, which changes of rows need: add one, or name the "
                "columns of a unique index, key=[...]"
            )
        return target

    def _build_change(self, event: Event, target: TargetTable) -> KeyedChange:
        if not self._applies_changes:
            return KeyedChange(None, self._build_row(event, event.data, target))
        change = read_change(event.data)
        before, after = (None if row is None else self._build_row(event, row, target) for row in change)
        old, new = (None if row is None else key_of(row, target) for row in (before, after))
        return KeyedChange(None if old == new else old, after)

    def _build_row(self, event: Event, data: Any, target: TargetTable) -> dict[str, Any]:
        if self._mapping is not None:
            values = {column: _read_value(event, data, source) for column, source in self._mapping.items()}
            row = {column: value for column, value in values.items() if value is not _MISSING}
        elif isinstance(data, Mapping):
            row = {name: data[name] for name in target.columns if name in data}
        else:
            raise SinkRejected("the data is not an object and has no fields for columns; use columns={'name': '$data'}")
        if target.optional.issuperset(target.columns) and not row:
            raise SinkRejected("the event has no field for any column of the table")
        return row


def _read_value(event: Event, data: Any, source: str) -> Any:
    if source in _EVENT_VALUES:
        return _EVENT_VALUES[source](event)
    value = data
    for name in source.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return _MISSING
        value = value[name]
    return value

"""The windows of one key of a query, and the events that belong to the key."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from penstock.console.data.open_windows import WindowColumn, WindowedQuery
from penstock.db.pool import Database
from penstock.db.statements import Statements, fill_placeholders, quote_identifier
from penstock.log.event import Event
from penstock.log.log import Log

_sql = Statements("penstock.console.data", "key_windows.sql")

#: Largest number of windows that are read.
MAX_WINDOWS = 200
_MAX_EVENTS = 20
#: Number of events that are searched for a field.
_SEARCHED_EVENTS = 2000


class KeyWindow(NamedTuple):
    start: datetime
    end: datetime
    updated_at: datetime
    is_open: bool
    #: How often late events corrected the closed window.
    revision: int
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KeySource:
    """The queues that a query reads, and the field that is its key: None if it is the key of the events."""

    queues: Sequence[str]
    field: str | None


async def read_key_windows(
    database: Database, query: WindowedQuery, columns: Sequence[WindowColumn], key: str
) -> list[KeyWindow]:
    """Return the newest windows of a key, newest first. An empty key selects the windows without a key."""
    statement = fill_placeholders(
        _sql["windows"],
        view=quote_identifier(query.name).as_string(),
        values="".join(f", v.{quote_identifier(column.name).as_string()}" for column in columns),
    )
    names = [column.name for column in columns]
    async with database.connection() as conn, conn.transaction():
        await conn.execute(_sql["configure_planner"])
        cursor = await conn.execute(statement.encode(), {"key": key, "limit": MAX_WINDOWS})
        return [
            KeyWindow(start, end, updated_at, is_open, revision, dict(zip(names, values, strict=True)))
            for start, end, updated_at, is_open, revision, *values in await cursor.fetchall()
        ]


def find_source(query: WindowedQuery) -> KeySource | None:
    """Return where the events of a key are, or None if the key is computed or the query joins streams.

    >>> find_source(WindowedQuery(1, "sales", ("from: orders", "key: shop.id", "window: tumbling 5 s")))
    KeySource(queues=['orders'], field='shop.id')
    """
    lines = dict(line.split(": ", 1) for line in query.description if ": " in line)
    if "from" not in lines:
        return None
    field = lines.get("key")
    if field is not None and re.fullmatch(r"[A-Za-z_][\w.]*", field) is None:
        return None
    return KeySource(lines["from"].split(", "), field)


async def read_key_events(log: Log, source: KeySource, key: str) -> list[Event]:
    """Return the newest events of a key, newest first; of a field's value, those among the newest of each queue."""
    events: list[Event] = []
    for queue in source.queues:
        if source.field is None and key:
            events += await log.browse(queue, key=key, limit=_MAX_EVENTS)
        else:
            field = source.field
            events += [
                event
                for event in await log.latest(queue, _SEARCHED_EVENTS)
                if (event.key or "" if field is None else _field_text(event.data, field)) == key
            ]
    return sorted(events, key=lambda event: event.appended_at, reverse=True)[:_MAX_EVENTS]


def _field_text(data: Any, field: str) -> str:
    for name in field.split("."):
        data = data.get(name) if isinstance(data, dict) else None
    if isinstance(data, bool):
        return str(data).lower()
    return "" if data is None else str(data)

"""What the database knows of a view: its definition, its columns, and its driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection

from penstock.core.errors import Conflict
from penstock.db.statements import Statements
from penstock.engine.views.view_reader import ViewColumn
from penstock.log.log import Log

_sql = Statements("penstock.engine.rebuild", "stored_view.sql")


@dataclass(frozen=True)
class StoredView:
    """The row of a view in ``penstock.queries``."""

    id: int
    name: str
    description: Sequence[str]
    fingerprint: str
    #: The queue of its changes.
    sink: str | None
    #: Its columns, and the names of those that identify a row. Empty if it was never prepared.
    columns: Sequence[ViewColumn]
    key: tuple[str, ...]
    #: The time of the database when the row was read.
    now: datetime

    @property
    def visible(self) -> list[ViewColumn]:
        return [column for column in self.columns if not column.is_hidden]


async def find_view(log: Log, name: str) -> StoredView | None:
    """Return a view; None if there is no query of that name."""
    async with log.database.connection() as conn:
        row = await (await conn.execute(_sql["find"], {"name": name})).fetchone()
    if row is None:
        return None
    query, stored_name, description, fingerprint, sink, view, now = row
    stored: Mapping[str, Any] = view or {"columns": [], "key": []}
    columns = [
        ViewColumn(each["name"], each["spark_type"], each["type"], each["is_hidden"]) for each in stored["columns"]
    ]
    return StoredView(query, stored_name, description, fingerprint, sink, columns, tuple(stored["key"]), now)


async def check_readers(
    conn: AsyncConnection[Any], name: str, columns: Mapping[str, str | None], *, keeps_changes: bool
) -> None:
    """Raise Conflict if views read what a new version of the view ``name`` does not have.

    Args:
        conn: A connection.
        name: The view.
        columns: The Spark types of the columns of the new version; None for a type that is not known yet.
        keeps_changes: Whether the new version writes its changes to the same queue.
    """
    for reader, fields, types in await (await conn.execute(_sql["readers"], {"name": name})).fetchall():
        if not keeps_changes:
            raise Conflict(
                f"the view {reader!r} reads the changes of {name!r}, so their queue stays: keep the option changes, or "
                "start both over with reset=True (--reset)"
            )
        for field in fields:
            advice = f"let {reader!r} read other columns first, or start both over with reset=True (--reset)"
            if field not in columns:
                raise Conflict(
                    f"the view {reader!r} reads the column {field!r} of {name!r}, which its new version does not "
                    f"have: {advice}"
                )
            before, after = types.get(field), columns[field]
            if after is not None and before != after:
                raise Conflict(
                    f"the view {reader!r} reads the column {field!r} of {name!r} as {before}, and in the new version "
                    f"it is {after}: cast it, or {advice}"
                )

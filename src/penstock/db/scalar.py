"""Statements that return one value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg import AsyncConnection, Connection
from psycopg.abc import QueryNoTemplate


async def fetch_scalar(
    conn: AsyncConnection[Any], statement: QueryNoTemplate, params: Mapping[str, Any] | None = None
) -> Any:
    """Return the only column of the first row; None if there is no row."""
    # psycopg's scalar_row would need a cursor, which a wrapped connection of the user does not offer.
    return _only_value(await (await conn.execute(statement, params)).fetchone())


def fetch_scalar_sync(
    conn: Connection[Any], statement: QueryNoTemplate, params: Mapping[str, Any] | None = None
) -> Any:
    """Do the same on a synchronous connection."""
    return _only_value(conn.execute(statement, params).fetchone())


def _only_value(row: tuple[Any] | None) -> Any:
    if row is None:
        return None
    (value,) = row
    return value

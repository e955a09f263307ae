"""Tables that users name as they do to PostgreSQL: ``orders``, ``shop.orders``, ``"Shop"."Orders"``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg import errors

from penstock.db.statements import Statements, quoted

if TYPE_CHECKING:
    from psycopg import AsyncConnection, sql

_sql = Statements("penstock.db", "table_names.sql")


async def find_table(conn: AsyncConnection[Any], name: str) -> sql.SQL | None:
    """The table of that name, as a statement with parameters has it; None if there is none."""
    try:
        row = await (await conn.execute(_sql["find"], [name])).fetchone()
    except (errors.InvalidName, errors.SyntaxError, errors.FeatureNotSupported):
        return None  # it is no name at all, or one of another database
    return None if row is None else quoted(*row)

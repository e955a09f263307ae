"""Lookup of tables by the names that users write in SQL: ``orders``, ``shop.orders``, ``"Shop"."Orders"``."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection, errors, sql

from penstock.db.statements import Statements, quote_identifier

_sql = Statements("penstock.db", "table_names.sql")


async def find_table(conn: AsyncConnection[Any], name: str) -> sql.SQL | None:
    """Return the quoted name of the table for a statement with parameters, or None if it does not exist."""
    try:
        row = await (await conn.execute(_sql["find"], [name])).fetchone()
    except (errors.InvalidName, errors.SyntaxError, errors.FeatureNotSupported):
        return None  # not a name, or a name in another database
    if row is None:
        return None
    schema, table = row
    return quote_identifier(schema, table)

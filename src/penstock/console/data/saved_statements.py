"""SQL statements that users save under a name, for all users of the SQL page."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from penstock.db.pool import Database
from penstock.db.statements import Statements

_sql = Statements("penstock.console.data", "saved_statements.sql")

MAX_NAME_CHARACTERS = 80


class SavedStatement(NamedTuple):
    """A statement, with the user who saved it last."""

    name: str
    statement: str
    saved_by: str
    saved_at: datetime


async def list_saved_statements(database: Database) -> list[SavedStatement]:
    return await database.fetch(SavedStatement, _sql["list"])


async def save_statement(database: Database, name: str, statement: str, saved_by: str) -> None:
    """Save a statement, or replace the one of this name."""
    async with database.connection() as conn:
        await conn.execute(_sql["save"], {"name": name, "statement": statement, "saved_by": saved_by})


async def delete_statement(database: Database, name: str) -> None:
    async with database.connection() as conn:
        await conn.execute(_sql["delete"], {"name": name})

"""The table of views that people created in the console. Needs no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from penstock.core.errors import Conflict, NotFound
from penstock.db.pool import Database
from penstock.db.scalar import fetch_scalar
from penstock.db.statements import Statements

_sql = Statements("penstock.engine.stored", "stored_statements.sql")


class StoredStatement(NamedTuple):
    """The statement of a view that processes of ``penstock sql --stored`` run."""

    id: int
    #: The name of the view.
    name: str
    statement: str
    #: The id of the API key that created it.
    author: str
    created_at: datetime
    #: Whether the view is being deleted.
    is_dropped: bool
    #: Why it does not run.
    error: str | None
    #: Whether a process runs stored statements.
    is_followed: bool


async def list_stored_statements(database: Database) -> list[StoredStatement]:
    """Return all statements, the oldest first."""
    return await database.fetch(StoredStatement, _sql["list"], {"name": None})


async def find_stored_statement(database: Database, name: str) -> StoredStatement | None:
    found = await database.fetch(StoredStatement, _sql["list"], {"name": name})
    return found[0] if found else None


async def create_stored_statement(database: Database, name: str, statement: str, author: str) -> None:
    """Store the statement of a new view.

    Raises:
        Conflict: There is a query or a stored view of this name.
    """
    params = {"name": name, "statement": statement, "author": author}
    async with database.connection() as conn:
        if await fetch_scalar(conn, _sql["create"], params) is None:
            raise Conflict(f"there is a query {name!r} already: give the view another name, or delete that one first")


async def drop_stored_view(database: Database, name: str) -> None:
    """Let the processes that run the view stop it, and then delete it with its result."""
    async with database.connection() as conn:
        if await fetch_scalar(conn, _sql["drop"], {"name": name}) is None:
            raise NotFound(f"the view {name!r} is not stored: it was deleted, or `penstock sql FILE` runs it")


async def mark_seen(database: Database, statements: Sequence[StoredStatement]) -> None:
    """Store that a process runs these statements."""
    async with database.connection() as conn:
        await conn.execute(_sql["mark_seen"], {"ids": [each.id for each in statements]})


async def set_error(database: Database, statement: StoredStatement, error: str | None) -> None:
    """Store why a view does not run; None if it runs."""
    async with database.connection() as conn:
        await conn.execute(_sql["set_error"], {"id": statement.id, "error": error})

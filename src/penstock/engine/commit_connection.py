"""The database connection over which a driver commits cycles and gate releases."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from penstock.db.pool import Database
from penstock.db.statements import Statements

_sql = Statements("penstock.engine", "commit_connection.sql")


async def open_commit_connection(database: Database, lease_seconds: float) -> AsyncConnection[Any]:
    """Open a connection with the session settings of commits.

    PostgreSQL ends a transaction that is idle for longer than the lease. A driver that hangs in a transaction
    therefore does not hold the lock on the query's row after another driver takes the query over.
    """
    conn = await database.connect()
    await conn.execute(_sql["configure"], {"idle_timeout": f"{lease_seconds * 1000:.0f}ms"})
    return conn

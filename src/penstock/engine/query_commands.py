"""Pause, resume and stop a query that runs in another process. Needs no Spark.

A command is stored in the query's row, which its drivers read a few times per second. A pause lasts until it is
revoked, also if another driver takes the query over. A stop applies to the drivers that run at that time, standbys
included. A driver that is started later runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from penstock.core.errors import NotFound
from penstock.db.pool import Database
from penstock.db.statements import Statements

_sql = Statements("penstock.engine", "query_commands.sql")


@dataclass(frozen=True, slots=True)
class DriverCommands:
    paused: bool
    stopped: bool


async def pause(database: Database, name: str) -> None:
    """Let the query plan no more cycles after the current one. Its driver keeps running."""
    await _store_command(database, "pause", name)


async def resume(database: Database, name: str) -> None:
    """Let a paused query continue."""
    await _store_command(database, "resume", name)


async def stop(database: Database, name: str) -> None:
    """Stop the query's drivers as SIGTERM does: after the current cycle, with the lease released."""
    await _store_command(database, "stop", name)


async def read_commands(database: Database, query: int, since: datetime) -> DriverCommands | None:
    """Return the commands for a driver that was started at ``since``; None if the query does not exist."""
    async with database.connection() as conn:
        row = await (await conn.execute(_sql["read_commands"], {"query": query, "since": since})).fetchone()
    return None if row is None else DriverCommands(*row)


async def _store_command(database: Database, command: str, name: str) -> None:
    async with database.connection() as conn:
        row = await (await conn.execute(_sql[command], {"name": name})).fetchone()
    if row is None:
        raise NotFound(f"there is no query {name!r}; `penstock query list` lists the queries")

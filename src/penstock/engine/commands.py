"""What people want of a query that runs in another process: that it pause, go on, or stop. Needs no Spark.

The wish is in the query's row, where its drivers look for it a few times a second. A pause stays until it is taken
back, whoever drives the query meanwhile. A stop is meant for the drivers that run then, standbys too; one that is
started afterwards runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from penstock.core.errors import NotFound
from penstock.db.pool import Database
from penstock.db.statements import Statements

_sql = Statements("penstock.engine", "commands.sql")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a driver is to do."""

    paused: bool
    stopped: bool


async def pause(database: Database, name: str) -> None:
    """Let the query finish the cycle that it is in and begin no other. Its driver stays, and stays warm."""
    await _ask(database, "pause", name)


async def resume(database: Database, name: str) -> None:
    """Let a paused query go on."""
    await _ask(database, "resume", name)


async def stop(database: Database, name: str) -> None:
    """Let the query's drivers end as SIGTERM would: after the cycle that they are in, and with the lease released."""
    await _ask(database, "stop", name)


async def wanted(database: Database, query: int, since: datetime) -> Wanted | None:
    """What is wanted of a driver that was started then; None if the query is gone."""
    async with database.connection() as conn:
        row = await (await conn.execute(_sql["wanted"], {"query": query, "since": since})).fetchone()
    return None if row is None else Wanted(*row)


async def _ask(database: Database, wish: str, name: str) -> None:
    async with database.connection() as conn:
        row = await (await conn.execute(_sql[wish], {"name": name})).fetchone()
    if row is None:
        raise NotFound(f"there is no query {name!r}: `penstock query list` shows those there are")

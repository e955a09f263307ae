"""What a sink has done: for the page of the group that it reads as."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.db.pool import Database
from penstock.db.statements import Statements

_sql = Statements("penstock.console.data", "sink_stats.sql")


@dataclass(frozen=True, slots=True)
class SinkSight:
    """A sink, added up over all who ran it."""

    guarantee: str
    written: int
    retries: int
    #: Attempts for which the other side was too busy.
    busy: int
    dead_letters: int
    is_running: bool
    is_resting: bool
    #: Why its last attempt failed, unless it was the last no longer.
    error: str | None


async def sink_of(database: Database, queue: str, group: str) -> SinkSight | None:
    """The sink that reads as this group, if one does."""
    async with database.connection() as conn:
        row = await (await conn.execute(_sql["sink"], {"queue": queue, "group": group})).fetchone()
    return None if row is None else SinkSight(*row)

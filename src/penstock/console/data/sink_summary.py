"""Totals and state of a sink, for the page of its group."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg.rows import class_row

from penstock.db.pool import Database
from penstock.db.statements import Statements

_sql = Statements("penstock.console.data", "sink_summary.sql")


@dataclass(frozen=True, slots=True)
class SinkSummary:
    """A sink, with totals over all processes that have run it."""

    guarantee: str
    written: int
    retries: int
    #: Attempts that the target rejected because it was busy.
    busy: int
    dead_letters: int
    is_running: bool
    is_resting: bool
    #: The error of the last attempt, if it failed.
    error: str | None


async def read_sink_summary(database: Database, queue: str, group: str) -> SinkSummary | None:
    """Return the sink that reads the queue as this group, or None if the group is no sink."""
    async with database.connection() as conn:
        cursor = conn.cursor(row_factory=class_row(SinkSummary))
        await cursor.execute(_sql["sink"], {"queue": queue, "group": group})
        return await cursor.fetchone()

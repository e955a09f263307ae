"""Read the ledger of a query: its cycles, and their totals over a recent period. Needs no Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from penstock.db.pool import Database
from penstock.db.statements import Statements

_sql = Statements("penstock.engine", "cycle_ledger.sql")

#: The time between the result of Spark and the commit of the previous cycle, in ``took``.
COMMIT_BEFORE = "commit before"


@dataclass(frozen=True, slots=True)
class CycleRecord:
    """A cycle. Its counts are None until it is committed."""

    cycle: int
    planned: int
    planned_at: datetime
    started_at: datetime | None
    committed_at: datetime | None
    events_in: int | None
    events_out: int | None
    windows: int | None
    late: int | None
    dead: int | None
    #: Events that Python filters dropped.
    dropped: int | None
    #: The duration of each part, in milliseconds.
    took: dict[str, float] | None
    error: str | None
    #: When the oldest of its events was appended.
    oldest_at: datetime | None
    #: The watermark after the cycle, for a query with windows.
    watermark: datetime | None

    @property
    def state(self) -> str:
        """One of "planned", "committed" and "failed"."""
        if self.error is not None:
            return "failed"
        return "planned" if self.committed_at is None else "committed"

    @property
    def seconds(self) -> float | None:
        """The time from plan to commit, without the wait for the commit of the previous cycle."""
        if self.committed_at is None:
            return None
        wait = (self.took or {}).get(COMMIT_BEFORE, 0.0) / 1000
        return max(0.0, (self.committed_at - self.planned_at).total_seconds() - wait)

    @property
    def freshness_seconds(self) -> float | None:
        """The time from the append of the oldest event to the commit."""
        if self.committed_at is None or self.oldest_at is None:
            return None
        return (self.committed_at - self.oldest_at).total_seconds()


@dataclass(frozen=True, slots=True)
class Activity:
    """Totals of a query over a period."""

    open_windows: int
    has_result: bool
    lease_until: datetime
    history_seconds: float
    cycles: int
    events_in: int
    windows: int
    late: int
    dead: int
    failed: int
    watermark: datetime | None


async def read_cycles(
    database: Database, query: int, *, limit: int, failed: bool = False, before: int | None = None
) -> list[CycleRecord]:
    """Return the newest cycles, newest first; with ``before``, those before that cycle."""
    params: dict[str, Any] = {"query": query, "limit": limit, "failed": failed, "before": before}
    async with database.connection() as conn:
        rows = await (await conn.execute(_sql["cycles"], params)).fetchall()
    return [CycleRecord(*row) for row in rows]


async def read_activity(database: Database, query: int, span: timedelta) -> Activity | None:
    """Return the totals of the last ``span``; None if the query does not exist."""
    async with database.connection() as conn:
        row = await (await conn.execute(_sql["activity"], {"query": query, "span": span})).fetchone()
    return None if row is None else Activity(*row)

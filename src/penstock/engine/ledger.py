"""The ledger of a query: what each of its cycles did, and all of them of late. Needs no Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from penstock.db.pool import Database
from penstock.db.statements import Statements

_sql = Statements("penstock.engine", "ledger.sql")

#: The part of a cycle's time in which Spark's answer lay there, and the cycle before was yet to be committed.
COMMIT_BEFORE = "commit before"


@dataclass(frozen=True, slots=True)
class Cycle:
    """One cycle; what it came to is None unless it was committed."""

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
    #: What conditions in Python left out.
    dropped: int | None
    #: Milliseconds of each part.
    took: dict[str, float] | None
    error: str | None
    #: When the oldest event that it read was appended.
    oldest_at: datetime | None
    #: Up to where event time had come, where windows close by it.
    watermark: datetime | None

    @property
    def state(self) -> str:
        """In a word."""
        if self.error is not None:
            return "failed"
        return "planned" if self.committed_at is None else "committed"

    @property
    def seconds(self) -> float | None:
        """From its plan to its commit, without waiting for the commit of the one before it."""
        if self.committed_at is None:
            return None
        waited = (self.took or {}).get(COMMIT_BEFORE, 0.0) / 1000
        return max(0.0, (self.committed_at - self.planned_at).total_seconds() - waited)


@dataclass(frozen=True, slots=True)
class Activity:
    """What a query has done within some time."""

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


async def cycles_of(
    database: Database, query: int, *, limit: int, failed: bool = False, before: int | None = None
) -> list[Cycle]:
    """The newest cycles, the newest first; those before one, if that is given."""
    params: dict[str, Any] = {"query": query, "limit": limit, "failed": failed, "before": before}
    async with database.connection() as conn:
        rows = await (await conn.execute(_sql["cycles"], params)).fetchall()
    return [Cycle(*row) for row in rows]


async def activity_of(database: Database, query: int, span: timedelta) -> Activity | None:
    """What a query has done in the last while; None if it is gone."""
    async with database.connection() as conn:
        row = await (await conn.execute(_sql["activity"], {"query": query, "span": span})).fetchone()
    return None if row is None else Activity(*row)

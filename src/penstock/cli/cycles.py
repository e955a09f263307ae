"""The ledger of a query: what each of its cycles did, and all of them of late."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from penstock.db.statements import Statements

if TYPE_CHECKING:
    from penstock.cli.session import Opened

_sql = Statements("penstock.cli", "cycles.sql")


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
    #: Milliseconds of each part.
    took: dict[str, float] | None
    error: str | None

    @property
    def state(self) -> str:
        """In a word."""
        if self.error is not None:
            return "failed"
        return "planned" if self.committed_at is None else "committed"

    @property
    def seconds(self) -> float | None:
        """From its plan to its commit."""
        return None if self.committed_at is None else (self.committed_at - self.planned_at).total_seconds()


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


async def cycles_of(opened: Opened, query: int, *, limit: int, failed: bool) -> list[Cycle]:
    """The newest cycles, the newest first."""
    params: dict[str, Any] = {"query": query, "limit": limit, "failed": failed}
    async with opened.database.connection() as conn:
        rows = await (await conn.execute(_sql["cycles"], params)).fetchall()
    return [Cycle(*row) for row in rows]


async def activity_of(opened: Opened, query: int, span: timedelta) -> Activity | None:
    """What a query has done in the last while; None if it is gone."""
    async with opened.database.connection() as conn:
        row = await (await conn.execute(_sql["activity"], {"query": query, "span": span})).fetchone()
    return None if row is None else Activity(*row)

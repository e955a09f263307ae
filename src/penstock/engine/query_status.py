"""The status of a running query, and its formatting as a line of text."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import psycopg

from penstock.core.errors import PenstockError
from penstock.core.formatting import counted
from penstock.db.pool import Database
from penstock.db.statements import Statements

_sql = Statements("penstock.engine", "query_status.sql")

#: Lag and open windows are counted at this interval, or less often if counting would take over 2 % of the time.
_POLL_SECONDS = 1.0
_POLL_FACTOR = 50
#: The rate is measured over at least this period.
_RATE_SECONDS = 1.0


@dataclass
class Status:
    """Counts of a query since its start, and its current state."""

    state: str = "starting"
    #: True while a command pauses the query.
    paused: bool = False
    events_in: int = 0
    events_out: int = 0
    #: Closed windows.
    windows: int = 0
    late: int = 0
    dead: int = 0
    #: Events that Python filters dropped.
    dropped: int = 0
    #: Unread events and open windows; None until they are counted.
    lag: int | None = None
    open_windows: int | None = None
    cycles: int = 0
    failed_cycles: int = 0
    started_at: float = field(default_factory=time.monotonic)
    stopped_at: float | None = None
    error: str | None = None

    @property
    def summary(self) -> str:
        """The state, or "paused" for a running query that is paused."""
        return "paused" if self.paused and self.state == "running" else self.state


async def refresh_backlog(database: Database, query: int, status: Status) -> None:
    """Count the unread events and the open windows of a query."""
    async with database.connection() as conn:
        row = await (await conn.execute(_sql["lag"], {"query": query})).fetchone()
        if row is None:
            return
        status.lag, has_windows = row
        if has_windows:
            counted = await (await conn.execute(_sql["open_windows"].replace("{id}", str(int(query))))).fetchone()
            status.open_windows = None if counted is None else counted[0]


async def poll_backlog(database: Database, query: int, status: Status) -> None:
    """Refresh the backlog until this is cancelled."""
    while True:
        began = time.monotonic()
        try:
            await refresh_backlog(database, query, status)
        except (PenstockError, psycopg.Error):
            status.lag = status.open_windows = None
        await asyncio.sleep(max(_POLL_SECONDS, _POLL_FACTOR * (time.monotonic() - began)))


class StatusReporter:
    """Formats the status of a query, with its current rate."""

    def __init__(self, status: Status) -> None:
        self.status = status
        self._measured_at = time.monotonic()
        self._measured_events = status.events_in
        self._rate = 0.0

    @property
    def events_per_second(self) -> float:
        """The current rate of events read; for an ended query, the mean rate."""
        status = self.status
        if status.stopped_at is not None:
            return status.events_in / max(status.stopped_at - status.started_at, 0.001)
        elapsed = time.monotonic() - self._measured_at
        if elapsed >= _RATE_SECONDS:
            self._rate = (status.events_in - self._measured_events) / elapsed
            self._measured_at += elapsed
            self._measured_events = status.events_in
        return self._rate

    def format_line(self) -> str:
        status = self.status
        parts = [status.summary, f"{counted(status.events_in, 'event')} ({self.events_per_second:,.0f}/s)"]
        if status.lag is not None:
            parts.append(f"{status.lag:,} behind")
        if status.open_windows is not None:
            parts.append(f"{counted(status.open_windows, 'window')} open and {status.windows:,} closed")
        else:
            parts.append(f"{counted(status.events_out, 'event')} out")
        parts += [f"{status.late:,} late", counted(status.dead, "dead letter")]
        return ", ".join(parts)

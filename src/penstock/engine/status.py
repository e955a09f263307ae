"""What a query has done since it was started and where it is, for programs and for people."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import psycopg

from penstock.core.errors import PenstockError
from penstock.db.pool import Database
from penstock.db.statements import Statements

_sql = Statements("penstock.engine", "status.sql")

#: Lag and open windows are looked up so often, and less often where that takes long: a fiftieth of the time, no more.
_LOOK_SECONDS = 1.0
_SHARE = 50
#: A rate is that of the last second, or more.
_RATE_SECONDS = 1.0


@dataclass
class Status:
    """What a query has done since it was started, and where it is."""

    state: str = "starting"
    #: Whether somebody has asked it to begin no more cycles for now.
    paused: bool = False
    events_in: int = 0
    events_out: int = 0
    #: How many windows it has closed.
    windows: int = 0
    late: int = 0
    dead: int = 0
    #: How many events conditions in Python have left out.
    dropped: int = 0
    #: How many events it has yet to read, and how many windows are open; None as long as nobody has looked.
    lag: int | None = None
    open_windows: int | None = None
    cycles: int = 0
    failed_cycles: int = 0
    started_at: float = field(default_factory=time.monotonic)
    stopped_at: float | None = None
    last_cycle_seconds: float = 0.0
    error: str | None = None

    @property
    def summary(self) -> str:
        """The state in a word."""
        return "paused" if self.paused and self.state == "running" else self.state


async def look(database: Database, query: int, status: Status) -> None:
    """Look up how far behind the query is, and how many of its windows are open."""
    async with database.connection() as conn:
        row = await (await conn.execute(_sql["lag"], {"query": query})).fetchone()
        if row is None:
            return
        status.lag = row[0]
        if row[1]:
            counted = await (await conn.execute(_sql["open_windows"].replace("{id}", str(int(query))))).fetchone()
            status.open_windows = None if counted is None else counted[0]


async def keep_looking(database: Database, query: int, status: Status) -> None:
    """Look again and again."""
    while True:
        began = time.monotonic()
        try:
            await look(database, query, status)
        except (PenstockError, psycopg.Error):
            status.lag = status.open_windows = None
        await asyncio.sleep(max(_LOOK_SECONDS, _SHARE * (time.monotonic() - began)))


class Meter:
    """How fast a query is, from one look to the next."""

    def __init__(self, status: Status) -> None:
        self.status = status
        self._last = (time.monotonic(), status.events_in)
        self._rate = 0.0

    @property
    def per_second(self) -> float:
        """Events read per second: of late, or of a query that has ended, all the time."""
        if self.status.stopped_at is not None:
            return self.status.events_in / max(self.status.stopped_at - self.status.started_at, 0.001)
        now, seen = time.monotonic(), self.status.events_in
        if now - self._last[0] >= _RATE_SECONDS:
            self._rate = (seen - self._last[1]) / (now - self._last[0])
            self._last = (now, seen)
        return self._rate

    def line(self) -> str:
        """All of it, for a person."""
        status = self.status
        parts = [status.summary, f"{status.events_in:,} events ({self.per_second:,.0f}/s)"]
        if status.lag is not None:
            parts.append(f"{status.lag:,} behind")
        if status.open_windows is not None:
            parts.append(f"{status.open_windows:,} windows open and {status.windows:,} closed")
        else:
            parts.append(f"{status.events_out:,} events out")
        parts += [f"{status.late:,} late", f"{status.dead:,} dead letters"]
        return ", ".join(parts)

"""What sinks have done, where metrics and SQL find it: a row for each, to which the processes that run it add."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import psycopg

from penstock.core.errors import DatabaseError
from penstock.db.statements import Statements
from penstock.sinks.options import Counters

if TYPE_CHECKING:
    from penstock.db.pool import Database
    from penstock.sinks.worker import Outlet

_sql = Statements("penstock.sinks", "stats.sql")

#: How often what has changed is written, and how often a sink that does nothing says that it is there.
_EVERY_SECONDS = 1.0
_SIGN_OF_LIFE_SECONDS = 10.0
_COUNTED = ("written", "batches", "retries", "busy", "dead_letters", "lost")


@dataclass(slots=True)
class _Told:
    """What was last written of an outlet."""

    counters: Counters
    at: float


class Totals:
    """Writes the counters of some outlets to the database while they run. What cannot be written is, the next time."""

    def __init__(self, database: Database, outlets: Sequence[Outlet]) -> None:
        self._database = database
        self._outlets = outlets
        self._told = {outlet: _Told(Counters(), float("-inf")) for outlet in outlets}

    async def keep_writing(self) -> None:
        """Write every so often, until cancelled."""
        while True:
            await self.write()
            await asyncio.sleep(_EVERY_SECONDS)

    async def write(self) -> None:
        """Write what has changed since the last time."""
        now = asyncio.get_running_loop().time()
        some = [(outlet, replace(outlet.counters)) for outlet in self._outlets if self._has_news(outlet, now)]
        if not some:
            return
        with contextlib.suppress(DatabaseError, psycopg.Error, TimeoutError):
            async with self._database.connection() as conn:
                rows = await (await conn.execute(_sql["add"], self._params(some))).fetchall()
            for outlet, counters in some:
                if (outlet.queue, outlet.group) in rows:
                    self._told[outlet] = _Told(counters, now)

    def _has_news(self, outlet: Outlet, now: float) -> bool:
        told = self._told[outlet]
        if outlet.stands_by or outlet.counters == told.counters == Counters():
            return False  # it has not begun, and another process may have: that one says how it goes
        return told.counters != outlet.counters or now - told.at >= _SIGN_OF_LIFE_SECONDS

    def _params(self, some: Sequence[tuple[Outlet, Counters]]) -> dict[str, list[object]]:
        params: dict[str, list[object]] = {
            "queues": [outlet.queue for outlet, _ in some],
            "groups": [outlet.group for outlet, _ in some],
            "guarantees": [outlet.sink.guarantee for outlet, _ in some],
            "running": [counters.running for _, counters in some],
            "resting": [outlet.sink.is_resting for outlet, _ in some],
            "errors": [counters.error for _, counters in some],
        }
        for name in _COUNTED:
            params[name] = [
                getattr(counters, name) - getattr(self._told[outlet].counters, name) for outlet, counters in some
            ]
        return params

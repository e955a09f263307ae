"""Writes the counters of sinks to the database."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import psycopg

from penstock.core.errors import DatabaseError
from penstock.db.statements import Statements
from penstock.sinks.sink_options import Counters

if TYPE_CHECKING:
    from penstock.db.pool import Database
    from penstock.sinks.delivery.sink_worker import SinkWorker

_sql = Statements("penstock.sinks.delivery", "sink_stats.sql")

_WRITE_SECONDS = 1.0
#: The interval of writes for a sink whose counters do not change.
_HEARTBEAT_SECONDS = 10.0
_COUNTS = ("written", "batches", "retries", "busy", "dead_letters", "lost")


@dataclass(slots=True)
class _LastWrite:
    counters: Counters
    at: float


class SinkStatsWriter:
    """Adds the counters of sink workers to the rows of their groups. A write that fails is repeated with the next."""

    def __init__(self, database: Database, workers: Sequence[SinkWorker]) -> None:
        self._database = database
        self._workers = workers
        self._last_writes = {worker: _LastWrite(Counters(), float("-inf")) for worker in workers}

    async def run(self) -> None:
        """Write every second until cancelled."""
        while True:
            await self.write()
            await asyncio.sleep(_WRITE_SECONDS)

    async def write(self) -> None:
        """Write the counters that have changed since the last write."""
        now = asyncio.get_running_loop().time()
        changed = {worker: replace(worker.counters) for worker in self._workers if self._is_due(worker, now)}
        if not changed:
            return
        with contextlib.suppress(DatabaseError, psycopg.Error, TimeoutError):
            async with self._database.connection() as conn:
                groups = await (await conn.execute(_sql["add"], self._params(changed))).fetchall()
            for worker, counters in changed.items():
                if (worker.queue, worker.group) in groups:
                    self._last_writes[worker] = _LastWrite(counters, now)

    def _is_due(self, worker: SinkWorker, now: float) -> bool:
        last = self._last_writes[worker]
        if worker.is_standby or worker.counters == last.counters == Counters():
            return False  # the worker has not started, and another process may write the row
        return last.counters != worker.counters or now - last.at >= _HEARTBEAT_SECONDS

    def _params(self, changed: dict[SinkWorker, Counters]) -> dict[str, list[object]]:
        params: dict[str, list[object]] = {
            "queues": [worker.queue for worker in changed],
            "groups": [worker.group for worker in changed],
            "guarantees": [worker.sink.guarantee for worker in changed],
            "running": [counters.running for counters in changed.values()],
            "resting": [worker.sink.is_resting for worker in changed],
            "errors": [counters.error for counters in changed.values()],
        }
        for name in _COUNTS:
            params[name] = [
                getattr(counters, name) - getattr(self._last_writes[worker].counters, name)
                for worker, counters in changed.items()
            ]
        return params

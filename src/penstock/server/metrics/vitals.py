"""Vitals: the values of the overview at one time, and their record of the last day.

One process records a row every ten seconds: a worker of the server, or the console if no server runs. The table is
``penstock.vitals``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import psycopg
from psycopg.rows import class_row

from penstock.core.errors import PenstockError
from penstock.core.lock_file import LockFile
from penstock.db.pool import Connection, Database
from penstock.db.scalar import fetch_scalar
from penstock.db.statements import Statements
from penstock.server.metrics import database_metrics
from penstock.server.metrics.database_metrics import DatabaseMetrics
from penstock.server.metrics.overview_snapshot import LabelValues, OverviewSnapshot, take_snapshot

logger = logging.getLogger("penstock.server")

_sql = Statements("penstock.server.metrics", "vitals.sql")

#: Time between two recorded rows.
RECORD_SECONDS = 10.0
#: Time from the start of a process to its first row.
_START_SECONDS = 1.0
#: Two values further apart than this have a gap between them: nobody recorded, or the recorder changed.
MAX_GAP_SECONDS = 25.0
#: Another process takes over when the newest row is older than this.
_TAKEOVER_SECONDS = 15.0
_LOCK_NAME = "vitals.lock"
#: The transaction lock of a process that adds a row.
_RECORD_LOCK = 0x70656E7374766974


@dataclass(frozen=True, slots=True)
class Vitals:
    """The values of the overview at one time, in milliseconds since the epoch. Unknown values are None."""

    at: int
    pushed: float | None = None
    read: float | None = None
    results: float | None = None
    freshness: float | None = None
    backlog: float | None = None
    dead: float | None = None
    firing: float | None = None


class VitalsRecorder:
    """Records the vitals of all queues, while no other process does.

    Of the workers that share ``directory``, one holds a lock on a file there. The others do not ask the database.
    """

    def __init__(self, database: Database, source: DatabaseMetrics, directory: Path | None = None) -> None:
        self._database = database
        self._source = source
        self._directory = directory
        self._last_snapshot: OverviewSnapshot | None = None
        #: The time of the last row that this process added.
        self._recorded_at: datetime | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Record in the background until the block ends."""
        lock = None if self._directory is None else LockFile(self._directory / _LOCK_NAME)
        task = asyncio.create_task(self._run(lock))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            if lock is not None:
                lock.close()

    async def _run(self, lock: LockFile | None) -> None:
        await asyncio.sleep(_START_SECONDS)
        while True:
            try:
                if lock is None or lock.try_acquire():
                    await self.record()
            except (psycopg.Error, PenstockError, TimeoutError) as error:
                logger.debug("vitals were not recorded: %s", error)
            await asyncio.sleep(RECORD_SECONDS)

    async def record(self) -> bool:
        """Add a row if it is this process's turn, delete rows older than a day, and return whether a row was added."""
        async with self._database.connection() as conn:
            if not await self._is_turn(conn):
                self._last_snapshot = None
                return False
        samples = await self._source.read()
        # Samples that take long to read are reused. The same ones again would look like a rate of 0.
        last = self._last_snapshot
        if not samples.is_complete or (last is not None and last.samples.at == samples.at):
            return False
        async with self._database.connection() as conn:
            snapshot = await take_snapshot(conn, samples)
            vitals = compute_vitals(last, snapshot, lambda _: True, can_see_all=True)
            self._last_snapshot = snapshot
            async with conn.transaction():
                await conn.execute(_sql["lock"], {"lock": _RECORD_LOCK})
                if not await self._is_turn(conn):
                    return False
                recorded_at = await fetch_scalar(conn, _sql["insert"], dataclasses.asdict(vitals))
                await conn.execute(_sql["delete_old"])
            self._recorded_at = recorded_at
        return True

    async def _is_turn(self, conn: Connection) -> bool:
        """Return whether this process added the newest row, or nobody has added one for some time."""
        params = {"mine": self._recorded_at, "seconds": _TAKEOVER_SECONDS}
        return bool(await fetch_scalar(conn, _sql["is_turn"], params))


async def read_vitals(conn: Connection, seconds: float, step: float = RECORD_SECONDS) -> list[Vitals]:
    """Return the recorded rows of the last ``seconds``, oldest first: the mean of each step that has rows."""
    cursor = conn.cursor(row_factory=class_row(Vitals))
    return await (await cursor.execute(_sql["read"], {"seconds": seconds, "step": step})).fetchall()


def compute_vitals(
    before: OverviewSnapshot | None, now: OverviewSnapshot, can_see: Callable[[str], bool], can_see_all: bool
) -> Vitals:
    """Return the values of a snapshot for a viewer. Rates are those since the snapshot before."""
    if before is not None and not 0 < now.at - before.at <= MAX_GAP_SECONDS * 1000:
        before = None
    lags = _visible(now.values(database_metrics.GROUP_LAG), can_see)
    return Vitals(
        now.at,
        pushed=_rate(before, now, lambda snapshot: _pushed(snapshot, can_see)),
        read=_rate(before, now, lambda snapshot: _visible(snapshot.events_read(), can_see)),
        results=_rate(before, now, lambda snapshot: snapshot.values(database_metrics.QUERY_OUTPUTS))
        if can_see_all
        else None,
        freshness=_mean_freshness(before, now) if can_see_all else None,
        backlog=sum(lags.values()),
        dead=sum(_visible(now.values(database_metrics.DEAD_LETTERS), can_see).values()),
        firing=now.firing_count if can_see_all else 0,
    )


def _visible(values: LabelValues, can_see: Callable[[str], bool]) -> LabelValues:
    """Return the values whose first label is a queue that the viewer can see."""
    return {labels: value for labels, value in values.items() if can_see(labels[0])}


def _pushed(snapshot: OverviewSnapshot, can_see: Callable[[str], bool]) -> LabelValues:
    """Return the number of events that producers, not queries or rules, have appended to each queue."""
    appended = _visible(snapshot.values(database_metrics.QUEUE_APPENDED), can_see)
    return {(queue,): value for (queue,), value in appended.items() if queue not in snapshot.output_queues}


def _rate(
    before: OverviewSnapshot | None, now: OverviewSnapshot, count: Callable[[OverviewSnapshot], LabelValues]
) -> float | None:
    """Return the growth per second of the sum of counters."""
    if before is None:
        return None
    earlier = count(before)
    # A counter decreases if a group seeks backwards or a queue is created again. It then adds nothing.
    growth = sum(max(0.0, value - earlier[labels]) for labels, value in count(now).items() if labels in earlier)
    return growth / (now.at - before.at) * 1000


def _mean_freshness(before: OverviewSnapshot | None, now: OverviewSnapshot) -> float | None:
    """Return the mean freshness of the cycles that were committed between two snapshots."""
    if before is None:
        return None
    cycles = seconds = 0.0
    earlier = before.histograms(database_metrics.FRESHNESS)
    for labels, histogram in now.histograms(database_metrics.FRESHNESS).items():
        last = earlier.get(labels)
        if last is not None:
            cycles += sum(histogram.counts) - sum(last.counts)
            seconds += histogram.sum - last.sum
    return max(0.0, seconds / cycles) if cycles > 0 else None

"""The vitals of the last minutes: snapshots while somebody looks, and recorded rows before and between them."""

from __future__ import annotations

import asyncio
from collections import deque

from psycopg.rows import class_row

from penstock.db.pool import Connection, Database
from penstock.db.statements import Statements
from penstock.server.metrics.database_metrics import DatabaseMetrics
from penstock.server.metrics.overview_snapshot import OverviewSnapshot, take_snapshot
from penstock.server.metrics.vitals import MAX_GAP_SECONDS, Vitals, read_vitals

_sql = Statements("penstock.console.data", "overview_history.sql")

#: Number of snapshots in memory: five minutes at one per second.
MAX_SNAPSHOTS = 300
#: Resolution of the history that is read from the ledgers of queries.
_LEDGER_STEP_SECONDS = 5.0


class OverviewHistory:
    """Takes snapshots and keeps the last ones."""

    def __init__(self, database: Database, source: DatabaseMetrics) -> None:
        self._database = database
        self._source = source
        self._lock = asyncio.Lock()
        self.snapshots: deque[OverviewSnapshot] = deque(maxlen=MAX_SNAPSHOTS)
        #: Vitals of the minutes before the last gap between snapshots ended.
        self.recorded: list[Vitals] = []

    async def refresh(self) -> deque[OverviewSnapshot]:
        """Add a snapshot if there are new samples, and return all snapshots, oldest first."""
        # Several pollers read the snapshots. A second snapshot of the same samples would look like a rate of 0.
        async with self._lock:
            samples = await self._source.read()
            last = self.snapshots[-1] if self.snapshots else None
            if last is None or last.samples.at != samples.at:
                async with self._database.connection() as conn:
                    snapshot = await take_snapshot(conn, samples)
                    if is_gap(last, snapshot):
                        self.recorded = await read_vitals(conn, MAX_SNAPSHOTS) or await _read_ledgers(conn)
                    self.snapshots.append(snapshot)
        return self.snapshots


def is_gap(last: OverviewSnapshot | None, now: OverviewSnapshot) -> bool:
    """Return whether polling paused between two snapshots."""
    return last is None or now.at - last.at > MAX_GAP_SECONDS * 1000


async def _read_ledgers(conn: Connection) -> list[Vitals]:
    """Return what the ledgers of queries tell about the last minutes, if nobody recorded vitals."""
    cursor = conn.cursor(row_factory=class_row(Vitals))
    await cursor.execute(_sql["ledger_vitals"], {"step": _LEDGER_STEP_SECONDS, "seconds": MAX_SNAPSHOTS})
    return await cursor.fetchall()

"""What the database knows about the release buffer: the cycles that filled it and the evicted partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.db.pg_arrays import int_array
from penstock.db.statements import Statements
from penstock.engine.cycle.cycle_ledger import delete_old_cycles, finish_cycle, widen_search
from penstock.engine.cycle.models import CommitStats, CommitTarget, CycleResult
from penstock.engine.cycle.query_lock import lock_query
from penstock.engine.gates.buffer import BufferedPartition
from penstock.engine.gates.release import lock_for_release

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.log.log import Log

_sql = Statements("penstock.engine.gates", "release.sql")
_commit = Statements("penstock.engine.cycle", "commit.sql")

#: Old reports and cycles are deleted once in so many cycles.
_CLEANUP_CYCLES = 1_000


class BufferLedger:
    """Records how cycles fill the buffer of one query, and what is evicted from it."""

    def __init__(self, log: Log, target: CommitTarget) -> None:
        self._log = log
        self._target = target
        self._cleanups = 0

    async def record_cycle(self, result: CycleResult, stale: Sequence[int]) -> None:
        """Mark a cycle as done, and partitions as evicted whose events the buffer could not take."""
        target, cycle = self._target, result.plan.cycle
        # A cycle that only fills the buffer commits no events.
        stats = CommitStats(dropped=sum(sum(report.dropped.values()) for report in result.reports))
        async with self._log.database.connection() as conn, conn.transaction():
            await conn.execute("SET LOCAL synchronous_commit = off")
            search = (await lock_query(conn, target)).poison_search
            await finish_cycle(conn, target, result, stats)
            if stale:
                params = {"query": target.query_id, "cycle": cycle, "partitions": int_array(stale)}
                await conn.execute(_sql["record_eviction"], params)
            if search is not None:
                params = {
                    "query": target.query_id,
                    "fence": target.fence,
                    "suspicion": widen_search(search, result.plan),
                }
                await conn.execute(_commit["store_poison_search"], params)
            if cycle // _CLEANUP_CYCLES != self._cleanups:
                self._cleanups = cycle // _CLEANUP_CYCLES
                await delete_old_cycles(conn, target, cycle)

    async def record_eviction(self, conn: AsyncConnection[Any], partitions: Sequence[BufferedPartition]) -> int:
        """Mark partitions as evicted, and return the last cycle whose events of them are evicted."""
        async with conn.transaction():
            last_cycle = (await lock_for_release(conn, self._target)).cycle - 1
            params = {
                "query": self._target.query_id,
                "cycle": last_cycle,
                "partitions": int_array([partition.partition_id for partition in partitions]),
            }
            await conn.execute(_sql["record_eviction"], params)
        return last_cycle

"""Steps that the commits of cycles and the releases of gates share: connect, lock, move positions, end the cycle."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from penstock.core.errors import LeaseLost
from penstock.db.pg_arrays import int_array
from penstock.db.pool import Database
from penstock.db.statements import Statements
from penstock.engine.cycle.cycle_result import CommitStats, CommitTarget, CycleResult
from penstock.engine.cycle_plan import CyclePlan
from penstock.engine.planning import poison_search


async def open_commit_connection(database: Database, lease_seconds: float) -> AsyncConnection[Any]:
    """Open a connection with the session settings of commits.

    PostgreSQL ends a transaction that is idle for longer than the lease. A driver that hangs in a transaction
    therefore does not hold the lock on the query's row after another driver takes the query over.
    """
    conn = await database.connect()
    await conn.execute(_sql["configure_connection"], {"idle_timeout": f"{lease_seconds * 1000:.0f}ms"})
    return conn


_sql = Statements("penstock.engine.cycle", "commit.sql")


class LockedQuery(NamedTuple):
    """The columns of a query's row that a commit needs."""

    fence: int
    #: The watermark of all partitions together.
    closed_us: int | None
    now: datetime
    poison_search: bytes | None
    #: True if a source queue was repartitioned.
    is_repartitioned: bool


async def lock_query(conn: AsyncConnection[Any], target: CommitTarget) -> LockedQuery:
    """Lock the query's row. Raises LeaseLost if another driver took over the query, or if it was deleted."""
    row = await (await conn.execute(_sql["lock_query"], {"query": target.query_id})).fetchone()
    if row is None:
        raise LeaseLost(f"query {target.name!r} was deleted")
    query = LockedQuery(*row)
    if query.fence != target.fence:
        raise LeaseLost(f"query {target.name!r} was taken over by another driver")
    return query


class PositionMove(NamedTuple):
    """The position of a group in a partition, before and after a commit."""

    group_id: int
    partition_id: int
    start: int
    stop: int


async def advance_positions(
    conn: AsyncConnection[Any], query: str, moves: Sequence[PositionMove], now: datetime
) -> None:
    """Move positions. Raises LeaseLost if one of them is not where the commit started."""
    if not moves:
        return
    params = {
        "groups": int_array([move.group_id for move in moves]),
        "partitions": int_array([move.partition_id for move in moves]),
        "starts": int_array([move.start for move in moves]),
        "stops": int_array([move.stop for move in moves]),
        "now": now,
    }
    row = await (await conn.execute(_sql["advance_positions"], params)).fetchone()
    if row != (len(moves),):
        raise LeaseLost(
            f"query {query!r}: the positions of its group were changed by others, so it restarts at the new positions"
        )


_reports = Statements("penstock.engine.worker", "task_reports.sql")

#: The ledger keeps so many cycles of a query.
LEDGER_CYCLES = 10_000


async def finish_cycle(
    conn: AsyncConnection[Any],
    target: CommitTarget,
    result: CycleResult,
    stats: CommitStats,
    *,
    oldest: datetime | None = None,
    watermark: datetime | None = None,
) -> None:
    """Record a cycle with its counts. ``oldest`` is when the oldest of its events was appended."""
    params = {
        "query": target.query_id,
        "cycle": result.plan.cycle,
        "started": result.started_at,
        "events_in": stats.events_in,
        "events_out": stats.events_out,
        "windows": stats.windows,
        "late": stats.late,
        "dead": stats.dead,
        "dropped": stats.dropped,
        "changes": stats.changes,
        "took": json.dumps({name: round(ms, 1) for name, ms in result.took.items()}),
        "oldest": oldest,
        "watermark": watermark,
    }
    await conn.execute(_sql["finish_cycle"], params)


def widen_search(search: bytes | None, plan: CyclePlan) -> bytes | None:
    """Return the stored search for a poison event after a cycle was finished; None if no suspects are left."""
    if search is None:
        return None
    remaining = poison_search.after_success(poison_search.decode(search), plan)
    return None if remaining is None else poison_search.encode(remaining)


async def delete_old_cycles(conn: AsyncConnection[Any], target: CommitTarget, cycle: int) -> None:
    """Delete the reports of finished cycles, and cycles that leave the ledger."""
    params = {"query": target.query_id, "fence": target.fence, "cycle": cycle}
    await conn.execute(_reports["delete_reports"], params)
    await conn.execute(_sql["delete_old_cycles"], {**params, "cycle": cycle - LEDGER_CYCLES})

"""Writes finished cycles to the ledger, and deletes old ones."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection

from penstock.db.statements import Statements
from penstock.engine.cycle.models import CommitStats, CommitTarget, CycleResult
from penstock.engine.plan import CyclePlan
from penstock.engine.planning import poison_search

_sql = Statements("penstock.engine.cycle", "commit.sql")
_reports = Statements("penstock.engine.worker", "reports.sql")

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

"""Parks the cursors of groups in partitions that are drained and idle, so that pops skip them."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from penstock.core.clock import Clock
from penstock.db.statements import Statements
from penstock.log.queue import Queue

_sql = Statements("penstock.log.storage", "idle_cursors.sql")

_IDLE_SECONDS = 5.0


async def park_idle_cursors(conn: AsyncConnection[Any], queue: Queue, clock: Clock) -> int:
    """Park the cursors of drained and idle partitions, so that pops skip them. Return how many."""
    if queue.partitioning == "hash" and queue.epoch == 0:
        return 0  # hash partitions are few, and all in use
    params: dict[str, Any] = {"queue": queue.id, "skew": clock.skew, "seconds": _IDLE_SECONDS}
    idle = await (await conn.execute(_sql.table("idle_cursors", queue.id, queue.segment), params)).fetchall()
    if not idle:
        return 0
    async with conn.transaction():
        cursors = await (await conn.execute(_sql["try_lock_cursors"], _cursor_params(idle))).fetchall()
        partition_ids = sorted({partition_id for _group_id, partition_id in cursors})
        rows = await (await conn.execute(_sql["try_lock_partitions"], {"partitions": partition_ids})).fetchall()
        locked = {partition_id for (partition_id,) in rows}
        parkable = [(group_id, partition_id) for group_id, partition_id in cursors if partition_id in locked]
        statement = _sql.table("park", queue.id, queue.segment)
        return (await conn.execute(statement, _cursor_params(parkable))).rowcount


def _cursor_params(cursors: list[tuple[int, int]]) -> dict[str, list[int]]:
    return {
        "groups": [group_id for group_id, _partition_id in cursors],
        "partitions": [partition_id for _group_id, partition_id in cursors],
    }

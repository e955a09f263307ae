"""The partitions of a queue for people who look at them: a page at a time, or where a group is behind."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.core.names import check_text
from penstock.db.statements import Statements
from penstock.log.groups import Group, GroupLane
from penstock.log.options import MAX_COUNT, check_whole

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool

    from penstock.core.clock import Clock
    from penstock.log.queue import Queue

_sql = Statements("penstock.log.storage", "lanes.sql")


@dataclass(frozen=True, slots=True)
class Lane:
    """A partition, and how its groups stand: ``lag`` and ``attempts`` are those of whoever is worst off."""

    id: int
    name: str
    epoch: int
    first: int
    end: int
    last_at: datetime | None
    lag: int
    leases: int
    attempts: int


async def page_of_lanes(
    pool: AsyncConnectionPool[Any], clock: Clock, queue: Queue, search: str | None, limit: int, offset: int
) -> list[Lane]:
    """Partitions by name, those whose name holds ``search``."""
    if search is not None:
        check_text(search, "what is looked for")
    check_whole("limit", limit, 1, 1_000)
    check_whole("offset", offset, 0, MAX_COUNT)
    params = {"queue": queue.id, "search": search, "limit": limit, "offset": offset, "skew": clock.skew}
    order = _sql["by_name" if queue.partition_count is None else "by_number"]
    statement = _sql.table("page", queue.id, queue.segment).replace("{order}", order)
    async with pool.connection() as conn:
        rows = await (await conn.execute(statement, params)).fetchall()
    return [Lane(*row) for row in rows]


async def lanes_behind(
    pool: AsyncConnectionPool[Any], clock: Clock, queue: Queue, group: Group, limit: int
) -> list[GroupLane]:
    """Where the group has most to read, most first."""
    check_whole("limit", limit, 1, 1_000)
    statement = _sql.table("behind", queue.id, queue.segment)
    async with pool.connection() as conn:
        params = {"group": group.id, "limit": limit, "skew": clock.skew}
        rows = await (await conn.execute(statement, params)).fetchall()
    return [GroupLane(*row) for row in rows]

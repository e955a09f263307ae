"""The partitions of a queue and how much each holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.db.statements import Statements

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool

    from penstock.log.catalog import Catalog
    from penstock.log.queue import Queue

_sql = Statements("penstock.log.storage", "partitions.sql")


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: the offsets from ``first`` to before ``end`` are there."""

    id: int
    name: str
    epoch: int
    first: int
    end: int


async def partitions_of(
    pool: AsyncConnectionPool[Any], catalog: Catalog, queue: Queue, limit: int | None = None
) -> list[Partition]:
    """The partitions of all epochs, the fullest first."""
    while True:
        try:
            async with pool.connection() as conn:
                statement = _sql.table("partitions", queue.id, queue.segment)
                rows = await (await conn.execute(statement, {"queue": queue.id, "limit": limit})).fetchall()
            return [Partition(*row) for row in rows]
        except psycopg.errors.UndefinedTable:
            # Its segment was dropped since we looked, or the queue as a whole, which this finds out.
            queue = await catalog.refresh(queue.name)

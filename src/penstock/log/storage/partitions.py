"""The partitions of a queue, with their bounds and the state of their groups."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from penstock.core.clock import Clock
from penstock.core.names import check_text
from penstock.db.statements import Statements, fill_placeholders
from penstock.log.catalog import Catalog
from penstock.log.queue import Queue
from penstock.log.queue_options import MAX_COUNT, check_integer

_sql = Statements("penstock.log.storage", "partitions.sql")


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition, which holds the offsets from ``first`` to before ``end``."""

    id: int
    name: str
    epoch: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class PartitionStatus(Partition):
    """A partition and the state of its groups: their largest lag, their largest number of attempts, their leases."""

    last_at: datetime | None
    lag: int
    leases: int
    attempts: int


async def list_partitions(
    pool: AsyncConnectionPool[Any],
    catalog: Catalog,
    queue: Queue,
    limit: int | None = None,
    *,
    name: str | None = None,
) -> list[Partition]:
    """Return the partitions of all epochs, or those of one name, the largest first."""
    if limit is not None:
        check_integer("limit", limit, 1, MAX_COUNT)
    params = {"queue": queue.id, "limit": limit, "name": name}
    while True:
        try:
            async with pool.connection() as conn:
                statement = _sql.table("largest_partitions", queue.id, queue.segment)
                rows = await (await conn.execute(statement, params)).fetchall()
            return [Partition(*row) for row in rows]
        except psycopg.errors.UndefinedTable:
            # The segment was dropped meanwhile. If the queue was deleted, this raises NotFound.
            queue = await catalog.refresh(queue.name)


async def read_partition_page(
    pool: AsyncConnectionPool[Any], clock: Clock, queue: Queue, search: str | None, limit: int, offset: int
) -> list[PartitionStatus]:
    """Return a page of partitions by name. ``search`` selects those whose name contains it."""
    if search is not None:
        check_text(search, "the search text")
    check_integer("limit", limit, 1, 1_000)
    check_integer("offset", offset, 0, MAX_COUNT)
    params = {"queue": queue.id, "search": search, "limit": limit, "offset": offset, "skew": clock.skew}
    order = _sql["order_by_name" if queue.partition_count is None else "order_by_number"]
    statement = fill_placeholders(_sql.table("partition_page", queue.id, queue.segment), order=order)
    async with pool.connection() as conn:
        rows = await (await conn.execute(statement, params)).fetchall()
    return [PartitionStatus(*row) for row in rows]

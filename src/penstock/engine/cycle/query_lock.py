"""Locks the row of a query for a commit, and checks that this driver still holds the lease."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from penstock.core.errors import LeaseLost
from penstock.db.statements import Statements
from penstock.engine.cycle.models import CommitTarget

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

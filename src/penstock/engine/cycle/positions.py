"""Advances the positions of a query's consumer groups, in the transaction that commits their events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from penstock.core.errors import LeaseLost
from penstock.db.pg_arrays import int_array
from penstock.db.statements import Statements

_sql = Statements("penstock.engine.cycle", "commit.sql")


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

"""Sessions that have become others: in the transaction that ends a cycle, their rows go over to the new spans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.db.pg_arrays import numbers

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.engine.result_tables import ResultTables

#: A session of a key that is another one now: the old span and whether it had been closed, and the new one.
Move = dict[str, Any]


async def move_open(conn: AsyncConnection[Any], tables: ResultTables, moves: Sequence[Move], now: datetime) -> None:
    """Give open sessions their new spans."""
    for some in _rounds(move for move in moves if not move["__old_closed"]):
        await conn.execute(tables.statement("move_spans"), {**_spans(some), "now": now})


async def take_back(
    conn: AsyncConnection[Any], tables: ResultTables, moves: Sequence[Move], ends: Mapping[int, int], now: datetime
) -> list[tuple[str | None, bytes]]:
    """Give closed sessions their new spans; returns, as events, what has become of the old ones.

    Those are open again that end now after what ``ends`` has of their partition. An event that is late by the time of
    its own partition can bring that about where all of them close windows together, and one has not come so far.
    """
    told: list[tuple[str | None, bytes]] = []
    for some in _rounds(move for move in moves if move["__old_closed"]):
        closers = [move["__p"] for move in some]
        is_open = [p not in ends or move["__we"] > ends[p] for p, move in zip(closers, some, strict=True)]
        params = {**_spans(some), "partitions": numbers(closers), "open": is_open, "now": now}
        rows = await (await conn.execute(tables.statement("take_back"), params)).fetchall()
        told += [
            (key or None, f'{line[:-1]}, "revision" : {revision}, "replaced_by" : {span}}}'.encode())
            for key, revision, line, span in rows
            if line is not None
        ]
    return told


def _rounds(moves: Iterable[Move]) -> list[list[Move]]:
    """Moves that can be made at once; those to one and the same span come one after the other."""
    rounds: list[list[Move]] = []
    seen: dict[tuple[str, int, int], int] = {}
    for move in moves:
        span = (move["__k"], move["__ws"], move["__we"])
        place = seen[span] = seen.get(span, -1) + 1
        if place == len(rounds):
            rounds.append([])
        rounds[place].append(move)
    return rounds


def _spans(moves: Sequence[Move]) -> dict[str, Any]:
    return {
        "keys": [move["__k"] for move in moves],
        "old_starts": numbers([move["__old_ws"] for move in moves]),
        "old_ends": numbers([move["__old_we"] for move in moves]),
        "starts": numbers([move["__ws"] for move in moves]),
        "ends": numbers([move["__we"] for move in moves]),
    }

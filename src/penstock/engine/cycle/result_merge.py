"""Merges partial aggregates and sessions into the result tables and closes windows, within a commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute
from psycopg import AsyncConnection

from penstock.db.pg_arrays import int_array
from penstock.engine.cycle.output_events import ClosedWindow
from penstock.engine.cycle.partials import SessionMove
from penstock.engine.results.arrow_csv import to_csv
from penstock.engine.results.output_rows import OutputEvent
from penstock.engine.results.result_tables import ResultTables
from penstock.engine.worker.event_time import to_timestamp


async def stage_partials(conn: AsyncConnection[Any], tables: ResultTables, partials: pa.Table) -> None:
    if partials.num_rows:
        async with conn.cursor().copy(tables.statement("copy_partials")) as copy:
            await copy.write(to_csv(partials))


async def merge_partials(
    conn: AsyncConnection[Any],
    tables: ResultTables,
    partials: pa.Table,
    closing_ends: Mapping[int, int],
    now: datetime,
) -> list[ClosedWindow]:
    """Merge staged partials, and close the windows that end at or before the time of their partition.

    Returns the windows that were closed or corrected.
    """
    has_late = bool(partials.num_rows) and pa.compute.any(partials.column("is_late")).as_py()
    params = {
        "partitions": int_array(list(closing_ends)),
        "ends": int_array(list(closing_ends.values())),
        "end_times": [to_timestamp(end_us) for end_us in closing_ends.values()],
        "latest": to_timestamp(max(closing_ends.values(), default=0)),
        "now": now,
        "late": False,
    }
    closed: list[ClosedWindow] = []
    if partials.num_rows:
        await conn.execute(tables.statement("merge_open"), params)
    if closing_ends:
        closed += await _close_windows(conn, tables, params)
    if has_late:
        await conn.execute(tables.statement("merge_open"), {**params, "late": True})
        closed += await (await conn.execute(tables.statement("correct_closed"), params)).fetchall()
    return closed


async def _close_windows(
    conn: AsyncConnection[Any], tables: ResultTables, params: dict[str, Any]
) -> list[ClosedWindow]:
    """Close windows. A window is rarely closed twice, and handling that costs a fifth: try without it first."""
    try:
        async with conn.transaction():
            return await (await conn.execute(tables.statement("close_windows", corrects=False), params)).fetchall()
    except psycopg.errors.UniqueViolation:
        return await (await conn.execute(tables.statement("close_windows"), params)).fetchall()


async def merge_open_sessions(
    conn: AsyncConnection[Any], tables: ResultTables, moves: Sequence[SessionMove], now: datetime
) -> None:
    for batch in _independent_batches(move for move in moves if not move.was_closed):
        await conn.execute(tables.statement("move_open_sessions"), {**_to_params(batch), "now": now})


async def merge_closed_sessions(
    conn: AsyncConnection[Any],
    tables: ResultTables,
    moves: Sequence[SessionMove],
    closing_ends: Mapping[int, int],
    now: datetime,
) -> list[OutputEvent]:
    """Move closed sessions. Returns events that tell which session replaces each of the old ones.

    A session is open again if it ends after the time in ``closing_ends`` of its partition. An event that is late in its
    own partition can extend it beyond that time.
    """
    events: list[OutputEvent] = []
    closed = [move for move in moves if move.was_closed and (move.is_extended or _is_open(move, closing_ends))]
    for batch in _independent_batches(closed):
        is_open = [_is_open(move, closing_ends) for move in batch]
        partitions = int_array([move.partition_id for move in batch])
        params = {**_to_params(batch), "partitions": partitions, "open": is_open, "now": now}
        rows = await (await conn.execute(tables.statement("move_closed_sessions"), params)).fetchall()
        events += [
            (key or None, f'{event[:-1]}, "revision" : {revision}, "replaced_by" : {replaced_by}}}'.encode())
            for key, revision, event, replaced_by in rows
            if event is not None
        ]
    return events


def _is_open(move: SessionMove, closing_ends: Mapping[int, int]) -> bool:
    return move.partition_id not in closing_ends or move.end_us > closing_ends[move.partition_id]


def _independent_batches(moves: Iterable[SessionMove]) -> list[list[SessionMove]]:
    """Batches in which no two moves have the same target: one statement cannot update a row twice."""
    batches: list[list[SessionMove]] = []
    counts: dict[tuple[str, int, int], int] = {}
    for move in moves:
        target = (move.key, move.start_us, move.end_us)
        index = counts.get(target, 0)
        counts[target] = index + 1
        if index == len(batches):
            batches.append([])
        batches[index].append(move)
    return batches


def _to_params(moves: Sequence[SessionMove]) -> dict[str, Any]:
    return {
        "keys": [move.key for move in moves],
        "old_starts": int_array([move.old_start_us for move in moves]),
        "old_ends": int_array([move.old_end_us for move in moves]),
        "starts": int_array([move.start_us for move in moves]),
        "ends": int_array([move.end_us for move in moves]),
    }

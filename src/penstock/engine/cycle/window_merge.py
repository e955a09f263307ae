"""Merges partial aggregates into the result tables and closes windows, within a commit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute
from psycopg import AsyncConnection

from penstock.db.pg_arrays import int_array
from penstock.engine.arrow_csv import to_csv
from penstock.engine.cycle.output_events import ClosedWindow
from penstock.engine.result_tables import ResultTables
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

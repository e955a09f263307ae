"""Uploads that are given up, because their producer is silent: when, and how their staged events are deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection

from penstock.core.clock import Clock
from penstock.db.pg_arrays import int_array
from penstock.db.statements import Statements
from penstock.log.queue import Queue

_sql = Statements("penstock.log.write", "upload.sql")
_catalog = Statements("penstock.log", "catalog.sql")

#: How often an upload records that it is active, and after how many seconds without activity it is abandoned.
ACTIVITY_SECONDS = 10.0
ABANDONED_SECONDS = 600.0


async def discard_uploads(conn: AsyncConnection[Any], queue: Queue, upload_ids: Sequence[int]) -> None:
    """Delete the staged rows of uploads in all segments. The uploads are locked."""
    segments = await (await conn.execute(_catalog["segments"], {"queue": queue.id})).fetchall()
    for upload_id in upload_ids:
        for (segment,) in segments:
            await conn.execute(_sql.table("discard", queue.id, segment), {"upload": upload_id})
    await conn.execute(_sql["take"], {"uploads": int_array(upload_ids)})


async def remove_abandoned_uploads(conn: AsyncConnection[Any], queue: Queue, clock: Clock) -> int:
    """Delete the staged rows of uploads without recent activity, and return the number of these uploads."""
    params = {"queue": queue.id, "skew": clock.skew, "seconds": ABANDONED_SECONDS}
    async with conn.transaction():
        rows = await (await conn.execute(_sql["abandoned"], params)).fetchall()
        if rows:
            await discard_uploads(conn, queue, [upload_id for (upload_id,) in rows])
    return len(rows)

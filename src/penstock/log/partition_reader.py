"""Reads the events of a partition by offset, across segments."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from penstock.core.errors import CorruptChunk
from penstock.db.statements import Statements
from penstock.log.event import Delivery, Event
from penstock.log.queue import Queue
from penstock.log.storage.chunk_reader import ChunkRange, find_segment, read_chunks

_sql = Statements("penstock.log", "partition_reader.sql")


async def read_events(
    conn: AsyncConnection[Any],
    queue: Queue,
    partition_id: int,
    start: int,
    limit: int,
    damaged: list[CorruptChunk] | None = None,
) -> list[Event]:
    """Return up to ``limit`` events of a partition from offset ``start`` on.

    Events of damaged chunks are left out, and the chunks are added to ``damaged``. Without that list, the first damaged
    chunk is raised.
    """
    row = await (await conn.execute(_sql["partition"], {"partition": partition_id})).fetchone()
    if row is None:
        return []
    name, is_key_partition = row
    delivery = Delivery(queue.name, name, partition_id, is_key_partition)
    events: list[Event] = []
    while len(events) < limit:
        segment, segment_end = await find_segment(conn, queue, partition_id, start)
        stop = start + limit - len(events)
        if segment_end is not None:
            stop = min(stop, segment_end)
        damaged_before = len(damaged or ())
        by_partition = await read_chunks(conn, queue, [ChunkRange(partition_id, segment, start, stop)], damaged)
        chunks = by_partition.get(partition_id, [])
        for stored in chunks:
            for offset in range(max(stored.first, start), min(stored.end, stop)):
                events.append(Event(delivery, stored, offset))
        is_empty = not chunks and len(damaged or ()) == damaged_before
        if segment_end is None or is_empty:
            break
        start = stop
    return events

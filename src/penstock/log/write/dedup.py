"""Deduplication: finds the ids that a queue has stored within its window, and the location of their events.

An id is stored as a hash of key and id, without the partition, so that it is still known after the queue is
repartitioned. The stored offset has the epoch of the partition in its upper bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from penstock.core.clock import Clock
from penstock.db.pg_arrays import digest_array
from penstock.db.statements import Statements
from penstock.log.catalog import Catalog
from penstock.log.queue import Queue
from penstock.log.write.encode.piece import Piece
from penstock.log.write.flush import EventLocation

_sql = Statements("penstock.log.write", "append.sql")

#: The number of bits of an offset. The bits above them are the epoch.
_OFFSET_BITS = 48


@dataclass(frozen=True, slots=True)
class EventWithId:
    """An event with an id: its piece, its position in it, and the partition that it belongs to."""

    piece: Piece
    position: int
    partition_id: int


class _StoredId(NamedTuple):
    digest: bytes
    stored_offset: int
    location: EventLocation


async def find_stored_ids(
    conn: AsyncConnection[Any], catalog: Catalog, queue: Queue, wanted: Mapping[bytes, EventWithId], clock: Clock
) -> dict[bytes, EventLocation]:
    """Return those of the ids (by hash) that were stored within the window, with the location of the newest event."""
    if not wanted:
        return {}
    newest: dict[bytes, int] = {}
    locations: dict[bytes, EventLocation] = {}
    hashes = {"hashes": digest_array(wanted)}
    for segment in queue.id_segments:
        statement = _sql.table("stored_ids", queue.id, segment)
        rows = await (await conn.execute(statement, hashes, binary=True)).fetchall()
        if not rows:
            continue
        stored_ids = [
            _StoredId(hash.bytes, stored, await _locate(conn, catalog, queue, wanted[hash.bytes], stored))
            for hash, stored in rows
        ]
        params = {
            "partitions": [stored.location.partition_id for stored in stored_ids],
            "offsets": [stored.location.offset for stored in stored_ids],
            "window": queue.dedup_window_seconds,
            "skew": clock.skew,
        }
        statement = _sql.table("still_in_window", queue.id, segment)
        for (ordinal,) in await (await conn.execute(statement, params, binary=True)).fetchall():
            stored = stored_ids[ordinal - 1]
            if stored.stored_offset >= newest.get(stored.digest, 0):
                newest[stored.digest] = stored.stored_offset
                locations[stored.digest] = stored.location
    return locations


def split_epoch_offset(stored: int) -> tuple[int, int]:
    """Return the epoch and the offset that are stored with an id."""
    return stored >> _OFFSET_BITS, stored & ((1 << _OFFSET_BITS) - 1)


async def _locate(
    conn: AsyncConnection[Any], catalog: Catalog, queue: Queue, event: EventWithId, stored: int
) -> EventLocation:
    epoch, offset = split_epoch_offset(stored)
    if epoch == queue.epoch:
        return EventLocation(event.piece.partition, event.partition_id, offset)
    columns = event.piece.columns
    event_id = None if columns.ids is None else columns.ids[event.position]
    earlier = await catalog.at_epoch(conn, queue, epoch)
    name = earlier.partition_for_event(event.piece.keys()[event.position], event_id)
    return EventLocation(name, await catalog.partition_id(conn, earlier, name), offset)

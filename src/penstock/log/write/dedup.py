"""Which ids a queue has seen within its window, and where their events are.

An id is known by its key and itself, whatever the partition, so that it stays known when the queue is partitioned
differently. The stored offset says in its upper bits in which epoch of partitions that was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.db.pg_arrays import digests
from penstock.db.statements import Statements
from penstock.log.write.flush import Elsewhere

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.core.clock import Clock
    from penstock.log.catalog import Catalog
    from penstock.log.queue import Queue
    from penstock.log.write.encode import Piece

_sql = Statements("penstock.log.write", "append.sql")

#: Offsets have this many bits; what is above them is the epoch.
_OFFSET_BITS = 48


@dataclass(frozen=True, slots=True)
class IdOf:
    """The event that brings an id: its place in its piece, and the partition that it is to go to."""

    piece: Piece
    place: int
    partition_id: int


async def find_ids(
    conn: AsyncConnection[Any], catalog: Catalog, queue: Queue, wanted: Mapping[bytes, IdOf], clock: Clock
) -> dict[bytes, int | Elsewhere]:
    """Of these ids, by their hashes, those of events in the window, and where the newest of each is."""
    if not wanted:
        return {}
    newest: dict[bytes, int] = {}
    found: dict[bytes, int | Elsewhere] = {}
    asked = {"hashes": digests(wanted)}
    for segment in queue.id_segments:
        rows = await (await conn.execute(_sql.table("seen_ids", queue.id, segment), asked, binary=True)).fetchall()
        if not rows:
            continue
        seen = [
            (digest.bytes, stored, await _where(conn, catalog, queue, wanted[digest.bytes], stored))
            for digest, stored in rows
        ]
        params = {
            "partitions": [
                at.partition_id if isinstance(at, Elsewhere) else wanted[digest].partition_id for digest, _, at in seen
            ],
            "offsets": [at.offset if isinstance(at, Elsewhere) else at for _, _, at in seen],
            "window": queue.dedup_window_seconds,
            "skew": clock.skew,
        }
        statement = _sql.table("still_in_window", queue.id, segment)
        for (ordinal,) in await (await conn.execute(statement, params, binary=True)).fetchall():
            digest, stored, at = seen[ordinal - 1]
            if stored >= newest.get(digest, 0):
                newest[digest], found[digest] = stored, at
    return found


def split_place(stored: int) -> tuple[int, int]:
    """The epoch and the offset that are stored with an id."""
    return stored >> _OFFSET_BITS, stored & ((1 << _OFFSET_BITS) - 1)


async def _where(
    conn: AsyncConnection[Any], catalog: Catalog, queue: Queue, event: IdOf, stored: int
) -> int | Elsewhere:
    epoch, offset = split_place(stored)
    if epoch == queue.epoch:
        return offset
    columns = event.piece.columns
    event_id = None if columns.ids is None else columns.ids[event.place]
    before = await catalog.as_of(conn, queue, epoch)
    name = before.place_event(event.piece.keys()[event.place], event_id)
    return Elsewhere(name, await catalog.lane_of(conn, before, name), offset)

"""Finds partitions by id and events by their ids.

An event is found by the ids that its queue keeps for deduplication, or by reading a range of offsets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import class_row

from penstock.core.errors import NotFound
from penstock.core.names import find_text_problem
from penstock.db.pg_arrays import digest_array
from penstock.db.retry import run_with_retry
from penstock.db.statements import Statements
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.log.partition_reader import read_events
from penstock.log.queue import DEFAULT_KEY, Queue
from penstock.log.write.dedup import split_epoch_offset

_sql = Statements("penstock.server.queen.delivery", "event_lookup.sql")

_MAX_PARTITIONS = 100_000
#: Decimal digits of the largest offset.
_OFFSET_DIGITS = 18

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class PartitionRef:
    partition_id: int
    queue_id: int
    queue: str
    partition: str
    epoch: int


@dataclass(frozen=True, slots=True)
class LeasedRange:
    """The position of a group in a partition: its next offset, and the end and id of its last lease."""

    next_offset: int
    lease_end: int
    lease_id: UUID | None


class StoredMessage(NamedTuple):
    partition: PartitionRef
    event: Event


class EventLookup:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._partitions: dict[int, PartitionRef] = {}

    async def find_partition(self, partition_id: int | None) -> PartitionRef | None:
        """Return the partition with this id, or None."""
        if partition_id is None:
            return None
        cached = self._partitions.get(partition_id)
        if cached is not None:
            # The queue may have been deleted and created again under the same name.
            try:
                if (await self._log.catalog.get(cached.queue)).id == cached.queue_id:
                    return cached
            except NotFound:
                pass
            del self._partitions[partition_id]
        partition = await self._fetch_one(PartitionRef, "partition", {"partition": partition_id})
        if partition is not None:
            if len(self._partitions) > _MAX_PARTITIONS:
                self._partitions.clear()
            self._partitions[partition_id] = partition
        return partition

    async def find_event(self, partition_id: int | None, event_id: str) -> StoredMessage | None:
        """Return the newest event with this id in a partition, or None. It need not be leased."""
        partition = await self.find_partition(partition_id)
        if partition is None or find_text_problem(event_id) is not None:
            return None
        queue = await self._log.catalog.get(partition.queue)
        offsets = await self.find_deduplicated(queue, partition, [event_id])
        offset = offsets.get(event_id, parse_generated_id(partition, event_id))
        if offset is None:
            return None
        events = await self._run(lambda conn: read_events(conn, queue, partition.partition_id, offset, 1))
        return StoredMessage(partition, events[0]) if events and events[0].id == event_id else None

    async def find_position(self, group_id: int, partition_id: int) -> LeasedRange | None:
        """Return the position of a group in a partition; None if the group has never read from it."""
        return await self._fetch_one(LeasedRange, "position", {"group": group_id, "partition": partition_id})

    async def find_in_range(
        self, queue: Queue, partition_id: int, group_id: int, start: int, end: int, event_ids: Collection[str]
    ) -> dict[str, list[int]]:
        """Return the offsets of these ids from ``start`` up to ``end``, without events that are for another group."""
        offsets: dict[str, list[int]] = {}
        if end > start:
            # The empty list collects damaged chunks: their events have no ids and were not delivered.
            events = await self._run(lambda conn: read_events(conn, queue, partition_id, start, end - start, []))
            for event in events:
                if event.id in event_ids and event.target_group in (None, group_id):
                    offsets.setdefault(event.id, []).append(event.offset)
        return offsets

    async def find_deduplicated(
        self, queue: Queue, partition: PartitionRef, event_ids: Iterable[str]
    ) -> dict[str, int]:
        """Return the newest offset of each of these ids that is in the deduplication window of the queue."""
        keys = ["", DEFAULT_KEY] if partition.partition == DEFAULT_KEY else [partition.partition]
        # The same hash as in penstock.log.write.encode.event_mappings.
        hashes = {
            blake2b(f"{key}\0{event_id}".encode(), digest_size=16).digest(): event_id
            for event_id in event_ids
            if find_text_problem(event_id) is None
            for key in keys
        }
        if not hashes or queue.dedup_window_seconds <= 0:
            return {}

        async def read(conn: AsyncConnection[Any]) -> dict[str, int]:
            offsets: dict[str, int] = {}
            for segment in reversed(queue.id_segments):
                statement = _sql.table("deduplicated_ids", queue.id, segment)
                try:
                    rows = await (await conn.execute(statement, {"hashes": digest_array(hashes)})).fetchall()
                except psycopg.errors.UndefinedTable:
                    continue  # the segment has left the deduplication window and was dropped
                for digest, stored in rows:
                    epoch, offset = split_epoch_offset(stored)
                    event_id = hashes[digest.bytes]
                    if epoch == partition.epoch:
                        offsets[event_id] = max(offset, offsets.get(event_id, 0))
            return offsets

        return await self._run(read)

    async def _fetch_one(self, kind: type[_T], name: str, params: dict[str, Any]) -> _T | None:
        async def fetch(conn: AsyncConnection[Any]) -> _T | None:
            cursor = conn.cursor(row_factory=class_row(kind))
            return await (await cursor.execute(_sql[name], params)).fetchone()

        return await self._run(fetch)

    async def _run(self, read: Callable[[AsyncConnection[Any]], Awaitable[_T]]) -> _T:
        return await run_with_retry(self._log.database.pool, self._log.retry_seconds, read)


def parse_generated_id(partition: PartitionRef, event_id: str) -> int | None:
    """Return the offset of an event that was pushed without an id: its generated id is ``<partition id>-<offset>``."""
    partition_id, _, offset = event_id.partition("-")
    is_offset = offset.isdecimal() and len(offset) <= _OFFSET_DIGITS
    return int(offset) if partition_id == str(partition.partition_id) and is_offset else None

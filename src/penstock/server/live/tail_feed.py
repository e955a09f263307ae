"""Broadcaster of the events appended to a queue, without consuming them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
import psycopg
from psycopg.rows import class_row

from penstock.core.errors import CorruptChunk, NotFound
from penstock.db.pool import Connection
from penstock.db.statements import Statements
from penstock.log.event import Delivery, Event
from penstock.log.log import Log
from penstock.log.partition_reader import read_events
from penstock.log.queue import Queue
from penstock.log.storage.chunk_reader import ChunkRange, read_chunks
from penstock.server.live.broadcaster import Broadcaster
from penstock.server.live.subscriber import LiveMessage, Subscriber
from penstock.server.metrics.counters import ServerMetrics

_sql = Statements("penstock.server.live", "tail_feed.sql")
logger = logging.getLogger("penstock.server")

#: Limits of a message. It holds the newest events and the number of skipped ones; a single event may be larger.
MAX_EVENTS = 1_000
MAX_BYTES = 4 << 20
#: A stream of more partitions cannot be resumed: its ids would be too long.
MAX_RESUMABLE_PARTITIONS = 64
_MAX_DIGITS = 18


class TailEvent(msgspec.Struct):
    partition: str
    offset: int
    key: str | None
    id: str
    time: datetime
    appended_at: datetime
    headers: dict[str, str]
    data: msgspec.Raw


class _PartitionEnd(NamedTuple):
    id: int
    name: str
    is_key_partition: bool
    sealed_end: int
    end_offset: int


class TailBroadcaster(Broadcaster[str, Mapping[int, int]]):
    """Reads new events once for all subscribers of a queue, or of one partition of it."""

    kind = "queue"

    def __init__(
        self, log: Log, metrics: ServerMetrics, queue: Queue, partition: str | None, on_empty: Callable[[], None]
    ) -> None:
        super().__init__(log.notifier, queue.id, metrics, on_empty)
        self._log = log
        self._queue = queue
        self._partition = partition
        #: The offset up to which events were sent, by partition.
        self._sent: dict[int, int] | None = None

    def parse_position(self, last_id: str) -> Mapping[int, int] | None:
        """Parse a message id to offsets by partition."""
        offsets: dict[int, int] = {}
        for part in last_id.split(",")[: MAX_RESUMABLE_PARTITIONS + 1] if last_id else ():
            partition, _, offset = part.partition(":")
            if not (_is_offset(partition) and _is_offset(offset)):
                return None
            offsets[int(partition)] = int(offset)
        return offsets or None

    def position_after_overrun(self, subscriber: Subscriber) -> Mapping[int, int] | None:
        return subscriber.missed_since

    async def read_and_send(self) -> None:
        """Read the events appended since the last read, and the first messages of starting subscribers."""
        starting, self._starting = self._starting, {}
        try:
            # Refreshing the queue is a cheap way to learn of a new segment and of its deletion.
            self._queue = await self._log.catalog.refresh(self._queue.name)
            if self._queue.id != self._topic:
                raise NotFound(f"queue {self._queue.name!r} was deleted")
            async with self._log.database.connection() as conn:
                ends = await self._read_ends(conn)
                self._metrics.live_reads.add(1, self.kind)
                if self._sent is not None:
                    await self._send_new(conn, ends, self._sent, starting.keys())
                self._sent = {end.id: end.end_offset for end in ends}
                for subscriber, offsets in starting.items():
                    await self._send_first(conn, ends, subscriber, offsets)
        except BaseException:
            self._starting = starting | self._starting
            raise

    async def _send_new(
        self,
        conn: Connection,
        ends: Sequence[_PartitionEnd],
        sent: Mapping[int, int],
        starting: Iterable[Subscriber],
    ) -> None:
        events, skipped = await self._read_events(conn, ends, sent)
        if not events and not skipped:
            return
        shared: LiveMessage | None = None
        for subscriber, key in self._keys.items():
            if subscriber in starting or subscriber in self._starting:
                continue
            if key is None:
                shared = shared or _to_message(events, skipped, _format_offsets(ends), sent)
                subscriber.offer(shared)
            elif matching := [event for event in events if event.key == key]:
                subscriber.offer(_to_message(matching, skipped, _format_offsets(ends), sent))

    async def _send_first(
        self,
        conn: Connection,
        ends: Sequence[_PartitionEnd],
        subscriber: Subscriber,
        offsets: Mapping[int, int] | None,
    ) -> None:
        """Send a first message with the events since some offsets, or an empty one."""
        if subscriber not in self._keys:
            return
        events: list[Event] = []
        skipped = 0
        if offsets is not None:
            events, skipped = await self._read_events(conn, ends, offsets)
        since = offsets if offsets is not None else {end.id: end.end_offset for end in ends}
        key = self._keys[subscriber]
        matching = [event for event in events if key is None or event.key == key]
        subscriber.offer(_to_message(matching, skipped, _format_offsets(ends), since))

    async def _read_ends(self, conn: Connection) -> list[_PartitionEnd]:
        names = None if self._partition is None else [self._partition]
        statement = _sql.table("partition_ends", self._queue.id, self._queue.segment)
        cursor = conn.cursor(row_factory=class_row(_PartitionEnd))
        try:
            await cursor.execute(statement.encode(), {"queue": self._queue.id, "names": names})
        except psycopg.errors.UndefinedTable:
            raise NotFound(f"queue {self._queue.name!r} was deleted") from None
        return await cursor.fetchall()

    async def _read_events(
        self, conn: Connection, ends: Sequence[_PartitionEnd], starts: Mapping[int, int]
    ) -> tuple[list[Event], int]:
        """Return the newest events of each partition since some offsets, and the number of events skipped."""
        grown = [end for end in ends if end.end_offset > starts.get(end.id, 0)]
        if not grown:
            return [], 0
        per_partition = max(1, MAX_EVENTS // len(grown))
        skipped = 0
        ranges: list[tuple[_PartitionEnd, ChunkRange]] = []
        events: list[Event] = []
        damaged: list[CorruptChunk] = []
        for index, end in enumerate(grown):
            start = max(starts.get(end.id, 0), end.end_offset - per_partition)
            skipped += start - starts.get(end.id, 0)
            if index >= MAX_EVENTS:
                skipped += end.end_offset - start
            elif start >= end.sealed_end:
                ranges.append((end, ChunkRange(end.id, self._queue.segment, start, end.end_offset)))
            else:
                events += await read_events(conn, self._queue, end.id, start, end.end_offset - start, damaged)
        chunks = await read_chunks(conn, self._queue, [each for _, each in ranges], damaged) if ranges else {}
        for problem in damaged:
            skipped += problem.end - max(problem.start, starts.get(problem.partition_id, 0))
            logger.error("%s", problem)
        for end, wanted in ranges:
            delivery = Delivery(self._queue.name, end.name, end.id, end.is_key_partition)
            for chunk in chunks.get(end.id, ()):
                # A chunk for one group holds redriven events, which were appended before.
                if chunk.target_group is None:
                    offsets = range(max(chunk.first, wanted.start), min(chunk.end, wanted.stop))
                    events += [Event(delivery, chunk, offset) for offset in offsets]
        return events, skipped


def _to_message(events: Sequence[Event], skipped: int, id: str, since: Mapping[int, int]) -> LiveMessage:
    ordered = sorted(events, key=lambda event: event.appended_at)
    first, size = len(ordered), 0
    while first and (first == len(ordered) or size + len(ordered[first - 1].raw) <= MAX_BYTES):
        first -= 1
        size += len(ordered[first].raw)
    sent = [
        TailEvent(e.partition, e.offset, e.key, e.id, e.time, e.appended_at, e.headers, msgspec.Raw(e.raw))
        for e in ordered[first:]
    ]
    data = msgspec.json.encode({"events": sent, "skipped": skipped + first})
    return LiveMessage("events", data, id, since)


def _format_offsets(ends: Sequence[_PartitionEnd]) -> str:
    """Return the end offsets by partition as a message id, such as ``1:20,2:7``."""
    if len(ends) > MAX_RESUMABLE_PARTITIONS:
        return ""
    return ",".join(f"{end.id}:{end.end_offset}" for end in ends)


def _is_offset(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS

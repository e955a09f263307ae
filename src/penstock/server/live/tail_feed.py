"""The readers of a queue's end: what is appended, as it is appended, without consuming it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import psycopg

from penstock.core.errors import CorruptChunk, NotFound
from penstock.db.pool import Connection
from penstock.db.statements import Statements
from penstock.log.event import Delivery, Event
from penstock.log.log import Log
from penstock.log.queue import Queue
from penstock.log.read.reader import Range, read_chunks, read_events
from penstock.server.live.broadcaster import Hub
from penstock.server.live.subscriber import Frame, Subscriber
from penstock.server.metrics.counters import Instruments

_sql = Statements("penstock.server.live", "tail_feed.sql")
logger = logging.getLogger("penstock.server")

#: A message has so many events at the most, and so many bytes unless one alone has more; those before are skipped, and
#: it says how many.
MOST_EVENTS = 1_000
MOST_BYTES = 4 << 20
#: A stream of more partitions cannot be taken up where it ended: its place would be too long to send.
MOST_RESUMABLE = 64


class TailEvent(msgspec.Struct):
    """An event as those who follow a queue see it."""

    partition: str
    offset: int
    key: str | None
    id: str
    time: datetime
    appended_at: datetime
    headers: dict[str, str]
    data: msgspec.Raw


@dataclass(frozen=True)
class _Lane:
    name: str
    is_lane: bool
    sealed_end: int
    end: int


class QueueHub(Hub):
    """Reads once for each wave of pushes, for all who follow the queue, or the same partition of it."""

    kind = "queue"

    def __init__(
        self, log: Log, metrics: Instruments, queue: Queue, partition: str | None, ended: Callable[[], None]
    ) -> None:
        super().__init__(log.signals, queue.id, metrics, ended)
        self._log = log
        self._queue = queue
        self._partition = partition
        #: Up to where everybody was told, by partition.
        self._ends: dict[int, int] | None = None
        #: The key that a reader wants; None for all.
        self._keys: dict[Subscriber, str | None] = {}
        #: Who waits for a beginning: from which offsets on, by partition; None, to begin with what comes.
        self._waiting: dict[Subscriber, Mapping[int, int] | None] = {}

    def subscribe(self, key: str | None, last_id: str) -> Subscriber:
        """A new reader, of one key or all; ``last_id`` is that of the last message it has seen."""
        subscriber = Subscriber(self._rejoin, self.overrun)
        self._keys[subscriber] = key
        self._waiting[subscriber] = _place(last_id)
        self.add(subscriber)
        return subscriber

    def forget(self, subscriber: Subscriber) -> None:
        """A reader has left."""
        self._keys.pop(subscriber, None)
        self._waiting.pop(subscriber, None)

    async def step(self) -> None:
        """Read what was appended since the last time, and what those who come back have missed."""
        waiting, self._waiting = self._waiting, {}
        try:
            # The cheap way to know of a new segment, and that the queue is still there.
            self._queue = await self._log.catalog.refresh(self._queue.name)
            if self._queue.id != self._topic:
                raise NotFound(f"queue {self._queue.name!r} was deleted")
            async with self._log.database.connection() as conn:
                lanes = await self._lanes(conn)
                self._metrics.live_reads.add(1, self.kind)
                if self._ends is not None:
                    await self._tell_new(conn, lanes, self._ends, waiting)
                self._ends = {id: lane.end for id, lane in lanes.items()}
                for subscriber, place in waiting.items():
                    await self._begin(conn, lanes, subscriber, place)
        except BaseException:
            self._waiting = waiting | self._waiting
            raise

    async def _tell_new(
        self,
        conn: Connection,
        lanes: Mapping[int, _Lane],
        ends: Mapping[int, int],
        waiting: Mapping[Subscriber, Any],
    ) -> None:
        events, skipped = await self._read(conn, lanes, ends)
        if not events and not skipped:
            return
        whole: Frame | None = None
        for subscriber, key in self._keys.items():
            if subscriber in waiting or subscriber in self._waiting:
                continue
            if key is None:
                whole = whole or _frame(events, skipped, _place_text(lanes), ends)
                subscriber.offer(whole)
            else:
                self._offer(subscriber, lanes, events, skipped, ends)

    async def _begin(
        self, conn: Connection, lanes: Mapping[int, _Lane], subscriber: Subscriber, place: Mapping[int, int] | None
    ) -> None:
        """A first message, with what was missed; without a place there is nothing to miss."""
        if subscriber not in self._keys:
            return
        events: list[Event] = []
        skipped = 0
        if place is not None:
            events, skipped = await self._read(conn, lanes, place)
        since = place if place is not None else {id: lane.end for id, lane in lanes.items()}
        self._offer(subscriber, lanes, events, skipped, since, always=True)

    def _offer(
        self,
        subscriber: Subscriber,
        lanes: Mapping[int, _Lane],
        events: Sequence[Event],
        skipped: int,
        since: Mapping[int, int],
        *,
        always: bool = False,
    ) -> None:
        key = self._keys[subscriber]
        some = [event for event in events if key is None or event.key == key]
        if some or always:
            subscriber.offer(_frame(some, skipped, _place_text(lanes), since))

    async def _lanes(self, conn: Connection) -> dict[int, _Lane]:
        names = None if self._partition is None else [self._partition]
        statement = _sql.table("ends", self._queue.id, self._queue.segment)
        try:
            rows = await (await conn.execute(statement, {"queue": self._queue.id, "names": names})).fetchall()
        except psycopg.errors.UndefinedTable:
            raise NotFound(f"queue {self._queue.name!r} was deleted") from None
        return {id: _Lane(name, is_lane, sealed, end) for id, name, is_lane, sealed, end in rows}

    async def _read(
        self, conn: Connection, lanes: Mapping[int, _Lane], starts: Mapping[int, int]
    ) -> tuple[list[Event], int]:
        """What lies between some offsets and the ends, the newest of each partition, and how many were skipped."""
        grown = {id: lane for id, lane in lanes.items() if lane.end > starts.get(id, 0)}
        if not grown:
            return [], 0
        each = max(1, MOST_EVENTS // len(grown))
        skipped = 0
        ranges: list[Range] = []
        events: list[Event] = []
        damaged: list[CorruptChunk] = []
        for place, (id, lane) in enumerate(grown.items()):
            start = max(starts.get(id, 0), lane.end - each)
            skipped += start - starts.get(id, 0)
            if place >= MOST_EVENTS:
                skipped += lane.end - start
            elif start >= lane.sealed_end:
                ranges.append(Range(id, self._queue.segment, start, lane.end))
            else:
                events += await read_events(conn, self._queue, id, start, lane.end - start, damaged)
        chunks = await read_chunks(conn, self._queue, ranges, damaged) if ranges else {}
        for problem in damaged:
            skipped += problem.end - max(problem.start, starts.get(problem.partition_id, 0))
            logger.error("%s", problem)
        for wanted in ranges:
            lane = grown[wanted.partition_id]
            delivery = Delivery(self._queue.name, lane.name, wanted.partition_id, lane.is_lane)
            for chunk in chunks.get(wanted.partition_id, ()):
                # What was sent back to one group was appended before.
                if chunk.target_group is None:
                    span = range(max(chunk.first, wanted.start), min(chunk.end, wanted.stop))
                    events += [Event(delivery, chunk, offset) for offset in span]
        return events, skipped

    def _rejoin(self, subscriber: Subscriber) -> None:
        if subscriber in self._keys:
            self._waiting[subscriber] = subscriber.missed_since
            self._asked.set()


def _frame(events: Sequence[Event], skipped: int, place: str, since: Mapping[int, int]) -> Frame:
    ordered = sorted(events, key=lambda e: e.appended_at)
    first, size = len(ordered), 0
    while first and (first == len(ordered) or size + len(ordered[first - 1].raw) <= MOST_BYTES):
        first -= 1
        size += len(ordered[first].raw)
    skipped += first
    shown = [
        TailEvent(e.partition, e.offset, e.key, e.id, e.time, e.appended_at, e.headers, msgspec.Raw(e.raw))
        for e in ordered[first:]
    ]
    return Frame("events", msgspec.json.encode({"events": shown, "skipped": skipped}), place, since)


def _place_text(lanes: Mapping[int, _Lane]) -> str:
    """Offsets by partition, as a message's id."""
    return ",".join(f"{id}:{lane.end}" for id, lane in lanes.items()) if len(lanes) <= MOST_RESUMABLE else ""


def _place(text: str) -> Mapping[int, int] | None:
    """The same, read; None if it is none."""
    found: dict[int, int] = {}
    for part in text.split(",")[: MOST_RESUMABLE + 1] if text else ():
        id, colon, offset = part.partition(":")
        if not (colon and id.isdecimal() and offset.isdecimal() and id.isascii() and offset.isascii()):
            return None
        if len(id) > 18 or len(offset) > 18:
            return None
        found[int(id)] = int(offset)
    return found or None

"""Pops events: leases partitions and reads the leased events."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from penstock.core.clock import Clock
from penstock.core.errors import CorruptChunk, GroupBusy
from penstock.core.formatting import counted
from penstock.db.retry import run_with_retry
from penstock.log.catalog import Catalog
from penstock.log.event import Delivery, Event
from penstock.log.groups import ConsumerGroups, Group
from penstock.log.notify import Notifier
from penstock.log.queue import Queue
from penstock.log.read.ack import Acks, partition_ack
from penstock.log.read.ack_rules import EventAck
from penstock.log.read.lease import Lease, LeaseRequest, Leases
from penstock.log.read.pop_request import PopRequest
from penstock.log.read.position import failures_by_offset
from penstock.log.read.position_store import PositionStore
from penstock.log.storage.chunk import TARGET_BYTES, StoredChunk
from penstock.log.storage.chunk_reader import ChunkRange, ChunkTooLarge, PartialRead, read_first_chunks

_logger = logging.getLogger("penstock.log")

#: A waiting pop tries again after this many seconds without a notification, because a NOTIFY can be lost.
_POLL_SECONDS = 5.0
#: The least memory for a pop: a chunk and all that belongs to its events, unless one event has more.
MIN_POP_BYTES = 2 * TARGET_BYTES
#: More than any chunk has.
_UNLIMITED_BYTES = 1 << 62


class MemoryReservation(Protocol):
    """Memory that a pop reserves for its events, out of a budget that many pops share."""

    async def acquire(self, size: int) -> None:
        """Wait until ``size`` bytes are reserved, or raise."""
        ...

    def grow_to(self, size: int, least: int) -> int:
        """Reserve up to ``size`` bytes without waiting and return how many there are, 0 if less than ``least``."""
        ...

    def resize(self, size: int) -> None:
        """Reserve exactly ``size`` bytes."""
        ...


class _PartlyReadChunks:
    """A cache of the chunk that each group has read in part, per partition. Chunks never change."""

    def __init__(self, max_bytes: int = 64 << 20) -> None:
        self._chunks: OrderedDict[tuple[int, int], StoredChunk] = OrderedDict()
        self._bytes = 0
        self._max_bytes = max_bytes

    def get(self, group_id: int, partition_id: int, offset: int) -> StoredChunk | None:
        stored = self._chunks.get((group_id, partition_id))
        return stored if stored is not None and stored.first <= offset < stored.end else None

    def put(self, group_id: int, partition_id: int, stored: StoredChunk | None) -> None:
        replaced = self._chunks.pop((group_id, partition_id), None)
        if replaced is not None:
            self._bytes -= _memory_size(replaced)
        if stored is None:
            return
        self._chunks[group_id, partition_id] = stored
        self._bytes += _memory_size(stored)
        while self._bytes > self._max_bytes and len(self._chunks) > 1:
            _, oldest = self._chunks.popitem(last=False)
            self._bytes -= _memory_size(oldest)


@dataclass(slots=True, eq=False)
class Popper:
    pool: AsyncConnectionPool[Any]
    catalog: Catalog
    groups: ConsumerGroups
    leases: Leases
    acks: Acks
    positions: PositionStore
    notifier: Notifier
    clock: Clock
    retry_seconds: float
    min_bytes: int = MIN_POP_BYTES
    _partly_read: _PartlyReadChunks = field(default_factory=_PartlyReadChunks, init=False)
    #: The memory that a pop needs first, for queues with large events.
    _first_bytes: dict[int, int] = field(default_factory=dict, init=False)

    async def pop(self, request: PopRequest, memory: MemoryReservation | None = None) -> list[Event]:
        """Lease partitions with unread events and return the events. Return none if there are none in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.wait_seconds
        lease_to_release = request.instead_of
        while True:
            queue = await self.catalog.get(request.queue)
            group = await self.groups.subscribe(queue, request.group, request.subscribe_from)
            if problem := group.owner_problem():
                raise GroupBusy(problem)
            await self.groups.record_activity(group)
            if lease_to_release is not None:
                await self.leases.release(group, lease_to_release)
                lease_to_release = None
            seen = self.notifier.count(queue.id)
            events = await self._pop_now(queue, group, request, memory)
            remaining = deadline - loop.time()
            if events or remaining <= 0:
                return events
            next_available = await self.leases.seconds_until_available(group) or _POLL_SECONDS
            if queue.quiet_seconds > 0:
                # No notification is sent when a partition becomes quiet.
                next_available = min(next_available, max(queue.quiet_seconds / 4, 0.05))
            await self.notifier.wait(queue.id, seen, min(remaining, _POLL_SECONDS, next_available))

    async def _pop_now(
        self, queue: Queue, group: Group, request: PopRequest, memory: MemoryReservation | None
    ) -> list[Event]:
        """Lease and read. Repeat if the leased events are not due yet or not for this group.

        With limited memory, the pop takes what is free if that is enough for a chunk. If not, it waits for memory
        without a lease, which would expire meanwhile, and leases again.
        """
        max_bytes, first_bytes = request.max_bytes, _UNLIMITED_BYTES
        if memory is not None:
            first_bytes = self._first_bytes.get(queue.id, self.min_bytes)
        while True:
            leased = await self.leases.acquire(queue, group, request)
            if leased.epoch_ended:
                continue
            if not leased.leases:
                if memory is not None:
                    memory.resize(0)
                return []
            try:
                if memory is not None:
                    leased_events = sum([lease.end - lease.start for lease in leased.leases])
                    reserved = memory.grow_to(min(request.max_bytes, leased_events * TARGET_BYTES), first_bytes)
                    if not reserved:
                        raise ChunkTooLarge(first_bytes)
                    max_bytes = min(reserved, request.max_bytes)
                events = await self._read(await self.catalog.get(queue.name), group, leased, max_bytes, first_bytes)
                if memory is not None:
                    sizes = [len(event.raw) for event in events]
                    memory.resize(sum(sizes))
                    if max(sizes, default=0) <= self.min_bytes < first_bytes:
                        self._first_bytes.pop(queue.id, None)
                if request.auto_ack and events:
                    await self.acks.ack(events, True)
            except ChunkTooLarge as error:
                partition_ids = [lease.partition_id for lease in leased.leases]
                await self.leases.release_partitions(group, leased.lease_id, partition_ids)
                if memory is not None:
                    first_bytes = self._first_bytes[queue.id] = error.size
                    await memory.acquire(first_bytes)
                continue
            except BaseException:
                self.leases.release_in_background(group, leased.lease_id)
                raise
            if events:
                return events

    async def _read(
        self, queue: Queue, group: Group, leased: LeaseRequest, max_bytes: int, first_bytes: int
    ) -> list[Event]:
        """Return the leased events. Leases on events that cannot be delivered now are skipped or released."""
        damaged: list[CorruptChunk] = []
        read = await self._read_chunks(queue, group, leased.leases, damaged, max_bytes, first_bytes)
        first_damaged = {problem.partition_id: problem for problem in reversed(damaged)}
        newer_format = next((problem for problem in damaged if problem.is_newer), None)
        visible_until = await self._visible_until(queue)
        events: list[Event] = []
        # With too many bytes, some partitions are not read at all, and one perhaps in part.
        unread = [
            lease.partition_id for lease in leased.leases if read.cut_short.get(lease.partition_id) == lease.start
        ]
        if unread:
            await self.leases.release_partitions(group, leased.lease_id, unread)
        for lease in leased.leases:
            if read.cut_short.get(lease.partition_id) == lease.start:
                continue
            chunks = read.chunks.get(lease.partition_id, [])
            problem = first_damaged.get(lease.partition_id)
            if problem is not None:
                chunks = [stored for stored in chunks if stored.end <= problem.start]
            readable_end = min(lease.end, read.cut_short.get(lease.partition_id, lease.end))
            early: StoredChunk | None = None
            if visible_until is not None:
                early = next((stored for stored in chunks if stored.appended_at > visible_until), None)
            if early is not None:
                readable_end = min(readable_end, max(early.first, lease.start))
            if problem is not None:
                readable_end = min(readable_end, max(problem.start, lease.start))
            deliverable = _deliverable(lease, chunks, group.id, readable_end)
            first, end = lease.start, readable_end
            if deliverable:
                first = deliverable[0].offsets[0]
                # The lease must not cover events at the end that are for another group: nobody would ack them.
                end = deliverable[-1].offsets[-1] + 1
            delivery = Delivery(
                queue.name,
                lease.partition,
                lease.partition_id,
                lease.is_key_partition,
                group.name,
                group.id,
                leased.lease_id,
                lease.until,
                failures_by_offset(lease.start, lease.attempts, lease.failures),
            )
            if lease.is_poison and deliverable:
                await self._reject_poison(delivery, lease)
                continue
            events += [Event(delivery, part.stored, offset) for part in deliverable for offset in part.offsets]
            if deliverable:
                if end < lease.end or first > lease.start:
                    await self.positions.shorten_lease(delivery, first, end)
            elif chunks and readable_end > lease.start:
                await self.positions.skip_to(delivery, readable_end)
            elif early is not None:
                due_at = early.appended_at + timedelta(seconds=queue.delay_seconds)
                await self.positions.postpone(delivery, due_at)
            elif problem is not None:
                await self._skip_damaged(delivery, lease, problem)
            is_partly_read = bool(chunks) and end < chunks[-1].end
            self._partly_read.put(group.id, lease.partition_id, chunks[-1] if is_partly_read else None)
        if newer_format is not None and not events:
            raise newer_format
        return events

    async def _skip_damaged(self, delivery: Delivery, lease: Lease, problem: CorruptChunk) -> None:
        """Store the events of a damaged chunk as dead letters and move past them.

        A chunk that only a newer version can read is left for that version.
        """
        if problem.is_newer:
            await self.positions.postpone(delivery, lease.until)
        elif problem.target_group is not None and problem.target_group != delivery.group_id:
            await self.positions.skip_to(delivery, problem.end)
        else:
            await self.positions.skip_damaged(delivery, problem)
        _logger.error("%s", problem)

    async def _reject_poison(self, delivery: Delivery, lease: Lease) -> None:
        """Store an event as a dead letter, because its leases keep expiring without an ack."""
        reason = (
            f"its lease ended {counted(lease.expiries, 'time')} without an answer, at last on it alone: "
            "consumers that receive it die or hang (expiry_limit)"
        )
        ack = EventAck(lease.start, "dead_letter", reason, "lease", deliveries=lease.expiries)
        await self.acks.apply(partition_ack(delivery, (ack,)))
        _logger.warning(
            "queue %r, partition %r: the event at offset %d is now a dead letter: %s",
            delivery.queue,
            delivery.partition,
            lease.start,
            reason,
        )

    async def _read_chunks(
        self,
        queue: Queue,
        group: Group,
        leases: Sequence[Lease],
        damaged: list[CorruptChunk],
        max_bytes: int,
        first_bytes: int,
    ) -> PartialRead:
        """Return the leased chunks, up to ``max_bytes`` but at least one of the first lease.

        That one may have up to ``first_bytes``. If it has more, ChunkTooLarge is raised.
        """
        read = PartialRead()
        missing: list[ChunkRange] = []
        for lease in leases:
            start = lease.start
            cached = self._partly_read.get(group.id, lease.partition_id, start)
            if cached is not None:
                size = sum(map(len, cached.lines[start - cached.first : lease.end - cached.first]))
                if size > max_bytes and lease is not leases[0]:
                    read.cut_short[lease.partition_id] = start
                    continue
                if size > max(max_bytes, first_bytes):
                    raise ChunkTooLarge(size)
                max_bytes -= size
                read.chunks[lease.partition_id] = [cached]
                start = cached.end
            if start < lease.end:
                missing.append(ChunkRange(lease.partition_id, lease.segment, start, lease.end))
        if missing:
            first_bytes = 0 if leases[0].partition_id in read.chunks else first_bytes

            async def read_missing(conn: AsyncConnection[Any]) -> PartialRead:
                damaged.clear()  # this may be the second attempt
                return await read_first_chunks(conn, queue, missing, damaged, max_bytes, first_bytes)

            found = await run_with_retry(self.pool, self.retry_seconds, read_missing)
            read.cut_short.update(found.cut_short)
            for partition_id, chunks in found.chunks.items():
                read.chunks.setdefault(partition_id, []).extend(chunks)
        return read

    async def _visible_until(self, queue: Queue) -> datetime | None:
        """Return the time up to which events are delivered, or None if the queue has no delay."""
        if queue.delay_seconds <= 0:
            return None
        offset = self.clock.skew - timedelta(seconds=queue.delay_seconds)
        cursor = await run_with_retry(
            self.pool, self.retry_seconds, lambda conn: conn.execute("SELECT clock_timestamp() + %s", (offset,))
        )
        until: datetime
        ((until,),) = await cursor.fetchall()
        return until


class _ChunkPart(NamedTuple):
    """Events of a chunk that are delivered."""

    stored: StoredChunk
    offsets: Sequence[int]


def _deliverable(lease: Lease, chunks: Sequence[StoredChunk], group_id: int, end: int) -> list[_ChunkPart]:
    """Return the events of the lease before ``end`` that are for the group, by chunk. No part is empty."""
    parts = []
    for stored in chunks:
        if stored.target_group is None or stored.target_group == group_id:
            offsets: Sequence[int] = range(max(stored.first, lease.start), min(stored.end, end))
            if lease.skipped:
                offsets = [offset for offset in offsets if offset not in lease.skipped]
            if offsets:
                parts.append(_ChunkPart(stored, offsets))
    return parts


def _memory_size(stored: StoredChunk) -> int:
    """Estimate the memory of a chunk: its data twice (as a whole and in lines), and an object for each event."""
    return 1024 + 2 * len(stored.columns.data) + 100 * stored.columns.count

"""Popping: leases, and the events that come with them."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from penstock.core.errors import CorruptChunk, GroupBusy
from penstock.db.retry import patiently
from penstock.log.event import Delivery, Event, StoredChunk
from penstock.log.read.ack import lane_ack
from penstock.log.read.lease import Ask, Lease, PopRequest
from penstock.log.read.position import Signal
from penstock.log.read.reader import ANY_SIZE, Range, TooLarge, read_first_chunks
from penstock.log.storage import chunk

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool

    from penstock.core.clock import Clock
    from penstock.log.catalog import Catalog
    from penstock.log.groups import Group, Groups
    from penstock.log.notify import Signals
    from penstock.log.queue import Queue
    from penstock.log.read.ack import Acks
    from penstock.log.read.lease import Leases

_logger = logging.getLogger("penstock.log")

#: The chunks of each partition, and where those end that are cut short.
_Chunks: TypeAlias = tuple[dict[int, list[StoredChunk]], dict[int, int]]

#: A waiting pop looks again after this many seconds even if nobody calls: a NOTIFY can be lost.
_LOOK_AGAIN = 5.0
#: What a pop has to hold at the least: a chunk, with all that belongs to its events; unless one of them has more.
FIRST_BYTES = 2 * chunk.TARGET_BYTES


class Hand(Protocol):
    """What somebody who serves many may hold of popped events, and they all together."""

    async def reach(self, size: int) -> None:
        """Hold so many bytes, once there is room for them; or raise."""
        ...

    def stretch(self, size: int, least: int) -> int:
        """Hold up to so many, as far as there is room at once; answers how many it holds, 0 if not even the least."""
        ...

    def keep(self, size: int) -> None:
        """Hold just so many."""
        ...


class Consumer:
    """Serves pops."""

    def __init__(
        self,
        pool: AsyncConnectionPool[Any],
        catalog: Catalog,
        groups: Groups,
        leases: Leases,
        acks: Acks,
        signals: Signals,
        clock: Clock,
        retry_seconds: float,
    ) -> None:
        self._pool = pool
        self._catalog = catalog
        self._groups = groups
        self._leases = leases
        self._acks = acks
        self._signals = signals
        self._clock = clock
        self._retry_seconds = retry_seconds
        self._open_chunks = _OpenChunks()
        #: What to hold first in queues whose events are large.
        self._first_bytes: dict[int, int] = {}

    async def pop(self, request: PopRequest, hand: Hand | None = None) -> list[Event]:
        """Lease partitions with unread events and deliver them; empty if there are none in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.wait_seconds
        given_up = request.instead_of is None
        while True:
            queue = await self._catalog.get(request.queue)
            group = await self._groups.subscribe(queue, request.group, request.subscribe_from)
            if taken := group.taken():
                raise GroupBusy(taken)
            await self._groups.saw(group)
            if not given_up and request.instead_of is not None:
                await self._leases.give_up(group, request.instead_of)
                given_up = True
            seen = self._signals.count(queue.id)
            events = await self._look(queue, group, request, hand)
            remaining = deadline - loop.time()
            if events or remaining <= 0:
                return events
            soon = await self._leases.next_moment(group)
            if queue.quiet_seconds > 0:
                # Nobody calls when a partition has become quiet.
                soon = min(soon or _LOOK_AGAIN, max(queue.quiet_seconds / 4, 0.05))
            await self._signals.wait(queue.id, seen, min(remaining, _LOOK_AGAIN, soon or _LOOK_AGAIN))

    async def _look(self, queue: Queue, group: Group, request: PopRequest, hand: Hand | None) -> list[Event]:
        """Lease and read; if what was leased is not due yet or not for this group, look on.

        Who may hold only so much takes what room there is, if it is enough for a chunk. If not, it waits without a
        lease, which would end meanwhile, and looks again.
        """
        most, first = request.max_bytes, ANY_SIZE
        if hand is not None:
            first = self._first_bytes.get(queue.id, FIRST_BYTES)
        while True:
            ask = await self._leases.ask(queue, group, request)
            if ask.epoch_ended:
                continue
            if not ask.leases:
                if hand is not None:
                    hand.keep(0)
                return []
            try:
                if hand is not None:
                    leased = sum([lease.end - lease.start for lease in ask.leases])
                    held = hand.stretch(min(request.max_bytes, leased * chunk.TARGET_BYTES), first)
                    if not held:
                        raise TooLarge(first)
                    most = min(held, request.max_bytes)
                events = await self._read(await self._catalog.get(queue.name), group, ask, most, first)
                if hand is not None:
                    sizes = [len(event.raw) for event in events]
                    hand.keep(sum(sizes))
                    if max(sizes, default=0) <= FIRST_BYTES < first:
                        self._first_bytes.pop(queue.id, None)
                if request.auto_ack and events:
                    await self._acks.ack(events, True)
            except TooLarge as found:
                await self._leases.give_back_some(group, ask, [lease.partition_id for lease in ask.leases])
                if hand is not None:
                    first = self._first_bytes[queue.id] = found.size
                    await hand.reach(first)
                continue
            except BaseException:
                self._leases.give_back(group, ask)
                raise
            if events:
                return events

    async def _read(self, queue: Queue, group: Group, ask: Ask, most_bytes: int, first_bytes: int) -> list[Event]:
        """The events under the leases. What is not to be delivered now is passed over or given back."""
        damaged: list[CorruptChunk] = []
        chunks, cut_short = await self._chunks(queue, group, ask.leases, damaged, most_bytes, first_bytes)
        broken = {problem.partition_id: problem for problem in reversed(damaged)}
        newer = next((problem for problem in damaged if problem.is_newer), None)
        visible_until = await self._visible_until(queue)
        events: list[Event] = []
        # All of it may be too much to hold: of some partitions nothing was read then, of one perhaps a part.
        left = [lease.partition_id for lease in ask.leases if cut_short.get(lease.partition_id) == lease.start]
        if left:
            await self._leases.give_back_some(group, ask, left)
        for lease in ask.leases:
            if cut_short.get(lease.partition_id) == lease.start:
                continue
            stored = chunks.get(lease.partition_id, [])
            problem = broken.get(lease.partition_id)
            if problem is not None:
                # What lies before it comes first.
                stored = [c for c in stored if c.end <= problem.start]
            mine = [c for c in stored if c.target_group is None or c.target_group == group.id]
            cut = _cut(lease, stored, visible_until)
            if lease.partition_id in cut_short:
                cut = _Cut(min(cut.end, cut_short[lease.partition_id]), cut.due_at)
            if problem is not None:
                cut = _Cut(min(cut.end, max(problem.start, lease.start)), cut.due_at)
            offsets = _offsets(lease, mine, cut.end)
            # Events at the end that are not for this group are none of the lease's, or it would outlive its acks.
            end = offsets[-1][1] + 1 if offsets else cut.end
            delivery = Delivery(
                queue.name,
                lease.partition,
                lease.partition_id,
                lease.is_lane,
                group.name,
                group.id,
                ask.lease_id,
                lease.until,
                end,
                lease.attempts,
            )
            if lease.is_poison and offsets:
                await self._set_aside(delivery, lease)
                continue
            events += [Event(delivery, source, offset) for source, offset in offsets]
            if offsets and (end < lease.end or offsets[0][1] > lease.start):
                await self._acks.shorten(delivery, offsets[0][1], end)
            elif not offsets and stored and cut.end > lease.start:
                await self._acks.pass_over(delivery, cut.end)
            elif not offsets and problem is not None and cut.due_at is None:
                await self._pass_damage(delivery, lease, problem)
            elif not offsets and cut.due_at is not None:
                await self._acks.postpone(delivery, cut.due_at + timedelta(seconds=queue.delay_seconds))
            self._open_chunks.put(group.id, lease.partition_id, stored[-1] if stored and end < stored[-1].end else None)
        if newer is not None and not events:
            raise newer
        return events

    async def _pass_damage(self, delivery: Delivery, lease: Lease, problem: CorruptChunk) -> None:
        """Make dead letters of what a damaged chunk held, and go on behind it.

        What only a newer version can read is left where it is.
        """
        if problem.is_newer:
            await self._acks.postpone(delivery, lease.until)
        elif problem.target_group is not None and problem.target_group != delivery.group_id:
            await self._acks.pass_over(delivery, problem.end)
        else:
            await self._acks.set_aside(delivery, problem)
        _logger.error("%s", problem)

    async def _set_aside(self, delivery: Delivery, lease: Lease) -> None:
        """Make a dead letter of an event that nobody who got it has answered for."""
        reason = (
            f"its lease ended {lease.expiries} times without an answer, at last on it alone: "
            "whoever gets it dies or hangs (expiry_limit)"
        )
        signal = Signal(lease.start, "dead_letter", reason, "lease", deliveries=lease.expiries)
        await self._acks.settle(lane_ack(delivery, (signal,)))
        _logger.warning(
            "queue %r, partition %r: the event at offset %d is a dead letter now: %s",
            delivery.queue,
            delivery.partition,
            lease.start,
            reason,
        )

    async def _chunks(
        self,
        queue: Queue,
        group: Group,
        leases: Sequence[Lease],
        damaged: list[CorruptChunk],
        most_bytes: int,
        first_bytes: int,
    ) -> _Chunks:
        """What is under the leases, as far as there is room for it: always something of the first one.

        If that is a chunk for which there is no room either, :class:`TooLarge` says how large it is.
        """
        chunks: dict[int, list[StoredChunk]] = {}
        cut_short: dict[int, int] = {}
        missing: list[Range] = []
        for lease in leases:
            start = lease.start
            open_chunk = self._open_chunks.get(group.id, lease.partition_id, start)
            if open_chunk is not None:
                size = _size(open_chunk, start, lease.end)
                if size > most_bytes and lease is not leases[0]:
                    cut_short[lease.partition_id] = start
                    continue
                if size > max(most_bytes, first_bytes):
                    raise TooLarge(size)
                most_bytes -= size
                chunks[lease.partition_id] = [open_chunk]
                start = open_chunk.end
            if start < lease.end:
                missing.append(Range(lease.partition_id, lease.segment, start, lease.end))
        if missing:
            first = 0 if leases[0].partition_id in chunks else first_bytes

            async def read(conn: AsyncConnection[Any]) -> _Chunks:
                damaged.clear()  # it may be the second try
                return await read_first_chunks(conn, queue, missing, damaged, most_bytes, first)

            found, unread = await patiently(self._pool, self._retry_seconds, read)
            cut_short |= unread
            for partition_id, some in found.items():
                chunks.setdefault(partition_id, []).extend(some)
        return chunks, cut_short

    async def _visible_until(self, queue: Queue) -> datetime | None:
        if queue.delay_seconds <= 0:
            return None
        return await patiently(self._pool, self._retry_seconds, self._now) - timedelta(seconds=queue.delay_seconds)

    async def _now(self, conn: AsyncConnection[Any]) -> datetime:
        row = await (await conn.execute("SELECT clock_timestamp() + %s", (self._clock.skew,))).fetchone()
        assert row is not None  # noqa: S101 - a SELECT without FROM has a row
        now: datetime = row[0]
        return now


def _size(stored: StoredChunk, start: int, end: int) -> int:
    """The bytes of the events from one offset to another, as far as the chunk has them."""
    return sum(map(len, stored.lines[start - stored.first : end - stored.first]))


@dataclass(frozen=True, slots=True)
class _Cut:
    """Up to where a lease is due, and when what comes next was appended."""

    end: int
    due_at: datetime | None = None


def _cut(lease: Lease, stored: Sequence[StoredChunk], visible_until: datetime | None) -> _Cut:
    if visible_until is not None:
        for piece in stored:
            if piece.appended_at > visible_until:
                return _Cut(max(piece.first, lease.start), piece.appended_at)
    return _Cut(lease.end)


def _offsets(lease: Lease, stored: Sequence[StoredChunk], end: int) -> list[tuple[StoredChunk, int]]:
    found = [(c, offset) for c in stored for offset in range(max(c.first, lease.start), min(c.end, end))]
    if lease.skipped:
        found = [(c, offset) for c, offset in found if offset not in lease.skipped]
    return found


class _OpenChunks:
    """The chunk that each group is in the middle of, per partition: chunks never change, so it is read once."""

    def __init__(self, most_bytes: int = 64 << 20) -> None:
        self._chunks: OrderedDict[tuple[int, int], StoredChunk] = OrderedDict()
        self._bytes = 0
        self._most_bytes = most_bytes

    def get(self, group_id: int, partition_id: int, offset: int) -> StoredChunk | None:
        stored = self._chunks.get((group_id, partition_id))
        return stored if stored is not None and stored.first <= offset < stored.end else None

    def put(self, group_id: int, partition_id: int, stored: StoredChunk | None) -> None:
        before = self._chunks.pop((group_id, partition_id), None)
        if before is not None:
            self._bytes -= _weight(before)
        if stored is None:
            return
        self._chunks[group_id, partition_id] = stored
        self._bytes += _weight(stored)
        while self._bytes > self._most_bytes and len(self._chunks) > 1:
            _, oldest = self._chunks.popitem(last=False)
            self._bytes -= _weight(oldest)


def _weight(stored: StoredChunk) -> int:
    """About what a chunk takes in memory: its data twice (whole, and in lines), and an object for each event."""
    return 1024 + 2 * len(stored.columns.data) + 100 * stored.columns.count

"""Popping: leases on partitions, and the events that come with them."""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.core.errors import DatabaseUnavailable, InvalidRequest
from penstock.db.statements import Statements
from penstock.log.append import moved_on
from penstock.log.event import Delivery, Event, StoredChunk
from penstock.log.groups import DEFAULT_GROUP, Group, Place
from penstock.log.reader import Range, read_chunks

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool

    from penstock.core.clock import Clock
    from penstock.log.ack import Acks
    from penstock.log.catalog import Catalog
    from penstock.log.groups import Groups
    from penstock.log.queue import Queue
    from penstock.log.signals import Signals

_sql = Statements("penstock.log", "pop.sql")

#: A waiting pop looks again after this many seconds even if nobody calls: a NOTIFY can be lost.
_LOOK_AGAIN = 5.0
_FURTHEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class PopRequest:
    """What a consumer asks for."""

    queue: str
    group: str = DEFAULT_GROUP
    batch: int = 1
    partitions: int = 1
    partition: str | None = None
    wait_seconds: float = 0.0
    lease_seconds: float | None = None
    auto_ack: bool = False
    subscribe_from: Place = "beginning"

    def __post_init__(self) -> None:
        for name in ("batch", "partitions"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 100_000:
                raise InvalidRequest(f"{name} must be a whole number from 1 to 100,000, not {value!r}")
        if self.wait_seconds < 0:
            raise InvalidRequest(f"the time to wait must not be negative, and {self.wait_seconds!r} is")
        if self.lease_seconds is not None and not 0 < self.lease_seconds <= 7 * 86400:
            raise InvalidRequest(f"a lease may last up to 7 days, not {self.lease_seconds!r} seconds")


@dataclass(frozen=True, slots=True)
class _Lease:
    partition_id: int
    partition: str
    start: int
    end: int
    until: datetime
    attempts: int
    skipped: Sequence[int]
    segment: int | None


class Consumer:
    """Serves pops."""

    def __init__(
        self,
        pool: AsyncConnectionPool[Any],
        catalog: Catalog,
        groups: Groups,
        acks: Acks,
        signals: Signals,
        clock: Clock,
        retry_seconds: float,
    ) -> None:
        self._pool = pool
        self._catalog = catalog
        self._groups = groups
        self._acks = acks
        self._signals = signals
        self._clock = clock
        self._retry_seconds = retry_seconds
        self._last: dict[int, int] = {}
        self._open_chunks = _OpenChunks()

    async def pop(self, request: PopRequest) -> list[Event]:
        """Lease partitions with unread events and deliver them; empty if there are none in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.wait_seconds
        while True:
            queue = await self._catalog.get(request.queue)
            group = await self._groups.subscribe(queue, request.group, request.subscribe_from)
            seen = self._signals.count(queue.id)
            events = await self._look(queue, group, request)
            remaining = deadline - loop.time()
            if events or remaining <= 0:
                return events
            soon = await self._next_moment(group)
            await self._signals.wait(queue.id, seen, min(remaining, soon, _LOOK_AGAIN))

    async def extend(self, lease_id: uuid.UUID, where: Sequence[tuple[int, int]], seconds: float) -> datetime | None:
        """Make the lease on these (group, partition) last longer; None if it has ended."""
        params = {
            "groups": [group for group, _ in where],
            "partitions": [partition for _, partition in where],
            "lease": lease_id,
            "seconds": seconds,
            "skew": self._clock.skew,
        }
        async with self._pool.connection() as conn:
            rows = await (await conn.execute(_sql["extend"], params)).fetchall()
        return min((until for _, until in rows), default=None)

    async def _look(self, queue: Queue, group: Group, request: PopRequest) -> list[Event]:
        deadline = asyncio.get_running_loop().time() + self._retry_seconds
        lease_id = uuid.uuid4()
        pause = 0.05
        unsure = False
        while True:
            try:
                async with self._pool.connection() as conn:
                    if unsure:
                        await conn.execute(
                            _sql["drop_lease"],
                            {"group": group.id, "lease": lease_id, "skew": self._clock.skew},
                        )
                        unsure = False
                    return await self._take(conn, queue, group, request, lease_id)
            except psycopg.ProgrammingError as error:
                if not moved_on(error):
                    raise
                queue = await self._catalog.refresh(queue.name)
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise DatabaseUnavailable(
                        f"the pop was given up after {self._retry_seconds:g} s without a database: {error}"
                    ) from error
                unsure = True
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)

    async def _take(
        self, conn: AsyncConnection[Any], queue: Queue, group: Group, request: PopRequest, lease_id: uuid.UUID
    ) -> list[Event]:
        while True:
            leases = await self._lease(conn, queue, group, request, lease_id)
            if not leases:
                if group.epoch < queue.epoch and await self._groups.advance(conn, queue, group):
                    group = await self._groups.subscribe(queue, group.name)
                    continue
                return []
            events, idle = await self._read(conn, queue, group, leases, lease_id)
            for delivery, start, end in idle:
                await self._pass_over(conn, queue, delivery, start, end)
            if events:
                if request.auto_ack:
                    await self._acks.complete_delivered(events)
                return events
            if all(end == start for _, start, end in idle):
                return []

    async def _lease(
        self, conn: AsyncConnection[Any], queue: Queue, group: Group, request: PopRequest, lease_id: uuid.UUID
    ) -> list[_Lease]:
        spans: list[tuple[int, int]]
        if request.partition is not None:
            found = await self._catalog.find_lanes(queue, request.partition)
            spans = [(lane - 1, lane) for lane in found]
        else:
            # Round the partitions in turn: on from the last one served, then the ones before it.
            last = self._last.get(group.id, 0)
            spans = [(last, _FURTHEST), (0, last)] if last else [(0, _FURTHEST)]
        leases: list[_Lease] = []
        batch = request.batch
        for after, upto in spans:
            params = {
                "queue": queue.id,
                "segment": queue.segment,
                "group": group.id,
                "after": after,
                "upto": upto,
                "partitions": request.partitions - len(leases),
                "batch": batch,
                "lease": lease_id,
                "lease_seconds": request.lease_seconds,
                "skew": self._clock.skew,
            }
            statement = _sql.table("lease", queue.id, queue.segment)
            rows = await (await conn.execute(statement, params, binary=True)).fetchall()
            for row in rows:
                leases.append(_Lease(*row))
                batch -= leases[-1].end - leases[-1].start
            if batch <= 0 or len(leases) >= request.partitions:
                break
        if leases and request.partition is None:
            self._last[group.id] = leases[-1].partition_id
        return leases

    async def _read(
        self,
        conn: AsyncConnection[Any],
        queue: Queue,
        group: Group,
        leases: Sequence[_Lease],
        lease_id: uuid.UUID,
    ) -> tuple[list[Event], list[tuple[Delivery, int, int]]]:
        """The events under the leases, and what of them is to be passed over or given back."""
        chunks: dict[int, list[StoredChunk]] = {}
        missing: list[Range] = []
        for lease in leases:
            open_chunk = self._open_chunks.get(group.id, lease.partition_id, lease.start)
            start = lease.start
            if open_chunk is not None:
                chunks[lease.partition_id] = [open_chunk]
                start = open_chunk.end
            if start < lease.end:
                missing.append(Range(lease.partition_id, lease.segment, start, lease.end))
        if missing:
            for partition_id, some in (await read_chunks(conn, queue, missing)).items():
                chunks.setdefault(partition_id, []).extend(some)
        visible_until = None
        if queue.delay_seconds > 0:
            row = await (await conn.execute("SELECT clock_timestamp() + %s", (self._clock.skew,))).fetchone()
            assert row is not None  # noqa: S101 - a SELECT without FROM has a row
            visible_until = row[0] - timedelta(seconds=queue.delay_seconds)
        events: list[Event] = []
        idle: list[tuple[Delivery, int, int]] = []
        for lease in leases:
            delivery = Delivery(
                queue.name,
                lease.partition,
                lease.partition_id,
                queue.partitioning == "key",
                group.name,
                group.id,
                lease_id,
                lease.until,
                lease.end,
                lease.attempts,
            )
            stored = chunks.get(lease.partition_id, [])
            before = len(events)
            end = lease.end
            for piece in stored:
                if visible_until is not None and piece.appended_at > visible_until:
                    end = max(piece.first, lease.start)
                    break
                if piece.target_group is None or piece.target_group == group.id:
                    first, stop = max(piece.first, lease.start), min(piece.end, lease.end)
                    events += [Event(delivery, piece, offset) for offset in range(first, stop)]
            if lease.skipped:
                gone = set(lease.skipped)
                events[before:] = [event for event in events[before:] if event.offset not in gone]
            if end < lease.end:
                wake = next(piece.appended_at for piece in stored if piece.end > end) + timedelta(
                    seconds=queue.delay_seconds
                )
                await self._acks.shorten(conn, delivery, end, wake if len(events) == before else None)
                delivery_end = end
            else:
                delivery_end = lease.end
            if len(events) == before:
                idle.append((delivery, lease.start, delivery_end))
            if stored:
                self._open_chunks.put(group.id, lease.partition_id, stored[-1])
        return events, idle

    async def _pass_over(
        self, conn: AsyncConnection[Any], queue: Queue, delivery: Delivery, start: int, end: int
    ) -> None:
        """Nothing here is for this group (other groups' redriven events): the position goes on without it."""
        if end > start:
            await self._acks.pass_over(conn, delivery, end)

    async def _next_moment(self, group: Group) -> float:
        async with self._pool.connection() as conn:
            params = {"group": group.id, "skew": self._clock.skew}
            row = await (await conn.execute(_sql["next_moment"], params)).fetchone()
        if row is None or row[0] is None:
            return _LOOK_AGAIN
        soon: timedelta = row[0]
        return max(soon.total_seconds() + 0.001, 0.001)


class _OpenChunks:
    """The chunk that each group is in the middle of, per partition: chunks never change, so it is read once."""

    def __init__(self, most_bytes: int = 64 << 20) -> None:
        self._chunks: OrderedDict[tuple[int, int], StoredChunk] = OrderedDict()
        self._bytes = 0
        self._most_bytes = most_bytes

    def get(self, group_id: int, partition_id: int, offset: int) -> StoredChunk | None:
        stored = self._chunks.get((group_id, partition_id))
        return stored if stored is not None and stored.first <= offset < stored.end else None

    def put(self, group_id: int, partition_id: int, stored: StoredChunk) -> None:
        before = self._chunks.pop((group_id, partition_id), None)
        if before is not None:
            self._bytes -= len(before.columns.data)
        self._chunks[group_id, partition_id] = stored
        self._bytes += len(stored.columns.data)
        while self._bytes > self._most_bytes and len(self._chunks) > 1:
            _, oldest = self._chunks.popitem(last=False)
            self._bytes -= len(oldest.columns.data)

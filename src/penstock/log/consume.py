"""Popping: leases on partitions, and the events that come with them."""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from penstock.core.errors import DatabaseUnavailable, InvalidRequest
from penstock.db.statements import Statements
from penstock.log.append import moved_on
from penstock.log.coalesce import Coalescer
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

_Answer = TypeVar("_Answer")


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
    segment: int


@dataclass(slots=True)
class _Ask:
    """A pop that wants a lease, and what it got."""

    lease_id: uuid.UUID
    leases: list[_Lease] = field(default_factory=list)
    #: A statement was sent for it whose answer has not come.
    unsure: bool = False
    epoch_ended: bool = False


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
        self._asks: dict[tuple[object, ...], Coalescer[_Ask]] = {}

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
        """One look: lease, read, and if what was leased holds nothing for this group, look on."""
        while True:
            ask = _Ask(uuid.uuid4())
            key = (queue.id, group.id, request.partition, request.batch, request.partitions, request.lease_seconds)
            asks = self._asks.get(key)
            if asks is None:
                if len(self._asks) > 1000:
                    self._asks.clear()
                asks = self._asks[key] = Coalescer(partial(self._lease_all, queue.name, group, request), most=64)
            await asks.submit(ask)
            if ask.epoch_ended:
                group = await self._groups.subscribe(queue, group.name)
                continue
            if not ask.leases:
                return []
            queue = await self._catalog.get(queue.name)
            try:
                events, nothing_due = await self._patiently(self._read, queue, group, ask)
            except psycopg.errors.UndefinedTable:
                continue  # retention was told to drop what is unread, and did
            if events:
                if request.auto_ack:
                    await self._acks.complete_delivered(events)
                return events
            if nothing_due:
                return []

    async def _lease_all(self, queue_name: str, group: Group, request: PopRequest, asks: Sequence[_Ask]) -> None:
        """Serve all who ask at the moment with one statement."""
        await self._patiently(self._lease, queue_name, group, request, asks)

    async def _lease(
        self, conn: AsyncConnection[Any], queue_name: str, group: Group, request: PopRequest, asks: Sequence[_Ask]
    ) -> None:
        queue = await self._catalog.get(queue_name)
        if any(ask.unsure for ask in asks):
            for ask in asks:
                params = {"group": group.id, "lease": ask.lease_id, "skew": self._clock.skew}
                await conn.execute(_sql["drop_lease"], params)
        for ask in asks:
            ask.unsure, ask.leases = True, []
        waiting = list(asks)
        for after, upto in await self._spans(queue, group, request):
            alone = waiting[0] if len(asks) == 1 else None
            had = [] if alone is None else alone.leases
            params = {
                "queue": queue.id,
                "segment": queue.segment,
                "group": group.id,
                "after": after,
                "upto": upto,
                "partitions": request.partitions - len(had),
                "batch": request.batch - sum(lease.end - lease.start for lease in had),
                "leases": [ask.lease_id for ask in waiting],
                "lease_seconds": request.lease_seconds,
                "skew": self._clock.skew,
            }
            statement = _sql.table("lease", queue.id, queue.segment)
            rows = await (await conn.execute(statement, params, binary=True)).fetchall()
            by_id = {ask.lease_id: ask for ask in waiting}
            for lease_id, *row in rows:
                by_id[lease_id].leases.append(_Lease(*row))
            if rows and request.partition is None:
                self._last[group.id] = rows[-1][1]
            waiting = [ask for ask in waiting if _wants_more(ask, request, alone is not None)]
            if not waiting:
                break
        for ask in asks:
            ask.unsure = False
        if group.epoch < queue.epoch and not any(ask.leases for ask in asks):
            ended = await self._groups.advance(conn, queue, group)
            for ask in asks:
                ask.epoch_ended = ended

    async def _spans(self, queue: Queue, group: Group, request: PopRequest) -> list[tuple[int, int]]:
        """The ranges of partitions to look through, one after the other."""
        if request.partition is not None:
            found = await self._catalog.find_lanes(queue, request.partition)
            return [(lane - 1, lane) for lane in found]
        # Round the partitions in turn: on from the last one served, then the ones before it.
        last = self._last.get(group.id, 0)
        return [(last, _FURTHEST), (0, last)] if last else [(0, _FURTHEST)]

    async def _patiently(self, act: Callable[..., Awaitable[_Answer]], *args: Any) -> _Answer:
        """Do it with a connection; again after a look at the catalog, and over lost connections."""
        deadline = asyncio.get_running_loop().time() + self._retry_seconds
        pause = 0.05
        while True:
            try:
                async with self._pool.connection() as conn:
                    return await act(conn, *args)
            except psycopg.ProgrammingError as error:
                if not moved_on(error) or not isinstance(args[0], str):
                    raise
                await self._catalog.refresh(args[0])
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise DatabaseUnavailable(
                        f"the pop was given up after {self._retry_seconds:g} s without a database: {error}"
                    ) from error
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)

    async def _read(
        self, conn: AsyncConnection[Any], queue: Queue, group: Group, ask: _Ask
    ) -> tuple[list[Event], bool]:
        """The events under the leases; if there are none, whether that is because none is due yet."""
        leases, lease_id = ask.leases, ask.lease_id
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
        nothing_due = True
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
            mine, end = _due(delivery, lease, stored, group.id, visible_until)
            events += mine
            if end < lease.end:
                wake = next(piece.appended_at for piece in stored if piece.end > end)
                wake += timedelta(seconds=queue.delay_seconds)
                await self._acks.shorten(conn, delivery, end, None if mine or end > lease.start else wake)
            if not mine and end > lease.start:
                # Other groups' redriven events, or dead letters: the position goes on without them.
                await self._acks.pass_over(conn, delivery, end)
                nothing_due = False
            if stored:
                self._open_chunks.put(group.id, lease.partition_id, stored[-1])
        return events, nothing_due

    async def _next_moment(self, group: Group) -> float:
        async with self._pool.connection() as conn:
            params = {"group": group.id, "skew": self._clock.skew}
            row = await (await conn.execute(_sql["next_moment"], params)).fetchone()
        if row is None or row[0] is None:
            return _LOOK_AGAIN
        soon: timedelta = row[0]
        return max(soon.total_seconds() + 0.001, 0.001)


def _wants_more(ask: _Ask, request: PopRequest, alone: bool) -> bool:
    if not alone:
        return not ask.leases
    return len(ask.leases) < request.partitions and sum(x.end - x.start for x in ask.leases) < request.batch


def _due(
    delivery: Delivery, lease: _Lease, stored: Sequence[StoredChunk], group_id: int, visible_until: datetime | None
) -> tuple[list[Event], int]:
    """The events of a lease that are for this group and due, and the offset up to which they are."""
    events: list[Event] = []
    for piece in stored:
        if visible_until is not None and piece.appended_at > visible_until:
            return _kept(events, lease), max(piece.first, lease.start)
        if piece.target_group is None or piece.target_group == group_id:
            offsets = range(max(piece.first, lease.start), min(piece.end, lease.end))
            events += [Event(delivery, piece, offset) for offset in offsets]
    return _kept(events, lease), lease.end


def _kept(events: list[Event], lease: _Lease) -> list[Event]:
    return [event for event in events if event.offset not in lease.skipped] if lease.skipped else events


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

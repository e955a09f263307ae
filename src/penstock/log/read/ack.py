"""Acknowledging: the common case as one statement for all who ask at the same time, the others one by one."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload
from uuid import UUID

import msgspec
import psycopg

from penstock.core.errors import CorruptChunk, InvalidRequest, NotFound
from penstock.db.fast.prepared import fetch
from penstock.db.pg_arrays import numbers, uuids
from penstock.db.retry import LOST, Patience
from penstock.db.statements import Statements
from penstock.log.read import position as rules
from penstock.log.read.position import Position, Signal, Status, Verdict, settle
from penstock.log.write.group_commit import Coalescer

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool

    from penstock.core.clock import Clock
    from penstock.log.catalog import Catalog
    from penstock.log.dead_letters import DeadLetters
    from penstock.log.event import Delivery, Event
    from penstock.log.notify import Signals

_sql = Statements("penstock.log.read", "ack.sql")

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")

#: How many seconds a pop may wait for others, so that one statement serves them all: about what that takes.
_LONGEST_GATHER = 0.002

STATUSES: dict[object, Status] = {
    True: "completed",
    False: "failed",
    "completed": "completed",
    "success": "completed",
    "failed": "failed",
    "retry": "retry",
    "dead_letter": "dead_letter",
    "dlq": "dead_letter",
}


@dataclass(frozen=True, slots=True)
class AckResult:
    """What became of one acknowledgement.

    ``success`` is False if it was refused, and ``error`` says why. ``noop`` means that the event had been
    completed before; ``dead_letter`` that it went to the dead letters.
    """

    event_id: str
    success: bool
    error: str | None = None
    noop: bool = False
    dead_letter: bool = False

    def __bool__(self) -> bool:
        return self.success


class AllCompleted(Sequence[AckResult]):
    """The results of an ack that all succeeded, made when they are looked at."""

    __slots__ = ("_events",)

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events

    def __len__(self) -> int:
        return len(self._events)

    @overload
    def __getitem__(self, index: int) -> AckResult: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[AckResult]: ...
    def __getitem__(self, index: int | slice) -> AckResult | Sequence[AckResult]:
        if isinstance(index, slice):
            return AllCompleted(self._events[index])
        return AckResult(self._events[index].id, True)

    def __repr__(self) -> str:
        return f"<{len(self)} acknowledgements, all completed>"


class LaneAck(msgspec.Struct, frozen=True):
    """Signals for one partition under one lease (None: none is claimed)."""

    queue: str
    group: str
    group_id: int
    partition_id: int
    lease_id: UUID | None
    signals: tuple[Signal, ...]

    def upto(self) -> int:
        """The offset after the last one that is spoken of."""
        return max(signal.offset for signal in self.signals) + 1


@dataclass(slots=True)
class _Completion:
    ack: LaneAck
    verdicts: tuple[Verdict, ...] | None = None
    #: Not to be had in one statement: an event before it is skipped.
    other_way: bool = False
    tries: int = field(default=0)


@dataclass(frozen=True, slots=True)
class _Flush:
    """Completions under way: how many of each group, and when they are done."""

    groups: Counter[int]
    done: asyncio.Future[None]


class Acks:
    """Takes acknowledgements."""

    def __init__(
        self,
        pool: AsyncConnectionPool[Any],
        catalog: Catalog,
        dead_letters: DeadLetters,
        signals: Signals,
        clock: Clock,
        retry_seconds: float,
    ) -> None:
        self._pool = pool
        self._catalog = catalog
        self._dead_letters = dead_letters
        self._signals = signals
        self._clock = clock
        self._retry_seconds = retry_seconds
        self._flush: _Flush | None = None
        self._completions: Coalescer[_Completion] = Coalescer(self._complete)

    async def gather(self, group_id: int, asking: int) -> None:
        """Wait for consumers of the group who are being told that their events are done, and may ask for more.

        Consumers that pop and complete small batches fall into two halves: while one asks the other completes, and
        each statement serves half of them. The smaller half waits, and they go on together. It does not wait long.
        """
        flush = self._flush
        if flush is None or flush.groups.get(group_id, 0) < asking:
            return
        await asyncio.wait([flush.done], timeout=_LONGEST_GATHER)
        # They have heard of it when we go on a second time, and asked.
        await asyncio.sleep(0)

    async def drain(self) -> None:
        """Wait until no acknowledgement is under way."""
        await self._completions.drain()

    async def ack(
        self,
        events: Sequence[Event],
        status: object,
        *,
        error: str = "",
        stage: str = "consumer",
        traceback: str | None = None,
    ) -> Sequence[AckResult]:
        """Say of every event the same."""
        said = check_status(status)
        if said != "completed":
            return await self.signal([(e, Signal(e.offset, said, error, stage, traceback)) for e in events])
        ends: dict[int, Event] = {}
        for event in events:
            last = ends.get(id(event.delivery))
            if last is None or event.offset > last.offset:
                ends[id(event.delivery)] = event
        if len(ends) == 1:
            verdicts = [await self._complete_to(event) for event in ends.values()]
        else:
            verdicts = await asyncio.gather(*(self._complete_to(event) for event in ends.values()))
        done = {lane for lane, verdict in zip(ends, verdicts, strict=True) if not (verdict.problem or verdict.noop)}
        if len(done) == len(ends):
            return AllCompleted(events)
        rest = [event for event in events if id(event.delivery) not in done]
        answers = iter(await self.signal([(event, Signal(event.offset)) for event in rest]))
        return [AckResult(e.id, True) if id(e.delivery) in done else next(answers) for e in events]

    async def _complete_to(self, event: Event) -> Verdict:
        (verdict,) = await self.settle(lane_ack(event.delivery, (Signal(event.offset),)))
        return verdict

    async def signal(self, said: Sequence[tuple[Event, Signal]]) -> Sequence[AckResult]:
        """Say of each event something of its own; what belongs to one partition is taken together."""
        lanes: dict[tuple[int, int, UUID | None], list[tuple[int, Event, Signal]]] = {}
        for index, (event, signal) in enumerate(said):
            delivery = event.delivery
            key = (delivery.group_id, delivery.partition_id, delivery.lease_id)
            lanes.setdefault(key, []).append((index, event, signal))
        results: list[AckResult | None] = [None] * len(said)
        for part in lanes.values():
            ack = lane_ack(part[0][1].delivery, tuple(signal for _, _, signal in part))
            for (index, event, _), verdict in zip(part, await self.settle(ack), strict=True):
                results[index] = AckResult(
                    event.id, not verdict.problem, verdict.problem or None, verdict.noop, verdict.dead
                )
        return [result for result in results if result is not None]

    async def settle(self, ack: LaneAck) -> tuple[Verdict, ...]:
        """Take the signals of one partition."""
        if ack.lease_id is not None and all(signal.status == "completed" for signal in ack.signals):
            completion = _Completion(ack)
            await self._completions.submit(completion)
            if completion.verdicts is not None:
                return completion.verdicts
        return await self._patiently(self._settle_alone, ack)

    async def settle_on(
        self, conn: AsyncConnection[Any], acks: Sequence[LaneAck]
    ) -> dict[tuple[int, int], tuple[Verdict, ...]]:
        """Take signals inside the connection's transaction; the cursors are locked until it ends."""
        queues = {ack.queue: await self._catalog.get_on(conn, ack.queue) for ack in acks}
        await conn.execute(_sql["share_queues"], {"queues": [queue.id for queue in queues.values()]})
        where = sorted({(ack.group_id, ack.partition_id) for ack in acks})
        params: dict[str, Any] = {
            "groups": [group for group, _ in where],
            "partitions": [partition for _, partition in where],
            "skew": self._clock.skew,
        }
        there = await (await conn.execute(_sql["lock_cursors"], params)).fetchall()
        rows = await (await conn.execute(_sql["standing"], params)).fetchall()
        if len(rows) < len(there):
            raise psycopg.errors.SerializationFailure("a position has moved")
        standing = {(row[0], row[1]): (_position(row[:-1]), row[-1]) for row in rows}
        verdicts: dict[tuple[int, int], tuple[Verdict, ...]] = {}
        changed: dict[tuple[int, int], Position] = {}
        for ack in acks:
            key = (ack.group_id, ack.partition_id)
            if key not in standing:
                gone = tuple(Verdict(s.offset, f"unresolved: group {ack.group!r} is gone") for s in ack.signals)
                verdicts[key] = verdicts.get(key, ()) + gone
                continue
            before, now = standing[key]
            queue = queues[ack.queue]
            settlement = settle(
                before,
                ack.signals,
                lease_id=ack.lease_id,
                now=now,
                retry_limit=queue.retry_limit,
                retry_delay=timedelta(milliseconds=queue.retry_delay_ms),
            )
            if settlement.dead:
                await self._dead_letters.bury(conn, queue, ack.group, ack.partition_id, settlement.dead)
            verdicts[key] = verdicts.get(key, ()) + settlement.verdicts
            if settlement.position != before:
                standing[key] = (settlement.position, now)
                changed[key] = settlement.position
        if changed:
            await self._write(conn, changed.values())
        return verdicts

    async def announce(self, acks: Sequence[LaneAck]) -> None:
        """Tell those who wait that leases have ended. That a queue is gone meanwhile concerns nobody."""
        for name in {ack.queue for ack in acks}:
            with contextlib.suppress(NotFound):
                self._signals.freed((await self._catalog.get(name)).id)

    async def shorten(self, delivery: Delivery, start: int, end: int) -> None:
        """Keep of a lease what was delivered; before and after it is what is not due yet, or not for this group."""

        def kept(before: Position) -> Position:
            skipped = tuple(offset for offset in before.skipped if offset >= start)
            return replace(before, next_offset=max(before.next_offset, start), lease_end=end, skipped=skipped)

        await self._rewrite(delivery, kept)

    async def postpone(self, delivery: Delivery, until: datetime) -> None:
        """Give back a lease whose events are not due before a time."""
        await self._rewrite(delivery, lambda before: replace(before, lease_id=None, available_at=until))

    async def pass_over(self, delivery: Delivery, end: int) -> None:
        """Move on over events that are not for this group."""
        await self._rewrite(delivery, lambda before: _passed(before, end))

    async def set_aside(self, delivery: Delivery, problem: CorruptChunk) -> None:
        """Make dead letters of what a damaged chunk holds and move on over it, if the lease still holds."""
        await self._patiently(partial(self._set_aside_once, delivery), problem)

    async def _set_aside_once(self, delivery: Delivery, problem: CorruptChunk) -> None:
        queue = await self._catalog.get(delivery.queue)
        async with self._pool.connection() as conn, conn.transaction():
            await conn.execute(_sql["share_queues"], {"queues": [queue.id]})

            async def bury(before: Position) -> Position:
                await self._dead_letters.bury_damaged(conn, delivery, problem, before)
                return _passed(before, problem.end)

            await self._rewrite_on(conn, delivery, bury)

    async def _rewrite(self, delivery: Delivery, change: Callable[[Position], Position]) -> None:
        """Change the position under a lease, if it still holds."""
        await self._patiently(partial(self._rewrite_once, delivery), change)

    async def _rewrite_once(self, delivery: Delivery, change: Callable[[Position], Position]) -> None:
        async def changed(before: Position) -> Position:
            return change(before)

        async with self._pool.connection() as conn, conn.transaction():
            await self._rewrite_on(conn, delivery, changed)

    async def _rewrite_on(
        self, conn: AsyncConnection[Any], delivery: Delivery, change: Callable[[Position], Awaitable[Position]]
    ) -> None:
        params = {"groups": [delivery.group_id], "partitions": [delivery.partition_id], "skew": self._clock.skew}
        await conn.execute(_sql["lock_cursors"], params)
        row = await (await conn.execute(_sql["standing"], params)).fetchone()
        if row is not None and row[4] == delivery.lease_id:
            await self._write(conn, [await change(_position(row[:-1]))])

    async def _write(self, conn: AsyncConnection[Any], positions: Iterable[Position]) -> None:
        rows = list(positions)
        params = {
            "groups": [p.group_id for p in rows],
            "partitions": [p.partition_id for p in rows],
            "versions": [p.version for p in rows],
            "nexts": [p.next_offset for p in rows],
            "leases": [p.lease_id for p in rows],
            "ends": [p.lease_end for p in rows],
            "availables": [p.available_at for p in rows],
            "attempts": [p.attempts for p in rows],
            "skipped": ["{" + ",".join(map(str, p.skipped)) + "}" for p in rows],
            "expiries": [p.expiries for p in rows],
            "suspects": [p.suspect_end for p in rows],
            "skew": self._clock.skew,
        }
        written = await (await conn.execute(_sql["write_positions"], params)).fetchall()
        if len(written) != len(rows):
            # Somebody completed under the same lease between our look and our write; the transaction starts over.
            raise psycopg.errors.SerializationFailure("a position has moved")

    async def _complete(self, completions: Sequence[_Completion]) -> None:
        groups = Counter(completion.ack.group_id for completion in completions)
        self._flush = _Flush(groups, asyncio.get_running_loop().create_future())
        try:
            await self._complete_all(completions)
        finally:
            self._flush.done.set_result(None)
            self._flush = None

    async def _complete_all(self, completions: Sequence[_Completion]) -> None:
        waiting = list(completions)
        while waiting:
            # One row a partition and statement: two of them would race each other for the next version.
            batch: dict[tuple[int, int], _Completion] = {}
            for completion in waiting:
                batch.setdefault((completion.ack.group_id, completion.ack.partition_id), completion)
            await self._patiently(self._complete_batch, [batch[where] for where in sorted(batch)])
            await self.announce([completion.ack for completion in batch.values()])
            waiting = [c for c in waiting if c.verdicts is None and not c.other_way]

    async def _complete_batch(self, batch: Sequence[_Completion]) -> None:
        acks = [completion.ack for completion in batch]
        params = {
            "groups": numbers([ack.group_id for ack in acks]),
            "partitions": numbers([ack.partition_id for ack in acks]),
            "leases": uuids([ack.lease_id for ack in acks]),
            "upto": numbers([ack.upto() for ack in acks]),
            "skew": self._clock.skew,
        }
        async with self._pool.connection() as conn:
            rows = await fetch(conn, _sql["complete"], params)
        answered = {row[0]: row for row in rows}
        for ordinal, completion in enumerate(batch, 1):
            row = answered.get(ordinal)
            completion.tries += 1
            ack = completion.ack
            if row is not None and row[6]:
                released = ack.upto() >= row[4]
                completion.verdicts = tuple(_completed(signal, row[2], released) for signal in ack.signals)
            elif row is None or completion.tries > 2 or (row[3] == ack.lease_id and row[5] > row[7]):
                # Gone, skipped events in the way, or beaten to it: the rules decide under a lock.
                completion.other_way = True
            else:
                completion.verdicts = tuple(
                    Verdict(s.offset, noop=True) if s.offset < row[2] else Verdict(s.offset, rules.LATE)
                    for s in ack.signals
                )

    async def _settle_alone(self, ack: LaneAck) -> tuple[Verdict, ...]:
        async with self._pool.connection() as conn, conn.transaction():
            verdicts = await self.settle_on(conn, [ack])
        await self.announce([ack])
        return verdicts[ack.group_id, ack.partition_id]

    async def _patiently(self, act: Callable[[_Asked], Awaitable[_Answer]], asked: _Asked) -> _Answer:
        """Repeat over lost connections: acknowledging again what was acknowledged changes nothing."""
        patience = Patience(self._retry_seconds)
        while True:
            try:
                return await act(asked)
            except psycopg.errors.SerializationFailure:
                continue
            except LOST as error:
                await patience.pause(error)


def check_status(status: object) -> Status:
    """Return what is said of an event, if it can be."""
    try:
        return STATUSES[status]
    except (KeyError, TypeError):
        raise InvalidRequest(
            f"{status!r} cannot be said of an event; say completed (True), failed (False), retry or dead_letter"
        ) from None


def lane_ack(delivery: Delivery, signals: tuple[Signal, ...]) -> LaneAck:
    """The signals for events of one delivery, with the lease that they come under."""
    if delivery.group is None:
        raise InvalidRequest("this event was read and not popped: it has no group that could ack it")
    return LaneAck(delivery.queue, delivery.group, delivery.group_id, delivery.partition_id, delivery.lease_id, signals)


def _completed(signal: Signal, before: int, released: bool) -> Verdict:
    return Verdict(signal.offset, noop=signal.offset < before, released=released)


def _passed(before: Position, end: int) -> Position:
    """Where a group stands that has moved on over what it will not get, and given its lease back."""
    skipped = tuple(offset for offset in before.skipped if offset >= end)
    return replace(
        before, next_offset=end, lease_id=None, available_at=rules.AT_ONCE, attempts=0, skipped=skipped, expiries=0
    )


def _position(row: Sequence[Any]) -> Position:
    group_id, partition_id, version, next_offset, lease_id, lease_end, available_at, attempts, skipped, *rest = row
    expiries, suspect_end = rest
    return Position(
        group_id,
        partition_id,
        version,
        next_offset,
        lease_id,
        lease_end,
        available_at,
        attempts,
        tuple(skipped),
        expiries,
        suspect_end,
    )

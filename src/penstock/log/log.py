"""The log: queues, pushes, groups, pops, acks, dead letters, behind one object."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar
from uuid import UUID

import psycopg
from psycopg import AsyncConnection

from penstock.core.clock import Clock
from penstock.core.errors import DatabaseUnavailable, InvalidRequest, NotFound, shown
from penstock.core.names import check_name, check_text
from penstock.db.user_connection import UserConnection, borrow
from penstock.log.catalog import Catalog
from penstock.log.dead_letters import REDRIVE_LIMIT, DeadLetter, DeadLetterKind, DeadLetters, Filter, Redrive, Redriver
from penstock.log.event import Event
from penstock.log.groups import Group, GroupLane, Groups, Place
from penstock.log.notify import Signals
from penstock.log.options import MAX_COUNT, check_lease_seconds, check_whole
from penstock.log.queue import Queue
from penstock.log.read.ack import AckResult, Acks, LaneAck, check_status, lane_ack
from penstock.log.read.ack_by_id import Answer, ById, SaidById
from penstock.log.read.ack_request import Ack, Acked, TransactionAck
from penstock.log.read.browse import Browser
from penstock.log.read.lease import Leases, PopRequest
from penstock.log.read.pop import Consumer, Hand
from penstock.log.read.position import Signal, Verdict
from penstock.log.storage.depth import Depths, GroupLag, QueueSize, Room
from penstock.log.storage.lanes import Lane, lanes_behind, page_of_lanes
from penstock.log.storage.partitions import Partition, partitions_of
from penstock.log.storage.segments import Segments, Upkeep
from penstock.log.transaction import Also, TransactionResult, Transactions
from penstock.log.write.append import Appender
from penstock.log.write.batch import Batch as Batch
from penstock.log.write.encode import Piece
from penstock.log.write.flush import Request
from penstock.log.write.ndjson import Lines
from penstock.log.write.push import Pusher, fingerprint
from penstock.log.write.result import PushResult, Rejected
from penstock.log.write.staged_writes import Writes
from penstock.log.write.upload import Upload, Uploads

if TYPE_CHECKING:
    from penstock.db.pool import Database

_UPKEEP_SECONDS = 5.0


#: What a transaction says of an event: its status, an error ("" if there is none) and perhaps a traceback.
Said: TypeAlias = tuple[Event, object, str] | tuple[Event, object, str, str | None]


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group and how far it is behind."""

    queue: str
    group: str
    subscribed_from: str
    query_id: str | None
    created_at: datetime
    lag: int
    partitions_behind: int
    leases: int
    counts: bool = True
    seen_at: datetime | None = None
    away: bool = False


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue, how much it holds, and who reads it."""

    queue: Queue
    size: QueueSize
    groups: list[GroupLag]
    dead_letters: int


_Params = ParamSpec("_Params")
_Answer = TypeVar("_Answer")


def _reachable(
    call: Callable[_Params, Coroutine[Any, Any, _Answer]],
) -> Callable[_Params, Coroutine[Any, Any, _Answer]]:
    """Say in our own words that the database is gone; what was asked may or may not have happened."""

    @wraps(call)
    async def said(*args: _Params.args, **kwargs: _Params.kwargs) -> _Answer:
        try:
            return await call(*args, **kwargs)
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise DatabaseUnavailable(
                f"the database was lost while it was asked to {call.__name__.replace('_', ' ')}: "
                f"{str(error).strip()}; ask again"
            ) from error

    return said


class Log:
    """Durable, partitioned queues in one database."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock | None = None,
        retry_seconds: float = 30.0,
        committed: Callable[[float], None] | None = None,
        stamp: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self._database = database
        self.clock = clock or Clock()
        self._retry_seconds = retry_seconds
        self._committed = committed
        self._stamp = stamp
        self._upkeep: asyncio.Task[None] | None = None

    async def open(self) -> Log:
        """Open the database and begin upkeep in the background."""
        await self._database.open()
        pool = self._database.pool
        pool.timeout = min(pool.timeout, self._retry_seconds)
        clock, patience = self.clock, self._retry_seconds
        self.catalog = Catalog(pool, clock, patience)
        self._groups = Groups(pool, self.catalog, clock, patience)
        self._signals = Signals(pool, self._connect)
        self._appender = Appender(pool, self.catalog, self._signals, clock, patience)
        self._dead = DeadLetters(pool, self.catalog, clock)
        self._redriver = Redriver(pool, self.catalog, self._groups, self._dead, self._appender, clock)
        self._acks = Acks(pool, self.catalog, self._dead, self._signals, clock, patience)
        self._leases = Leases(pool, self.catalog, self._groups, self._acks, self._signals, clock, patience)
        self._consumer = Consumer(
            pool, self.catalog, self._groups, self._leases, self._acks, self._signals, clock, patience
        )
        self._transactions = Transactions(pool, self.catalog, self._acks, self._appender)
        self.by_id = ById(pool, self.catalog, self._groups, self._leases, self._acks, patience)
        self._browser = Browser(pool)
        self._depths = Depths(pool, clock)
        self.segments = Segments(pool, self.catalog, clock)
        self._pusher = Pusher(
            self.catalog,
            self._appender,
            self._depths,
            max_event_bytes=self._database.settings.max_event_bytes,
            committed=self._committed,
            stamp=self._stamp,
        )
        self._uploads = Uploads(pool, self.catalog, self._appender, self._signals, clock, patience)
        self.writes = Writes(self._uploads)
        try:
            await self.catalog.mend()
        except BaseException:
            await self._database.close()
            raise
        self._upkeep = asyncio.create_task(self.segments.run(_UPKEEP_SECONDS))
        return self

    async def close(self) -> None:
        """Finish what is under way and let go of the database."""
        if self._upkeep is not None:
            self._upkeep.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._upkeep
            self._upkeep = None
            await self._pusher.drain()
            await self._acks.drain()
            await self._leases.close()
            await self._signals.close()
        await self._database.close()

    # What the engine, which commits cycles in transactions of its own, needs of the inside

    @property
    def database(self) -> Database:
        """The database that the log is in."""
        return self._database

    @property
    def appender(self) -> Appender:
        """Appends within somebody else's transaction."""
        return self._appender

    @property
    def signals(self) -> Signals:
        """Tells those who wait, and lets wait."""
        return self._signals

    @property
    def burials(self) -> DeadLetters:
        """Dead-letters within somebody else's transaction."""
        return self._dead

    @property
    def group_book(self) -> Groups:
        """Where the groups stand."""
        return self._groups

    # Queues

    @_reachable
    async def configure(
        self,
        name: str,
        options: Mapping[str, object] | None = None,
        *,
        partitioning: str | None = None,
        partitions: int | None = None,
        only_new: bool = False,
    ) -> Queue:
        """Make a queue or change the options that are named."""
        given: object = options
        if given is not None and not isinstance(given, Mapping):
            raise InvalidRequest(f"options must be a mapping such as {{'lease_seconds': 60}}, not {shown(given)}")
        return await self.catalog.configure(
            name, options or {}, partitioning=partitioning, partitions=partitions, only_new=only_new
        )

    @_reachable
    async def queue(self, name: str) -> Queue:
        """A queue as it was at most a second ago."""
        return await self.catalog.get(name)

    @_reachable
    async def queues(self) -> list[Queue]:
        """All queues, by name."""
        found = [await self.catalog.find(name) for name in await self.catalog.names()]
        return [queue for queue in found if queue is not None]

    @_reachable
    async def describe(self, name: str) -> QueueInfo:
        """A queue with its size, its groups and its dead letters."""
        queue = await self.catalog.refresh(name)
        return QueueInfo(
            queue,
            await self._depths.size(queue),
            await self._depths.lags(queue),
            await self._dead.count(Filter(queue=name)),
        )

    @_reachable
    async def delete_queue(self, name: str) -> bool:
        """Delete a queue and all that belongs to it; False if there was none."""
        return await self.catalog.delete(name)

    @_reachable
    async def repartition(self, name: str, partitioning: str, partitions: int | None = None) -> Queue:
        """Partition a queue differently from now on; order per key and every group's place are kept."""
        queue = await self.catalog.refresh(name)
        changed = await self.segments.repartition(queue, partitioning, partitions)
        self._signals.pushed(queue.id)
        return changed

    # Pushing

    @_reachable
    async def push(
        self,
        batches: Sequence[Batch],
        *,
        idempotency_key: str | None = None,
        partial: bool = False,
        rejected: Sequence[Rejected] = (),
    ) -> list[PushResult]:
        """Store all batches or none; the answer comes when they are durable.

        With ``partial``, what cannot be an event becomes a dead letter in the same transaction, and the others are
        stored; ``rejected`` are some of the first batch that were found to be such before.
        """
        if idempotency_key is None and not partial and not rejected:
            return await self._pusher.push(batches)
        return await self._pusher.push_with(
            batches, idempotency_key=idempotency_key, partial=partial, rejected=rejected
        )

    def room(self, queue: Queue) -> Room | None:
        """How much more the queue takes, as it was last measured; None if it has no limit."""
        return self._depths.room(queue)

    @_reachable
    async def check_room(self, queue: Queue, idempotency_key: str | None = None) -> None:
        """Raise QueueFull if the queue takes nothing for now: worth knowing before much is read.

        What was answered before under the key is answered again however full it is.
        """
        await self._pusher.check_room(queue, idempotency_key)

    @_reachable
    async def upload(self, queue: str) -> Upload:
        """Begin to store more events than one likes to hold in memory; they are seen when it is published."""
        check_name(queue, "queue")
        return await self._uploads.begin(await self.catalog.get(queue))

    @_reachable
    async def admit(self, queue: Queue, events: int, idempotency_key: str | None = None) -> bool:
        """Whether so many more events are let in, and if so counted as there; QueueFull if not, False if shed."""
        return await self._pusher.admit(queue, events, idempotency_key)

    async def prepare(self, batch: Batch) -> list[Piece]:
        """Check and encode a batch."""
        return await self._pusher.prepare(batch)

    async def prepare_partly(self, batch: Batch) -> tuple[list[Piece], list[Rejected]]:
        """Check and encode what is good of a batch, and say what is wrong with the rest."""
        return await self._pusher.prepare_partly(batch)

    # Consuming

    @_reachable
    async def pop(self, request: PopRequest, hand: Hand | None = None) -> list[Event]:
        """Lease partitions that have unread events and deliver them; if there is a hand, once they fit it."""
        return await self._consumer.pop(request, hand)

    @_reachable
    async def ack(
        self,
        events: Sequence[Event],
        status: object = True,
        *,
        error: str = "",
        stage: str = "consumer",
        traceback: str | None = None,
    ) -> Sequence[AckResult]:
        """Say of every event the same."""
        _check_errors([error, stage, "" if traceback is None else traceback])
        return await self._acks.ack(events, status, error=error, stage=stage, traceback=traceback)

    @_reachable
    async def ack_each(self, said: Sequence[tuple[Event, object, str]]) -> Sequence[AckResult]:
        """Say of each event something of its own: status, and an error if there is one."""
        _check_errors([error for _, _, error in said])
        return await self._acks.signal(
            [(event, Signal(event.offset, check_status(status), error)) for event, status, error in said]
        )

    @_reachable
    async def ack_leased(self, queue: str, group: str, acks: Sequence[Ack]) -> list[Acked]:
        """The same from somebody who names the events by partition, offset and lease, and is not taken at his word.

        A partition of another queue has no place of this group's, so that nothing else can be moved.
        """
        found = await self._groups.get(await self.catalog.get(queue), check_name(group, "group"))
        if found is None:
            return [Acked(False, f"unresolved: group {group!r} is gone") for _ in acks]
        verdicts: dict[tuple[int, UUID], deque[Verdict]] = {}
        for ack in _lane_acks(queue, found, acks):
            assert ack.lease_id is not None  # noqa: S101 - every one of them has one
            verdicts[ack.partition_id, ack.lease_id] = deque(await self._acks.settle(ack))
        answers = [verdicts[ack.partition_id, ack.lease_id].popleft() for ack in acks]
        return [Acked(not said.problem, said.problem or None, said.noop, said.dead) for said in answers]

    @_reachable
    async def extend_leased(
        self, queue: str, group: str, lease_id: UUID, partition_ids: Sequence[int], seconds: float
    ) -> datetime | None:
        """Make a lease of the group last this long from now in these partitions; None if it has ended."""
        check_lease_seconds(seconds)
        found = await self._groups.get(await self.catalog.get(queue), check_name(group, "group"))
        if found is None:
            return None
        return await self._leases.extend(lease_id, [(found.id, lane) for lane in partition_ids], seconds)

    @_reachable
    async def release(self, queue: str, group: str, lease_id: UUID) -> None:
        """End a lease of the group now: its events come again, at no cost. Nothing happens if there is none."""
        found = await self._groups.get(await self.catalog.get(queue), check_name(group, "group"))
        if found is not None:
            await self._leases.give_up(found, lease_id)

    @_reachable
    async def extend(self, events: Sequence[Event], seconds: float = 60.0) -> datetime | None:
        """Make the lease of these events last this long from now; None if it has ended."""
        check_lease_seconds(seconds)
        where = {(e.delivery.lease_id, e.delivery.group_id, e.delivery.partition_id) for e in events}
        leases = {lease for lease, _, _ in where if lease is not None}
        if len(leases) != 1:
            raise InvalidRequest("events of one lease are needed, and these are of " + str(len(leases)))
        lease: UUID = leases.pop()
        return await self._leases.extend(lease, [(group, lane) for _, group, lane in where], seconds)

    @_reachable
    async def transact(
        self, acks: Sequence[Said], batches: Sequence[Batch], *, connection: UserConnection | None = None
    ) -> TransactionResult:
        """Ack and push together, or raise TransactionRefused and do neither.

        With a ``connection`` that is in a transaction, both become part of that, and happen when it commits.
        """
        lanes: dict[tuple[int, int, UUID | None], list[tuple[Event, Signal]]] = {}
        for event, status, error, *more in acks:
            trace = more[0] if more else None
            _check_errors([error, "" if trace is None else trace])
            signal = Signal(event.offset, check_status(status), error, traceback=trace)
            delivery = event.delivery
            key = (delivery.group_id, delivery.partition_id, delivery.lease_id)
            lanes.setdefault(key, []).append((event, signal))
        lane_acks = [lane_ack(said[0][0].delivery, tuple(s for _, s in said)) for said in lanes.values()]
        parts = [await self.prepare(batch) for batch in batches]
        shed = await self._pusher.admit_parts(parts, Counter(event.queue for event, *_ in acks))
        request = Request.less(parts, shed)
        if connection is not None:
            return await self._transactions.run_on(await borrow(connection), lane_acks, request)
        return await self._transactions.run(lane_acks, request)

    @_reachable
    async def transact_leased(
        self, acks: Sequence[TransactionAck], batches: Sequence[Batch], *, idempotency_key: str | None = None
    ) -> TransactionResult:
        """The same for events that are named by partition, offset and lease.

        Under an idempotency key it happens once, and is answered the same way however often it is asked for.
        """
        by_group: dict[tuple[str, str], list[TransactionAck]] = {}
        for ack in acks:
            by_group.setdefault((ack.queue, ack.group), []).append(ack)
        lane_acks: list[LaneAck] = []
        for (queue, group), some in by_group.items():
            found = await self._groups.get(await self.catalog.get(queue), check_name(group, "group"))
            if found is None:
                raise NotFound(f"queue {queue!r} has no group {group!r}")
            lane_acks += _lane_acks(queue, found, some)
        if idempotency_key is not None:
            check_name(idempotency_key, "request")
        parts = [await self.prepare(batch) for batch in batches]
        shed = await self._pusher.admit_parts(parts, Counter(ack.queue for ack in acks), idempotency_key)
        request, claim = Request.less(parts, shed), None
        if idempotency_key is not None:
            claim = Request.less(parts, shed)
            claim.idempotency_key = idempotency_key
            claim.fingerprint = fingerprint(parts, acks=lane_acks)
        return await self._transactions.run(lane_acks, request, claim)

    @_reachable
    async def ack_by_id(self, said: Sequence[SaidById]) -> list[Answer]:
        """Say of events that are known by their ids what became of them."""
        return await self.by_id.ack(said)

    @_reachable
    async def extend_lease(self, lease_id: UUID, seconds: float = 60.0) -> tuple[int, datetime | None]:
        """Make a lease last this long from now; answers in how many partitions it held, and until when it does."""
        return await self.by_id.extend(lease_id, seconds)

    @_reachable
    async def transact_by_id(
        self,
        said: Sequence[SaidById],
        batches: Sequence[Batch],
        *,
        leases: Sequence[UUID] = (),
        also: Also | None = None,
    ) -> tuple[TransactionResult, list[SaidById]]:
        """Ack by id and push together, or raise TransactionRefused and do neither.

        ``leases`` are required of the acks that claim none themselves. Where there is something that is to happen
        ``also``, in the same transaction, it is a cycle: its outputs are not held up by a queue that is full. Answers
        what was said too, in the order of the verdicts.
        """
        acks, ordered = await self.by_id.resolve_all(said, leases)
        parts = [await self.prepare(batch) for batch in batches]
        shed: Mapping[int, int] = {}
        if also is None:
            shed = await self._pusher.admit_parts(parts, Counter(ack.queue for ack in acks for _ in ack.signals))
        return await self._transactions.run(acks, Request.less(parts, shed), also=also), ordered

    # Groups

    @_reachable
    async def groups(self, queue: str | None = None) -> list[GroupInfo]:
        """Every group with its lag."""
        only = None if queue is None else await self.catalog.refresh(queue)
        found: list[GroupInfo] = []
        lags: dict[str, dict[str, GroupLag]] = {}
        for queue_name, group, subscribed_from, query_id, created_at in await self._groups.names(only):
            if queue_name not in lags:
                try:
                    described = await self.catalog.get(queue_name)
                except NotFound:
                    continue  # deleted meanwhile
                lags[queue_name] = {lag.group: lag for lag in await self._depths.lags(described)}
            lag = lags[queue_name].get(group, GroupLag(group, 0, 0, 0))
            found.append(
                GroupInfo(
                    queue_name,
                    group,
                    subscribed_from,
                    query_id,
                    created_at,
                    lag.lag,
                    lag.partitions_behind,
                    lag.leases,
                    lag.counts,
                    lag.seen_at,
                    lag.away,
                )
            )
        return found

    @_reachable
    async def subscribe(self, queue: str, group: str, place: Place = "beginning") -> None:
        """Make a group that starts at a place, without popping."""
        check_name(queue, "queue")
        await self._groups.subscribe(await self.catalog.get(queue), group, place)

    @_reachable
    async def group_lanes(self, queue: str, group: str) -> list[GroupLane]:
        """Where a group stands in each partition."""
        check_name(group, "group")
        known = await self.catalog.refresh(queue)
        found = await self._groups.get(known, group)
        if found is None:
            raise NotFound(f"queue {queue!r} has no group {group!r}")
        return await self._groups.lanes(known, found)

    @_reachable
    async def seek(self, queue: str, group: str, place: Place, *, partition: str | None = None) -> int:
        """Move a group; answers in how many partitions."""
        check_name(group, "group")
        if partition is not None:
            check_text(partition, "the partition")
        known = await self.catalog.refresh(queue)
        moved = await self._groups.seek(known, group, place, partition=partition)
        self._signals.pushed(known.id)
        return moved

    @_reachable
    async def configure_group(self, queue: str, group: str, *, counts: bool) -> None:
        """Say whether a group's lag counts for ``max_depth_events``: whether pushes wait for it."""
        check_name(group, "group")
        await self._groups.set_counts(await self.catalog.refresh(queue), group, counts=counts)

    @_reachable
    async def delete_group(self, queue: str, group: str) -> bool:
        """Forget a group; False if there was none."""
        check_name(group, "group")
        return await self._groups.delete(await self.catalog.refresh(queue), group)

    @_reachable
    async def partitions(self, queue: str, limit: int | None = None) -> list[Partition]:
        """The partitions of a queue, the fullest first."""
        if limit is not None:
            check_whole("limit", limit, 1, MAX_COUNT)
        return await partitions_of(self._database.pool, self.catalog, await self.catalog.refresh(queue), limit)

    @_reachable
    async def lanes(self, queue: str, *, search: str | None = None, limit: int = 50, offset: int = 0) -> list[Lane]:
        """A page of a queue's partitions, by name, with how their groups stand."""
        known = await self.catalog.refresh(queue)
        return await page_of_lanes(self._database.pool, self.clock, known, search, limit, offset)

    @_reachable
    async def lanes_behind(self, queue: str, group: str, limit: int = 50) -> list[GroupLane]:
        """Where a group has most to read, most first."""
        known = await self.catalog.refresh(queue)
        found = await self._groups.get(known, check_name(group, "group"))
        if found is None:
            raise NotFound(f"queue {queue!r} has no group {group!r}")
        return await lanes_behind(self._database.pool, self.clock, known, found, limit)

    # Dead letters

    @_reachable
    async def dead_letters(self, which: Filter, *, limit: int = 100, offset: int = 0) -> list[DeadLetter]:
        """Dead letters that match, newest failure first."""
        check_whole("limit", limit, 1, MAX_COUNT)
        check_whole("offset", offset, 0, MAX_COUNT)
        return await self._dead.page(which, limit=limit, offset=offset)

    @_reachable
    async def part_of_dead_letters(
        self, which: Filter, limit: int, offset: int, max_bytes: int
    ) -> tuple[list[DeadLetter], bool]:
        """The same as far as they fit so many bytes, at least one, and whether some did not."""
        return await self._dead.part_of_page(which, limit, offset, max_bytes)

    @_reachable
    async def queues_of_dead_letters(self, which: Filter) -> set[str]:
        """The names of the queues that they are of."""
        return await self._dead.queues(which)

    @_reachable
    async def dead_letter(self, id: int) -> DeadLetter:
        """One dead letter."""
        return await self._dead.get(id)

    @_reachable
    async def count_dead_letters(self, which: Filter) -> int:
        """How many match."""
        return await self._dead.count(which)

    @_reachable
    async def dead_letter_kinds(self, queue: str | None = None) -> list[DeadLetterKind]:
        """What went wrong, by queue, group and kind of error; what failed last first."""
        return await self._dead.kinds(queue)

    @_reachable
    async def dead_letter_ids(self, which: Filter, limit: int = 100_000) -> list[int]:
        """The numbers of dead letters that match, the oldest first."""
        check_whole("limit", limit, 1, MAX_COUNT)
        return await self._dead.ids(which, limit)

    @_reachable
    async def redrive(self, which: Filter, *, limit: int | None = REDRIVE_LIMIT) -> Redrive:
        """Send the oldest dead letters that match back to the group that failed on them."""
        if limit is not None:
            check_whole("limit", limit, 1, MAX_COUNT)
        return await self._redriver.redrive(which, limit=limit)

    @_reachable
    async def redrive_edited(self, id: int, data: bytes) -> Redrive:
        """Send a dead letter back with other data, JSON as text; what it had is kept in its history."""
        letter = await self._dead.get(id)
        (piece,) = await self.prepare(Batch(letter.queue, Lines([data], [letter.key])))
        return await self._redriver.redrive(Filter(ids=[id]), limit=1, edited={id: piece.columns.data})

    @_reachable
    async def purge(self, which: Filter) -> int:
        """Delete dead letters for good; answers how many."""
        return await self._dead.purge(which)

    # Looking

    @_reachable
    async def latest(self, queue: str, limit: int = 100) -> list[Event]:
        """The newest events of a queue, newest first, at the same cost however many partitions it has."""
        return await self._browser.latest(await self.catalog.refresh(queue), limit)

    @_reachable
    async def fetch(self, queue: str, partition: str, offset: int = 0, limit: int = 100) -> list[Event]:
        """Events of a partition from an offset on, without consuming them."""
        return await self._browser.fetch(await self.catalog.refresh(queue), partition, offset, limit)

    @_reachable
    async def read(self, queue: str, partition_id: int, offset: int = 0, limit: int = 100) -> list[Event]:
        """The same by the partition's number, which no other has, of this epoch or another."""
        check_whole("the number of a partition", partition_id, 0, MAX_COUNT)
        return await self._browser.read(await self.catalog.refresh(queue), partition_id, offset, limit)

    @_reachable
    async def browse(
        self,
        queue: str,
        *,
        partition: str | None = None,
        key: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        matching: Callable[[Event], bool] | None = None,
        limit: int = 100,
    ) -> list[Event]:
        """The newest events that match, newest first, without consuming them."""
        return await self._browser.browse(
            await self.catalog.refresh(queue),
            partition=partition,
            key=key,
            since=since,
            until=until,
            matching=matching,
            limit=limit,
        )

    @_reachable
    async def find(
        self, queue: str, event_id: str, *, since: datetime | None = None, until: datetime | None = None
    ) -> Event | None:
        """The newest event with that id."""
        return await self._browser.find(await self.catalog.refresh(queue), event_id, since=since, until=until)

    # Waiting and upkeep

    @_reachable
    async def wait_for_push(self, queue: str, seen: int, timeout: float) -> None:
        """Wait until the queue gets events that were not there when ``seen`` was noted."""
        check_name(queue, "queue")
        await self._signals.wait((await self.catalog.get(queue)).id, seen, timeout)

    @_reachable
    async def pushes_seen(self, queue: str) -> int:
        """The mark to note before looking, for :meth:`wait_for_push`."""
        check_name(queue, "queue")
        return self._signals.count((await self.catalog.get(queue)).id)

    @_reachable
    async def upkeep(self) -> Upkeep:
        """Roll, drop and park what is due, now."""
        return await self.segments.upkeep()

    async def _connect(self) -> AsyncConnection[Any]:
        return await self._database.connect()


def _check_errors(errors: list[Any]) -> None:
    for error in errors:
        if not isinstance(error, str):
            raise InvalidRequest(f"what is said of an error must be text, not {type(error).__name__}; give str() of it")


def _lane_acks(queue: str, group: Group, acks: Sequence[Ack]) -> list[LaneAck]:
    """Acks of a group by partition and lease, each one's in order."""
    lanes: dict[tuple[int, UUID], list[Signal]] = {}
    for ack in acks:
        signal = Signal(ack.offset, ack.status, ack.error, ack.stage, ack.traceback)
        lanes.setdefault((ack.partition_id, ack.lease_id), []).append(signal)
    return [LaneAck(queue, group.name, group.id, lane, lease, tuple(said)) for (lane, lease), said in lanes.items()]

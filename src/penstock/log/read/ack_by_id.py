"""Acknowledging by id: for clients that are told an event's id and its partition, and not its offset.

A lease holds a few consecutive events, so the id is looked for among those, whichever process delivered them. What is
not there is behind the group, or was never delivered: the ids that a queue remembers for deduplication tell which.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import psycopg

from penstock.core.errors import NotFound, TransactionRefused
from penstock.core.names import text_problem
from penstock.db.pg_arrays import digests
from penstock.db.retry import patiently
from penstock.db.statements import Statements
from penstock.log.options import check_lease_seconds
from penstock.log.queue import DEFAULT_KEY, Queue
from penstock.log.read.ack import LaneAck
from penstock.log.read.position import Signal, Status, Verdict
from penstock.log.read.reader import read_events
from penstock.log.write.dedup import split_place

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool

    from penstock.log.catalog import Catalog
    from penstock.log.event import Event
    from penstock.log.groups import Groups
    from penstock.log.read.ack import Acks
    from penstock.log.read.lease import Leases

_sql = Statements("penstock.log.read", "ack_by_id.sql")

UNRESOLVED = "unresolved: no event of this partition has that id, or it is too long ago to be known"
NEVER_READ = "unresolved: the group has never read from this partition"
NOT_DELIVERED = "not delivered: the event was never under a lease of this group, so there is nothing to say of it"

#: Where a queue remembers no ids, an id is looked for in so many events before and after the lease.
_LOOK_AROUND = 1000
#: Ids of what was delivered here that are kept at hand.
_MOST_IDS = 200_000


class SaidById(msgspec.Struct, frozen=True):
    """What a consumer says of an event that it knows by its id."""

    group: str
    partition_id: int
    id: str
    status: Status = "completed"
    error: str = ""
    #: The lease that it was delivered under; None: none is claimed.
    lease_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    """A partition and the queue it is of."""

    partition_id: int
    queue_id: int
    queue: str
    partition: str
    epoch: int


class Answer(msgspec.Struct, frozen=True):
    """What became of one thing that was said; ``problem`` is empty if it was taken."""

    problem: str = ""
    noop: bool = False
    dead: bool = False
    released: bool = False
    lane: Lane | None = None


@dataclass(slots=True)
class _Resolved:
    """What is said of a partition by one group under one lease: offsets, and which of the acks each is of."""

    ack: LaneAck
    indices: list[int]


class ById:
    """Takes what is said of events by their ids."""

    def __init__(
        self,
        pool: AsyncConnectionPool[Any],
        catalog: Catalog,
        groups: Groups,
        leases: Leases,
        acks: Acks,
        retry_seconds: float,
    ) -> None:
        self._pool = pool
        self._catalog = catalog
        self._groups = groups
        self._leases = leases
        self._acks = acks
        self._retry_seconds = retry_seconds
        self._lanes: dict[int, Lane] = {}
        self._delivered = _Delivered()

    def remember(self, events: Sequence[Event]) -> None:
        """Keep at hand what was delivered under which lease; what is not at hand is read again."""
        self._delivered.put(events)

    async def ack(self, said: Sequence[SaidById]) -> list[Answer]:
        """Take what is said, partition by partition; answers in the same order."""
        lanes, answers = await self.resolve(said)
        settled = await asyncio.gather(*(self._acks.settle(lane.ack) for lane in lanes))
        for lane, verdicts in zip(lanes, settled, strict=True):
            self.answer(lane, verdicts, answers)
        return [answer or Answer(UNRESOLVED) for answer in answers]

    async def resolve(self, said: Sequence[SaidById]) -> tuple[list[_Resolved], list[Answer | None]]:
        """The acks by offset, and an answer already for each that cannot be one."""
        answers: list[Answer | None] = [None] * len(said)
        together: dict[tuple[str, int, UUID | None], list[int]] = defaultdict(list)
        for index, each in enumerate(said):
            together[each.group, each.partition_id, each.lease_id].append(index)
        resolved: list[_Resolved] = []
        for (group, partition_id, lease_id), indices in together.items():
            lane = await self.lane(partition_id)
            if lane is None:
                for index in indices:
                    answers[index] = Answer(UNRESOLVED)
                continue
            some = [said[index] for index in indices]
            ack, problems = await self._resolve_lane(lane, group, lease_id, some)
            for index, problem in zip(indices, problems, strict=True):
                answers[index] = Answer(problem, lane=lane) if problem else None
            if ack is not None:
                resolved.append(
                    _Resolved(ack, [i for i, problem in zip(indices, problems, strict=True) if not problem])
                )
        return resolved, answers

    def answer(self, lane: _Resolved, verdicts: Sequence[Verdict], answers: list[Answer | None]) -> None:
        """Fill in what became of a partition's acks."""
        where = self._lanes[lane.ack.partition_id]
        for index, verdict in zip(lane.indices, verdicts, strict=True):
            answers[index] = Answer(verdict.problem, verdict.noop, verdict.dead, verdict.released, where)

    async def resolve_all(
        self, said: Sequence[SaidById], leases: Iterable[UUID]
    ) -> tuple[list[LaneAck], list[SaidById]]:
        """The acks of a transaction, or raise TransactionRefused if one of them cannot be one.

        An ack that claims no lease is held against those that the transaction as a whole requires, if it requires any.
        The second answer is what was said, in the order of the acks.
        """
        required = list(leases)
        claimed = [await self._claim(each, required) for each in said] if required else list(said)
        lanes, answers = await self.resolve(claimed)
        for each, answer in zip(said, answers, strict=True):
            if answer is not None:
                raise TransactionRefused(
                    f"the ack of {each.id!r} was refused ({answer.problem}), so all was rolled back"
                )
        places = [(lane.ack.group_id, lane.ack.partition_id) for lane in lanes]
        if len(set(places)) < len(places):
            raise TransactionRefused(
                "one group has acks of one partition under several leases, of which one at the most is valid "
                "(lease), so all was rolled back"
            )
        return [lane.ack for lane in lanes], [said[index] for lane in lanes for index in lane.indices]

    async def _claim(self, said: SaidById, required: Sequence[UUID]) -> SaidById:
        if said.lease_id is not None:
            return said
        lane = await self.lane(said.partition_id)
        standing = None if lane is None else await self._standing(lane, said.group)
        held = standing[2] if standing is not None else None
        return msgspec.structs.replace(said, lease_id=held if held in required else required[0])

    async def queues_of(self, lease_id: UUID) -> set[str]:
        """The queues that a lease has partitions of."""
        where = self._delivered.places(lease_id) or await self._leases.held(lease_id)
        lanes = [await self.lane(partition_id) for _, partition_id in where]
        return {lane.queue for lane in lanes if lane is not None}

    async def extend(self, lease_id: UUID, seconds: float) -> tuple[int, datetime | None]:
        """Make a lease last this long from now: in how many partitions it held, and until when it does now."""
        check_lease_seconds(seconds)
        where = self._delivered.places(lease_id) or await self._leases.held(lease_id)
        if not where:
            return 0, None
        return await self._leases.extend_all(lease_id, where, seconds)

    async def lane(self, partition_id: int) -> Lane | None:
        """The partition of that number, with its queue."""
        known = self._lanes.get(partition_id)
        if known is not None:
            # A queue of that name may be another one by now.
            try:
                if (await self._catalog.get(known.queue)).id == known.queue_id:
                    return known
            except NotFound:
                pass
            del self._lanes[partition_id]
        rows = await self._fetch("lane", {"partition": partition_id})
        if not rows:
            return None
        if len(self._lanes) > 100_000:
            self._lanes.clear()
        lane = self._lanes[partition_id] = Lane(partition_id, *rows[0])
        return lane

    async def locate(self, partition_id: int, event_id: str) -> tuple[Lane, Event] | None:
        """The event with that id in a partition, wherever the groups are."""
        lane = await self.lane(partition_id)
        if lane is None or text_problem(event_id) is not None:
            return None
        queue = await self._catalog.get(lane.queue)
        offset = (await self._remembered(queue, lane, [event_id])).get(event_id, _made_up(lane, event_id))
        if offset is None:
            return None
        async with self._pool.connection() as conn:
            found = await read_events(conn, queue, partition_id, offset, 1)
        return (lane, found[0]) if found and found[0].id == event_id else None

    async def _resolve_lane(
        self, lane: Lane, group: str, lease_id: UUID | None, said: Sequence[SaidById]
    ) -> tuple[LaneAck | None, list[str]]:
        at_hand = None if lease_id is None else self._delivered.get(lease_id, lane.partition_id)
        group_id = 0 if at_hand is None else at_hand.group_id
        offsets = _Offsets({} if at_hand is None else at_hand.offsets)
        found = [offsets.take(each.id) for each in said]
        problems = [""] * len(said)
        if None in found:
            group_id, found, problems = await self._look(lane, group, lease_id, said)
        signals = tuple(
            Signal(offset, each.status, each.error)
            for each, offset, problem in zip(said, found, problems, strict=True)
            if offset is not None and not problem
        )
        if not signals:
            return None, problems
        return LaneAck(lane.queue, group, group_id, lane.partition_id, lease_id, signals), problems

    async def _look(
        self, lane: Lane, group: str, lease_id: UUID | None, said: Sequence[SaidById]
    ) -> tuple[int, list[int | None], list[str]]:
        """The group, the offset of each id, and what is wrong with those that have none."""
        queue = await self._catalog.get(lane.queue)
        known = await self._groups.get(queue, group)
        standing = await self._standing(lane, group)
        if known is None or standing is None:
            return 0, [None] * len(said), [NEVER_READ] * len(said)
        if taken := known.taken():
            return 0, [None] * len(said), [taken] * len(said)
        start, end, _ = standing
        wanted = {each.id for each in said}
        remembers = queue.dedup_window_seconds > 0 and queue.partitioning == "key"
        around = 0 if remembers else _LOOK_AROUND
        offsets = _Offsets(await self._read(queue, lane, known.id, max(start - around, 0), end + around, wanted))
        missing = [event_id for event_id in wanted if not offsets.knows(event_id)]
        for event_id, place in (await self._remembered(queue, lane, missing)).items():
            offsets.add(event_id, place)
        found: list[int | None] = []
        problems: list[str] = []
        for each in said:
            offset = offsets.take(each.id)
            if offset is None:
                offset = _made_up(lane, each.id)
            found.append(offset)
            # Under a lease, the lease says so.
            beyond = offset is not None and lease_id is None and offset >= end
            problems.append(UNRESOLVED if offset is None else NOT_DELIVERED if beyond else "")
        return known.id, found, problems

    async def _standing(self, lane: Lane, group: str) -> tuple[int, int, UUID | None] | None:
        known = await self._groups.get(await self._catalog.get(lane.queue), group)
        if known is None:
            return None
        rows = await self._fetch("standing", {"group": known.id, "partition": lane.partition_id})
        return rows[0] if rows else None

    async def _read(
        self, queue: Queue, lane: Lane, group_id: int, start: int, end: int, wanted: set[str]
    ) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        if end > start:
            async with self._pool.connection() as conn:
                # What is damaged has no ids, and was delivered to nobody.
                events = await read_events(conn, queue, lane.partition_id, start, end - start, [])
            for event in events:
                if event.id in wanted and event.target_group in (None, group_id):
                    found.setdefault(event.id, []).append(event.offset)
        return found

    async def _remembered(self, queue: Queue, lane: Lane, ids: Sequence[str]) -> dict[str, int]:
        """Where the events with these ids are, of those that the queue remembers; the newest of each."""
        keys = ["", DEFAULT_KEY] if lane.partition == DEFAULT_KEY else [lane.partition]
        hashes = {
            blake2b(f"{key}\0{event_id}".encode(), digest_size=16).digest(): event_id
            for event_id in ids
            if text_problem(event_id) is None
            for key in keys
        }
        found: dict[str, int] = {}
        if not hashes or queue.dedup_window_seconds <= 0:
            return found
        params = {"hashes": digests(hashes)}
        async with self._pool.connection() as conn:
            for segment in reversed(queue.id_segments):
                try:
                    rows = await (await conn.execute(_sql.table("seen_ids", queue.id, segment), params)).fetchall()
                except psycopg.errors.UndefinedTable:
                    continue  # the window has passed, and upkeep was quicker
                for digest, stored in rows:
                    epoch, offset = split_place(stored)
                    event_id = hashes[digest.bytes]
                    if epoch == lane.epoch:
                        found[event_id] = max(offset, found.get(event_id, 0))
        return found

    async def _fetch(self, name: str, params: dict[str, Any]) -> list[Any]:
        return await patiently(self._pool, self._retry_seconds, partial(_rows, name, params))


async def _rows(name: str, params: dict[str, Any], conn: AsyncConnection[Any]) -> list[Any]:
    return await (await conn.execute(_sql[name], params)).fetchall()


def _made_up(lane: Lane, event_id: str) -> int | None:
    """The offset of an event that was pushed without an id, from the one that was made up for it."""
    partition, _, offset = event_id.partition("-")
    return int(offset) if partition == str(lane.partition_id) and offset.isdecimal() and len(offset) < 19 else None


class _Offsets:
    """Where ids are, some of them several times: whoever names one twice means one after the other."""

    def __init__(self, offsets: dict[str, list[int]]) -> None:
        self._offsets = offsets
        self._taken: dict[str, int] = {}

    def knows(self, event_id: str) -> bool:
        return event_id in self._offsets

    def add(self, event_id: str, offset: int) -> None:
        self._offsets[event_id] = [offset]

    def take(self, event_id: str) -> int | None:
        places = self._offsets.get(event_id)
        if not places:
            return None
        turn = self._taken.get(event_id, 0)
        self._taken[event_id] = turn + 1
        return places[min(turn, len(places) - 1)]


@dataclass(frozen=True, slots=True)
class _LaneDelivered:
    group_id: int
    offsets: dict[str, list[int]]


class _Delivered:
    """What leases of late delivered, per partition."""

    def __init__(self) -> None:
        self._leases: OrderedDict[UUID, dict[int, _LaneDelivered]] = OrderedDict()
        self._ids = 0

    def put(self, events: Sequence[Event]) -> None:
        for event in events:
            delivery = event.delivery
            if delivery.lease_id is None:
                continue
            lanes = self._leases.setdefault(delivery.lease_id, {})
            lane = lanes.get(delivery.partition_id)
            if lane is None:
                lane = lanes[delivery.partition_id] = _LaneDelivered(delivery.group_id, {})
            lane.offsets.setdefault(event.id, []).append(event.offset)
            self._ids += 1
        while self._ids > _MOST_IDS and len(self._leases) > 1:
            _, gone = self._leases.popitem(last=False)
            self._ids -= sum(len(places) for lane in gone.values() for places in lane.offsets.values())

    def get(self, lease_id: UUID, partition_id: int) -> _LaneDelivered | None:
        return self._leases.get(lease_id, {}).get(partition_id)

    def places(self, lease_id: UUID) -> list[tuple[int, int]]:
        return [(lane.group_id, partition_id) for partition_id, lane in self._leases.get(lease_id, {}).items()]

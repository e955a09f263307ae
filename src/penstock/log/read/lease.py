"""Leases: a group's right to some events of a partition for a while, one holder at a time.

All who ask at the same moment are served by one statement. A lease is a row that says until when it holds, so its
end needs nobody alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec
import psycopg

from penstock.core.errors import InvalidRequest, shown
from penstock.core.names import check_name, check_text
from penstock.db.fast.prepared import fetch
from penstock.db.kill_backend import Orphans
from penstock.db.pg_arrays import numbers, uuids
from penstock.db.retry import LOST, Patience, patiently
from penstock.db.statements import Statements
from penstock.log.groups import DEFAULT_GROUP, Place, check_place
from penstock.log.options import check_lease_seconds, check_whole
from penstock.log.read.lease_id import group_of, new_lease_id
from penstock.log.write.append import MOST_LOOKS, moved_on
from penstock.log.write.group_commit import Coalescer

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool

    from penstock.core.clock import Clock
    from penstock.log.catalog import Catalog
    from penstock.log.groups import Group, Groups
    from penstock.log.notify import Signals
    from penstock.log.queue import Queue
    from penstock.log.read.ack import Acks

_sql = Statements("penstock.log.read", "pop.sql")
DROP_SOME_LEASES = _sql["drop_leases"].replace("penstock.cursors c", _sql["some_cursors"])

_FURTHEST = 2**63 - 1
#: The last condition on a partition that is leased.
UNREAD = "AND h.head > p.next_offset"
_LARGEST_GROUP = 2**31 - 1
#: What a pop brings at the most, about, unless one event alone has more.
MOST_BYTES = 64 << 20


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
    #: The lease to make, where whoever asks has to know it even if the answer never arrives.
    lease_id: uuid.UUID | None = None
    #: The lease of such an answer, which is given up first.
    instead_of: uuid.UUID | None = None
    #: About what is brought at the most, unless one event alone has more; the rest is given back.
    max_bytes: int = MOST_BYTES

    def __post_init__(self) -> None:
        check_name(self.queue, "queue")
        check_name(self.group, "group")
        check_whole("batch", self.batch, 1, 100_000)
        check_whole("partitions", self.partitions, 1, 100_000)
        check_whole("max_bytes", self.max_bytes, 1, MOST_BYTES)
        wait: object = self.wait_seconds
        if not isinstance(wait, int | float) or isinstance(wait, bool) or not wait >= 0:
            raise InvalidRequest(f"the time to wait must be a number of seconds, 0 or more, not {shown(wait)}")
        if self.lease_seconds is not None:
            check_lease_seconds(self.lease_seconds)
        if self.partition is not None:
            check_text(self.partition, "the partition")
        check_place(self.subscribe_from)


class Lease(msgspec.Struct, frozen=True):
    """Offsets ``start`` to ``end`` (not included) of a partition, leased."""

    partition_id: int
    partition: str
    is_lane: bool
    start: int
    end: int
    until: datetime
    attempts: int
    skipped: Sequence[int]
    segment: int
    #: Leases on its first event that ended unanswered.
    expiries: int
    #: That is more than the queue allows, and the last one was on that event alone.
    is_poison: bool


@dataclass(slots=True)
class Ask:
    """A pop that wants leases, and what it got."""

    lease_id: uuid.UUID
    leases: list[Lease] = field(default_factory=list)
    #: Nothing was left to read in the group's epoch of partitions, and it went over to the next: ask again.
    epoch_ended: bool = False
    #: Who asked has gone: what it gets is given back.
    abandoned: bool = False
    #: A statement was sent whose answer has not come.
    unsure: bool = False


class _Turn:
    """Whose turn it is: round the partitions, on from the last one served, then the ones before it."""

    __slots__ = ("_end", "_last", "_trusted")

    def __init__(self) -> None:
        self._last = 0
        # After this one nothing was found, which is believed for so many turns.
        self._end = 0
        self._trusted = 0

    def spans(self, asking: int) -> list[tuple[int, int]]:
        """The ranges to look through, one after the other: a single one, if the turn begins anew.

        Several who ask together may pass by a partition for a few turns that has become readable since the last look
        at the end; one who asks alone may not, or it would be served from the first partition alone.
        """
        if asking > 1 and self._last >= self._end and self._trusted:
            self._trusted -= 1
            return [(0, _FURTHEST)]
        return [(self._last, _FURTHEST), (0, self._last)] if self._last else [(0, _FURTHEST)]

    def looked(self, after: int, upto: int, last: int | None) -> None:
        """A look through a range has served this partition as the last, or none."""
        if last is not None:
            # Where everybody was served in one turn, the next may begin at the beginning.
            self._last = 0 if last == upto else last
        elif upto == _FURTHEST and after:
            self._end, self._trusted = after, 8

    def begin_with(self, partition_id: int) -> None:
        """Serve this partition first in the next turn."""
        self._last = partition_id - 1
        self._trusted = 0


@dataclass(slots=True)
class _Moment:
    """When to look again, for who asks."""

    seconds: float | None = None


class Leases:
    """Grants, extends and takes back leases."""

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
        self._turns: dict[int, _Turn] = {}
        self._asks: dict[tuple[object, ...], Coalescer[Ask]] = {}
        self._moments: dict[int, Coalescer[_Moment]] = {}
        self._background: set[asyncio.Task[None]] = set()

    async def ask(self, queue: Queue, group: Group, request: PopRequest) -> Ask:
        """Leases on what the group has yet to read, if there is any that nobody else holds."""
        key = (queue.id, group.id, request.partition, request.batch, request.partitions, request.lease_seconds)
        asks = self._asks.get(key)
        if asks is None:
            if len(self._asks) > 1000:
                self._asks.clear()
            asks = self._asks[key] = Coalescer(
                partial(self._serve, queue.name, group.name, request),
                most=64,
                gather=partial(self._acks.gather, group.id),
            )
        ask = Ask(request.lease_id or new_lease_id(group.id))
        try:
            await asks.submit(ask)
        except asyncio.CancelledError:
            ask.abandoned = True
            if ask.leases:
                self.give_back(group, ask)
            raise
        return ask

    def give_back(self, group: Group, ask: Ask) -> None:
        """Release what was leased to somebody who is gone; in the background, since it cannot wait for it."""
        task = asyncio.create_task(self._release(group, [ask]))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def give_back_some(self, group: Group, ask: Ask, partition_ids: Sequence[int]) -> None:
        """Release what there is no room for in some partitions; it is their turn next, the first one's first."""
        lease_ids = [ask.lease_id]
        await patiently(
            self._pool, self._retry_seconds, lambda conn: self._release_on(conn, group.id, lease_ids, partition_ids)
        )
        self._turns.setdefault(group.id, _Turn()).begin_with(partition_ids[0])
        self._signals.freed(group.queue_id)

    async def give_up(self, group: Group, lease_id: uuid.UUID) -> None:
        """Release a lease whose holder never heard of it; nothing happens if there is none."""
        await patiently(self._pool, self._retry_seconds, lambda conn: self._release_on(conn, group.id, [lease_id]))
        self._signals.freed(group.queue_id)

    async def extend(self, lease_id: uuid.UUID, where: Sequence[tuple[int, int]], seconds: float) -> datetime | None:
        """Make the lease on these (group, partition) last longer; None if it has ended."""
        _, until = await self.extend_all(lease_id, where, seconds)
        return until

    async def extend_all(
        self, lease_id: uuid.UUID, where: Sequence[tuple[int, int]], seconds: float
    ) -> tuple[int, datetime | None]:
        """The same; answers in how many of them it still held, too."""
        left = sorted(set(where))
        ends: list[datetime] = []
        for _ in range(3):  # an ack of the same lease may come in between
            params = {
                "groups": [group for group, _ in left],
                "partitions": [partition for _, partition in left],
                "lease": lease_id,
                "seconds": seconds,
                "skew": self._clock.skew,
            }
            rows = await patiently(self._pool, self._retry_seconds, partial(_fetch, "extend", params))
            ends += [until for _, _, until in rows]
            done = {(group, partition) for group, partition, _ in rows}
            left = [place for place in left if place not in done]
            if not left:
                break
        return len(ends), min(ends, default=None)

    async def held(self, lease_id: uuid.UUID) -> list[tuple[int, int]]:
        """The (group, partition) that are under a lease, if it is one; whoever made it need not be this process."""
        group_id = group_of(lease_id)
        if group_id > _LARGEST_GROUP:
            return []
        params = {"group": group_id, "lease": lease_id}
        rows = await patiently(self._pool, self._retry_seconds, partial(_fetch, "held", params))
        return [(group, partition) for group, partition in rows]

    async def next_moment(self, group: Group) -> float | None:
        """Seconds until the earliest lease, retry or delay of the group ends; None if there is none.

        All pops that begin to wait at the same time are told by one look.
        """
        moments = self._moments.get(group.id)
        if moments is None:
            if len(self._moments) > 1000:
                self._moments.clear()
            moments = self._moments[group.id] = Coalescer(partial(self._find_moment, group.id))
        moment = _Moment()
        await moments.submit(moment)
        return moment.seconds

    async def _find_moment(self, group_id: int, moments: Sequence[_Moment]) -> None:
        params = {"group": group_id, "skew": self._clock.skew}
        rows = await patiently(self._pool, self._retry_seconds, partial(_fetch, "next_moment", params))
        if rows and rows[0][0] is not None:
            soon: timedelta = rows[0][0]
            for moment in moments:
                moment.seconds = max(soon.total_seconds() + 0.001, 0.001)

    async def close(self) -> None:
        """Wait until what was given back is."""
        if self._background:
            await asyncio.wait(self._background, timeout=5)

    async def _serve(self, queue: str, group: str, request: PopRequest, asks: Sequence[Ask]) -> None:
        patience = Patience(self._retry_seconds)
        orphans = Orphans()
        for looks in count():
            try:
                async with self._pool.connection() as conn:
                    # Who has yet to read our statement would lease what nobody knows of.
                    await orphans.end(conn)
                    with orphans.watching(conn):
                        await self._lease(conn, queue, group, request, asks)
                return
            except psycopg.ProgrammingError as error:
                if not moved_on(error) or looks > MOST_LOOKS:
                    raise
                await self._catalog.refresh(queue)
            except LOST as error:
                await patience.pause(error)

    async def _lease(
        self, conn: AsyncConnection[Any], queue_name: str, group_name: str, request: PopRequest, asks: Sequence[Ask]
    ) -> None:
        queue = await self._catalog.get_on(conn, queue_name)
        group = await self._groups.get_on(conn, queue, group_name)
        if group is None:
            return
        unsure = [ask for ask in asks if ask.unsure]
        if unsure:
            await self._release_on(conn, group.id, [ask.lease_id for ask in unsure])
        for ask in asks:
            ask.unsure, ask.leases = True, []
        waiting = list(asks)
        for after, upto in await self._spans(conn, queue, group, request, len(asks)):
            # One who asks alone may fill up from several spans; of several, each takes what it gets.
            had = asks[0].leases if len(asks) == 1 else []
            params = {
                "queue": queue.id,
                "segment": queue.segment,
                "epoch": queue.epoch,
                "group": group.id,
                "after": after,
                "upto": upto,
                "partitions": request.partitions - len(had),
                "batch": request.batch - sum(lease.end - lease.start for lease in had),
                "leases": uuids([ask.lease_id for ask in waiting]),
                "lease_seconds": request.lease_seconds,
                "skew": self._clock.skew,
            }
            statement = _sql.table("lease", queue.id, queue.segment)
            if queue.quiet_seconds > 0:
                params["quiet"] = queue.quiet_seconds
                quiet = _sql.table("when_quiet", queue.id, queue.segment)
                statement = statement.replace(UNREAD, f"{UNREAD}\n{quiet}")
            rows = await fetch(conn, statement, params)
            by_id = {ask.lease_id: ask for ask in waiting}
            for lease_id, *row in sorted(rows, key=itemgetter(1)):
                by_id[lease_id].leases.append(Lease(*row))
            if request.partition is None:
                turn = self._turns.setdefault(group.id, _Turn())
                turn.looked(after, upto, max((row[1] for row in rows), default=None))
            waiting = [ask for ask in waiting if _wants_more(ask, request, len(asks) == 1)]
            if not waiting:
                break
        for ask in asks:
            ask.unsure = False
        gone = [ask for ask in asks if ask.abandoned and ask.leases]
        if gone:
            await self._release_on(conn, group.id, [ask.lease_id for ask in gone])
        if group.epoch < queue.epoch and not any(ask.leases for ask in asks):
            ended = await self._groups.advance(conn, queue, group)
            for ask in asks:
                ask.epoch_ended = ended

    async def _spans(
        self, conn: AsyncConnection[Any], queue: Queue, group: Group, request: PopRequest, asking: int
    ) -> list[tuple[int, int]]:
        """The ranges of partitions to look through, one after the other."""
        if request.partition is not None:
            found = await self._catalog.find_lanes(conn, queue, request.partition)
            return [(lane - 1, lane) for lane in found]
        turn = self._turns.get(group.id)
        return [(0, _FURTHEST)] if turn is None else turn.spans(asking)

    async def _release(self, group: Group, asks: Sequence[Ask]) -> None:
        # If it fails, the lease ends by itself.
        with contextlib.suppress(psycopg.Error):
            async with self._pool.connection() as conn:
                await self._release_on(conn, group.id, [ask.lease_id for ask in asks])
            self._signals.freed(group.queue_id)

    async def _release_on(
        self,
        conn: AsyncConnection[Any],
        group_id: int,
        leases: Sequence[uuid.UUID],
        partition_ids: Sequence[int] | None = None,
    ) -> None:
        params: dict[str, Any] = {"group": group_id, "leases": uuids(leases)}
        if partition_ids is None:
            await conn.execute(_sql["drop_leases"], params)
        else:
            params["partitions"] = numbers(partition_ids)
            await conn.execute(DROP_SOME_LEASES, params)


async def _fetch(name: str, params: dict[str, Any], conn: AsyncConnection[Any]) -> list[Any]:
    return await (await conn.execute(_sql[name], params)).fetchall()


def _wants_more(ask: Ask, request: PopRequest, alone: bool) -> bool:
    if not alone:
        return not ask.leases
    taken = sum(lease.end - lease.start for lease in ask.leases)
    return len(ask.leases) < request.partitions and taken < request.batch

"""Leases: a group's exclusive right to some events of a partition for a limited time.

One statement serves all pops that wait at the same time. A lease is a row with its expiry time, so it ends without any
process.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache, partial
from itertools import count
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import psycopg
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from penstock.core.clock import Clock
from penstock.core.errors import DatabaseUnavailable
from penstock.db.fast.prepared import fetch
from penstock.db.kill_backend import LostBackends
from penstock.db.pg_arrays import uuid_array
from penstock.db.retry import CONNECTION_ERRORS, DatabaseRetry, run_with_retry
from penstock.db.statements import Statements, fill_placeholders
from penstock.log.catalog import MAX_LAYOUT_RETRIES, Catalog, is_layout_change
from penstock.log.group_commit import GroupCommit
from penstock.log.groups import ConsumerGroups, Group
from penstock.log.notify import Notifier
from penstock.log.queue import Queue
from penstock.log.read.ack import Acks
from penstock.log.read.pop_request import PopRequest
from penstock.log.read.position_store import PositionKey, PositionStore
from penstock.log.read.round_robin import ALL_PARTITIONS, PartitionSpan, RoundRobin

_GROUP_SHIFT = 96
_VERSION = 0x8 << 76
_VARIANT = 0b10 << 62
_RANDOM = (1 << _GROUP_SHIFT) - 1 - (0xF << 76) - (0b11 << 62)


def new_lease_id(group_id: int) -> UUID:
    """Return a new id for a lease of the group."""
    return UUID(int=group_id << _GROUP_SHIFT | _VERSION | _VARIANT | (secrets.randbits(_GROUP_SHIFT) & _RANDOM))


def group_of_lease(lease_id: UUID) -> int:
    """Return the id of the group that the lease id contains. It is arbitrary if another program made the id."""
    return lease_id.int >> _GROUP_SHIFT


_sql = Statements("penstock.log.read", "lease.sql")

_MAX_GROUP_ID = 2**31 - 1
#: The most pops that one statement serves.
_MAX_POPS = 64
_MAX_CACHED_GROUPS = 1000


class Lease(msgspec.Struct, frozen=True):
    """A lease on the offsets from ``start`` to before ``end`` of a partition."""

    lease_id: uuid.UUID
    partition_id: int
    partition: str
    is_key_partition: bool
    start: int
    end: int
    until: datetime
    #: The largest number of failed attempts of an event.
    attempts: int
    failures: Sequence[Sequence[int]]
    skipped: Sequence[int]
    segment: int
    #: The number of leases on the first event that expired without an ack.
    expiries: int
    #: ``expiries`` has reached the limit of the queue, and the last of these leases was on the first event alone.
    is_poison: bool


@dataclass(slots=True)
class LeaseRequest:
    """A pop that waits for leases, and the leases that it got."""

    lease_id: uuid.UUID
    leases: list[Lease] = field(default_factory=list)
    #: The group has read its epoch of partitions to the end and moved on to the next: request again.
    epoch_ended: bool = False
    #: The caller was cancelled. Its leases are released.
    is_abandoned: bool = False
    #: A statement was sent, and its result is unknown.
    is_unsure: bool = False


class LeaseExtension(NamedTuple):
    """In how many partitions a lease was extended, and the earliest new end (None: it had expired everywhere)."""

    partitions: int
    until: datetime | None


@dataclass(slots=True)
class _Availability:
    seconds: float | None = None


@lru_cache(maxsize=10_000)
def lease_statement(queue_id: int, segment: int, *, when_quiet: bool) -> str:
    """Return the statement that leases partitions: all readable ones, or only those without recent appends."""
    condition = _sql.table("quiet_condition", queue_id, segment) if when_quiet else ""
    return fill_placeholders(_sql.table("lease", queue_id, segment), quiet_condition=condition)


@dataclass(slots=True, eq=False)
class Leases:
    pool: AsyncConnectionPool[Any]
    catalog: Catalog
    groups: ConsumerGroups
    acks: Acks
    positions: PositionStore
    notifier: Notifier
    clock: Clock
    retry_seconds: float
    _round_robins: dict[int, RoundRobin] = field(default_factory=dict, init=False)
    _requests: dict[tuple[object, ...], GroupCommit[LeaseRequest]] = field(default_factory=dict, init=False)
    _availability: dict[int, GroupCommit[_Availability]] = field(default_factory=dict, init=False)
    _background: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    async def acquire(self, queue: Queue, group: Group, pop: PopRequest) -> LeaseRequest:
        """Lease partitions with events that the group has not read and that nobody else has leased."""
        key = (queue.id, group.id, pop.partition, pop.batch, pop.partitions, pop.lease_seconds)
        requests = self._requests.get(key)
        if requests is None:
            if len(self._requests) > _MAX_CACHED_GROUPS:
                self._requests.clear()
            requests = self._requests[key] = GroupCommit(
                partial(self._serve, queue.name, group.name, pop),
                max_weight=_MAX_POPS,
                gather=partial(self.acks.wait_for_completions, group.id),
            )
        request = LeaseRequest(pop.lease_id or new_lease_id(group.id))
        try:
            await requests.submit(request)
        except asyncio.CancelledError:
            request.is_abandoned = True
            if request.leases:
                self.release_in_background(group, request.lease_id)
            raise
        return request

    def release_in_background(self, group: Group, lease_id: uuid.UUID) -> None:
        """Release a lease without waiting for it, because the caller is being cancelled."""
        task = asyncio.create_task(self._release_quietly(group, lease_id))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def release_partitions(self, group: Group, lease_id: uuid.UUID, partition_ids: Sequence[int]) -> None:
        """Release a lease in some partitions. The next pops start with them."""
        await self.positions.release([lease_id], [PositionKey(group.id, id) for id in partition_ids])
        self._round_robins.setdefault(group.id, RoundRobin()).start_at(partition_ids[0])
        self.notifier.notify_later(group.queue_id)

    async def release(self, group: Group, lease_id: uuid.UUID) -> None:
        """Release a lease, if it exists."""
        await run_with_retry(self.pool, self.retry_seconds, partial(self._release_on, group.id, [lease_id]))
        self.notifier.notify_later(group.queue_id)

    async def extend(self, lease_id: uuid.UUID, keys: Sequence[PositionKey], seconds: float) -> LeaseExtension:
        """Extend a lease to ``seconds`` from now, where it has not expired."""
        ends = await self.positions.extend(lease_id, keys, timedelta(seconds=seconds))
        return LeaseExtension(len(ends), min(ends, default=None))

    async def leased_partitions(self, lease_id: uuid.UUID) -> list[PositionKey]:
        """Return the partitions of a lease, whichever process granted it."""
        group_id = group_of_lease(lease_id)
        if group_id > _MAX_GROUP_ID:
            return []
        return await run_with_retry(self.pool, self.retry_seconds, partial(_find_leased, group_id, [lease_id]))

    async def seconds_until_available(self, group: Group) -> float | None:
        """Return the time until the earliest lease, retry or delay of the group ends, or None if there is none.

        One statement serves all pops that start to wait at the same time.
        """
        queries = self._availability.get(group.id)
        if queries is None:
            if len(self._availability) > _MAX_CACHED_GROUPS:
                self._availability.clear()
            queries = self._availability[group.id] = GroupCommit(partial(self._find_next_available, group.id))
        query = _Availability()
        await queries.submit(query)
        return query.seconds

    async def _find_next_available(self, group_id: int, queries: Sequence[_Availability]) -> None:
        params = {"group": group_id, "skew": self.clock.skew}
        cursor = await run_with_retry(
            self.pool, self.retry_seconds, lambda conn: conn.execute(_sql["next_available"], params)
        )
        for (remaining,) in await cursor.fetchall():
            if remaining is not None:
                for query in queries:
                    query.seconds = max(remaining.total_seconds() + 0.001, 0.001)

    async def close(self) -> None:
        """Wait until released leases are written."""
        if self._background:
            await asyncio.wait(self._background, timeout=5)

    async def _serve(self, queue: str, group: str, pop: PopRequest, requests: Sequence[LeaseRequest]) -> None:
        retry = DatabaseRetry(self.retry_seconds)
        lost_backends = LostBackends()
        for attempt in count():
            try:
                # A backend that has not read the lost statement yet would grant a lease that nobody knows of.
                async with lost_backends.connection(self.pool) as conn:
                    await self._grant(conn, queue, group, pop, requests)
                return
            except psycopg.ProgrammingError as error:
                if not is_layout_change(error) or attempt > MAX_LAYOUT_RETRIES:
                    raise
                await self.catalog.refresh(queue)
            except CONNECTION_ERRORS as error:
                await retry.pause(error)

    async def _grant(
        self,
        conn: AsyncConnection[Any],
        queue_name: str,
        group_name: str,
        pop: PopRequest,
        requests: Sequence[LeaseRequest],
    ) -> None:
        queue = await self.catalog.get_on(conn, queue_name)
        group = await self.groups.get_on(conn, queue, group_name)
        if group is None:
            return
        unsure = [request.lease_id for request in requests if request.is_unsure]
        if unsure:
            await self._release_on(group.id, unsure, conn)
        for request in requests:
            request.is_unsure, request.leases = True, []
        is_single = len(requests) == 1
        waiting = list(requests)
        for span in await self._spans(conn, queue, group, pop, len(requests)):
            leases = await self._lease_span(conn, queue, group, pop, span, waiting, requests[0] if is_single else None)
            if pop.partition is None:
                round_robin = self._round_robins.setdefault(group.id, RoundRobin())
                round_robin.record(span, leases[-1].partition_id if leases else None)
            waiting = [request for request in waiting if _wants_more(request, pop, is_single=is_single)]
            if not waiting:
                break
        for request in requests:
            request.is_unsure = False
        abandoned = [request.lease_id for request in requests if request.is_abandoned and request.leases]
        if abandoned:
            await self._release_on(group.id, abandoned, conn)
        if any(request.leases for request in requests):
            return
        # The cached queue may be a second old, and another process may have changed its partitions since.
        current = queue if group.epoch < queue.epoch else await self.catalog.find_on(conn, queue_name)
        if current is not None and group.epoch < current.epoch:
            has_advanced = await self.groups.advance(conn, current, group)
            for request in requests:
                request.epoch_ended = has_advanced

    async def _lease_span(
        self,
        conn: AsyncConnection[Any],
        queue: Queue,
        group: Group,
        pop: PopRequest,
        span: PartitionSpan,
        waiting: Sequence[LeaseRequest],
        single: LeaseRequest | None,
    ) -> list[Lease]:
        """Lease partitions of a span for the waiting requests and return the leases by partition."""
        # A single request may fill up from several spans. One of several keeps what it gets from the first.
        granted = single.leases if single is not None else []
        params = {
            "queue": queue.id,
            "segment": queue.segment,
            "epoch": queue.epoch,
            "group": group.id,
            "after": span.after,
            "upto": span.upto,
            "partitions": pop.partitions - len(granted),
            "batch": pop.batch - sum(lease.end - lease.start for lease in granted),
            "leases": uuid_array([request.lease_id for request in waiting]),
            "lease_seconds": pop.lease_seconds,
            "skew": self.clock.skew,
        }
        when_quiet = queue.quiet_seconds > 0
        if when_quiet:
            params["quiet"] = queue.quiet_seconds
        rows = await fetch(conn, lease_statement(queue.id, queue.segment, when_quiet=when_quiet), params)
        leases = sorted([Lease(*row) for row in rows], key=attrgetter("partition_id"))
        by_id = {request.lease_id: request for request in waiting}
        for lease in leases:
            by_id[lease.lease_id].leases.append(lease)
        return leases

    async def _spans(
        self, conn: AsyncConnection[Any], queue: Queue, group: Group, pop: PopRequest, waiting: int
    ) -> list[PartitionSpan]:
        if pop.partition is not None:
            partition_ids = await self.catalog.find_partitions(conn, queue, pop.partition)
            return [PartitionSpan(partition_id - 1, partition_id) for partition_id in partition_ids]
        round_robin = self._round_robins.get(group.id)
        return [ALL_PARTITIONS] if round_robin is None else round_robin.spans(waiting)

    async def _release_quietly(self, group: Group, lease_id: uuid.UUID) -> None:
        # If this fails, the lease expires later.
        with contextlib.suppress(psycopg.Error, DatabaseUnavailable):
            await self.release(group, lease_id)

    async def _release_on(self, group_id: int, lease_ids: Sequence[uuid.UUID], conn: AsyncConnection[Any]) -> None:
        await self.positions.release_on(lease_ids, await _find_leased(group_id, lease_ids, conn), conn)


async def _find_leased(group_id: int, lease_ids: Sequence[uuid.UUID], conn: AsyncConnection[Any]) -> list[PositionKey]:
    params = {"group": group_id, "leases": uuid_array(lease_ids)}
    rows = await (await conn.execute(_sql["leased_partitions"], params)).fetchall()
    return [PositionKey(group_id, partition_id) for (partition_id,) in rows]


def _wants_more(request: LeaseRequest, pop: PopRequest, *, is_single: bool) -> bool:
    if not is_single:
        return not request.leases
    taken = sum(lease.end - lease.start for lease in request.leases)
    return len(request.leases) < pop.partitions and taken < pop.batch

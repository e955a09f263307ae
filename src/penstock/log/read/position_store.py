"""Reads and writes the positions of groups, under row locks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import psycopg
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from penstock.core.clock import Clock
from penstock.core.errors import CorruptChunk
from penstock.db.retry import CONNECTION_ERRORS, DatabaseRetry, run_with_retry
from penstock.db.statements import Statements
from penstock.log.catalog import Catalog
from penstock.log.dead_letters.dead_letter_store import DeadLetters
from penstock.log.event import Delivery
from penstock.log.read.position import AT_ONCE, Position, failures_by_offset

_sql = Statements("penstock.log.read", "position_store.sql")

_T = TypeVar("_T")


class PositionKey(NamedTuple):
    group_id: int
    partition_id: int


class LockedPosition(NamedTuple):
    """A position that is locked until the transaction ends, and the time of the lock."""

    position: Position
    now: datetime


async def retry_on_conflict(seconds: float, operation: Callable[[], Awaitable[_T]]) -> _T:
    """Run an idempotent operation, and again if a position has moved meanwhile or the connection is lost."""
    retry = DatabaseRetry(seconds)
    while True:
        try:
            return await operation()
        except psycopg.errors.SerializationFailure:
            continue
        except CONNECTION_ERRORS as error:
            await retry.pause(error)


@dataclass(slots=True, eq=False)
class PositionStore:
    pool: AsyncConnectionPool[Any]
    catalog: Catalog
    dead_letters: DeadLetters
    clock: Clock
    retry_seconds: float

    async def share_queues(self, conn: AsyncConnection[Any], queue_ids: Iterable[int]) -> None:
        """Keep queues from being deleted until the transaction ends. Call it before any lock on a position."""
        await conn.execute(_sql["share_queues"], {"queues": list(queue_ids)})

    async def lock(self, conn: AsyncConnection[Any], keys: Iterable[PositionKey]) -> dict[PositionKey, LockedPosition]:
        """Lock positions and return those that exist. Raise SerializationFailure if one has moved meanwhile."""
        ordered = sorted(set(keys))
        params: dict[str, Any] = {
            "groups": [key.group_id for key in ordered],
            "partitions": [key.partition_id for key in ordered],
            "skew": self.clock.skew,
        }
        cursors = await (await conn.execute(_sql["lock_cursors"], params)).fetchall()
        rows = await (await conn.execute(_sql["lock_positions"], params)).fetchall()
        if len(rows) < len(cursors):
            raise psycopg.errors.SerializationFailure("a position has moved")
        locked: dict[PositionKey, LockedPosition] = {}
        for now, attempts, group_id, partition_id, version, next_offset, *lease, failures, skipped in rows:
            failed = failures_by_offset(next_offset, attempts, failures)
            columns = (group_id, partition_id, version, next_offset, *lease, failed, tuple(skipped))
            locked[PositionKey(group_id, partition_id)] = LockedPosition(Position(*columns), now)
        return locked

    async def write(self, conn: AsyncConnection[Any], positions: Iterable[Position]) -> None:
        """Write the next version of each position. Raise SerializationFailure if one has moved meanwhile."""
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
            "failures": [
                "{" + ",".join(f"{{{offset},{count}}}" for offset, count in sorted(p.failures.items())) + "}"
                for p in rows
            ],
            "skipped": ["{" + ",".join(map(str, p.skipped)) + "}" for p in rows],
            "expiries": [p.expiries for p in rows],
            "suspects": [p.suspect_end for p in rows],
            "redelivered": [p.redelivered_end for p in rows],
            "skew": self.clock.skew,
        }
        written = await (await conn.execute(_sql["write_positions"], params)).fetchall()
        if len(written) != len(rows):
            # An ack of the same lease came between the read and the write.
            raise psycopg.errors.SerializationFailure("a position has moved")

    async def extend(self, lease_id: UUID, keys: Collection[PositionKey], length: timedelta) -> list[datetime]:
        """Extend a lease to ``length`` from now, where it has not ended, and return the new ends."""

        async def operation() -> list[datetime]:
            async with self.pool.connection() as conn, conn.transaction():
                extended = [
                    replace(position, available_at=max(position.available_at, now + length))
                    for position, now in (await self.lock(conn, keys)).values()
                    if position.lease_id == lease_id and position.available_at > now
                ]
                await self.write(conn, extended)
            return [position.available_at for position in extended]

        return await retry_on_conflict(self.retry_seconds, operation)

    async def release(self, lease_ids: Collection[UUID], keys: Collection[PositionKey]) -> None:
        """End leases now. Their events are delivered again, without a failed attempt."""
        await run_with_retry(self.pool, self.retry_seconds, partial(self.release_on, lease_ids, keys))

    async def release_on(
        self, lease_ids: Collection[UUID], keys: Collection[PositionKey], conn: AsyncConnection[Any]
    ) -> None:
        """Like :meth:`release`, with the caller's connection."""
        async with conn.transaction():
            released = [
                replace(position, lease_id=None, lease_end=position.next_offset, available_at=AT_ONCE)
                for position, _now in (await self.lock(conn, keys)).values()
                if position.lease_id in lease_ids
            ]
            await self.write(conn, released)

    async def shorten_lease(self, delivery: Delivery, start: int, end: int) -> None:
        """Reduce a lease to the offsets that were delivered. The others are not due yet, or not for this group."""

        def shorten(position: Position) -> Position:
            return replace(position.moved_to(max(position.next_offset, start)), lease_end=end)

        await self._update_leased(delivery, shorten)

    async def postpone(self, delivery: Delivery, until: datetime) -> None:
        """End a lease. The partition becomes readable again at a later time."""
        await self._update_leased(delivery, lambda position: replace(position, lease_id=None, available_at=until))

    async def skip_to(self, delivery: Delivery, end: int) -> None:
        """End a lease and move past events that are not for this group."""
        await self._update_leased(delivery, lambda position: _move_to(position, end))

    async def skip_damaged(self, delivery: Delivery, problem: CorruptChunk) -> None:
        """End a lease, store the events of a damaged chunk as dead letters, and move past them."""

        async def operation() -> None:
            queue = await self.catalog.get(delivery.queue)
            async with self.pool.connection() as conn, conn.transaction():
                await self.share_queues(conn, [queue.id])
                position = await self._lock_leased(conn, delivery)
                if position is None:
                    return
                first = max(position.next_offset, problem.start)
                offsets = [offset for offset in range(first, problem.end) if offset not in position.skipped]
                await self.dead_letters.add_damaged(conn, delivery.group or "", problem, offsets, str(problem))
                await self.write(conn, [_move_to(position, problem.end)])

        await retry_on_conflict(self.retry_seconds, operation)

    async def _update_leased(self, delivery: Delivery, change: Callable[[Position], Position]) -> None:
        """Change the position of a delivery, unless its lease has ended."""

        async def operation() -> None:
            async with self.pool.connection() as conn, conn.transaction():
                position = await self._lock_leased(conn, delivery)
                if position is not None:
                    await self.write(conn, [change(position)])

        await retry_on_conflict(self.retry_seconds, operation)

    async def _lock_leased(self, conn: AsyncConnection[Any], delivery: Delivery) -> Position | None:
        key = PositionKey(delivery.group_id, delivery.partition_id)
        locked = (await self.lock(conn, [key])).get(key)
        if locked is None or locked.position.lease_id != delivery.lease_id:
            return None
        return locked.position


def _move_to(position: Position, end: int) -> Position:
    return replace(position.moved_to(end), lease_id=None, available_at=AT_ONCE, expiries=0)

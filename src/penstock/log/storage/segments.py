"""Segments: the tables that a queue's chunks lie in, one after the other, and what is done to them with time.

A segment is sealed when it is old or large enough and a new one opened; retention drops whole tables. The same
round parks the cursors of lanes that have been drained and idle, so that a pop does not look at them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.core.errors import PenstockError
from penstock.db.retry import LOST
from penstock.db.statements import Statements
from penstock.log.options import check_partitioning
from penstock.log.write.upload import sweep

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool

    from penstock.core.clock import Clock
    from penstock.log.catalog import Catalog
    from penstock.log.queue import Queue

_sql = Statements("penstock.log.storage", "segments.sql")
_drop = Statements("penstock.log", "catalog.sql")
_dead = Statements("penstock.log", "dead_letters.sql")
_depth = Statements("penstock.log.storage", "depth.sql")
_upload = Statements("penstock.log.write", "upload.sql")
_logger = logging.getLogger("penstock.log")

_LONGEST = timedelta(days=1)
_LARGEST = 4 << 30
#: The advisory lock of who does the round; the others leave it to them.
_ROUND_LOCK = 0x70656E73746F636B
_IDLE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What a round of upkeep did."""

    rolled: int = 0
    dropped: int = 0
    parked: int = 0
    #: Segments past their retention that some group has yet to read.
    waiting: int = 0


class Segments:
    """Rolls, drops and parks."""

    def __init__(self, pool: AsyncConnectionPool[Any], catalog: Catalog, clock: Clock) -> None:
        self._pool = pool
        self._catalog = catalog
        self._clock = clock

    async def upkeep(self) -> Upkeep:
        """One round over all queues, by whichever process comes first."""
        rolled = dropped = parked = waiting = 0
        # Until it is known, it may be ours: who is cancelled while it asks must not keep it.
        locked: bool | None = None
        async with self._pool.connection() as conn:
            try:
                row = await (await conn.execute("SELECT pg_try_advisory_lock(%s)", (_ROUND_LOCK,))).fetchone()
                locked = row is not None and row[0]
                if not locked:
                    return Upkeep()
                for name in await self._catalog.names_on(conn):
                    queue = await self._catalog.find_on(conn, name)
                    if queue is None:
                        continue
                    try:
                        if await self._is_due(conn, queue):
                            queue = await self._roll_on(conn, queue)
                            rolled += 1
                        gone, kept = await self._retain(conn, queue)
                        dropped, waiting = dropped + gone, waiting + kept
                        parked += await self._park(conn, queue)
                        await sweep(conn, queue, self._clock)
                    except (psycopg.errors.LockNotAvailable, psycopg.errors.UndefinedTable) as error:
                        _logger.debug("upkeep of queue %r is left for the next round: %s", name, error)
                    except LOST:
                        if conn.broken:
                            raise
                    except Exception:
                        # One queue that cannot be kept up must not stop the others.
                        _logger.exception("upkeep of queue %r failed", name)
                await conn.execute(_sql["forget_requests"])
                await conn.execute(_sql["forget_traces"])
                await conn.execute(_upload["forget_writes"])
                await conn.execute(_dead["forget_redriven"])
                await conn.execute(_depth["add_up_shed"])
            finally:
                if locked is not False:
                    with contextlib.suppress(psycopg.Error):
                        await conn.execute("SELECT pg_advisory_unlock(%s)", (_ROUND_LOCK,))
        return Upkeep(rolled, dropped, parked, waiting)

    async def run(self, every: float) -> None:
        """Rounds without end, for a task in the background."""
        while True:
            await asyncio.sleep(every)
            try:
                await self.upkeep()
            except (psycopg.Error, PenstockError, TimeoutError) as error:
                _logger.debug("a round of upkeep failed and is tried again: %s", error)

    async def roll(self, queue: Queue) -> None:
        """Seal the open segment and open the next. Pushes to the queue wait for the moment it takes."""
        async with self._pool.connection() as conn:
            await self._roll_on(conn, queue)

    async def _roll_on(self, conn: AsyncConnection[Any], queue: Queue) -> Queue:
        async with conn.transaction():
            # A transaction of the user's may hold a partition for as long as it likes, and all pushes wait behind us.
            await conn.execute("SET LOCAL lock_timeout = '1s'")
            current = await self._hold(conn, queue)
            if current is None:
                return queue
            if current.segment == queue.segment:
                await self._seal(conn, current)
        return await self._catalog.find_on(conn, queue.name) or queue

    async def repartition(self, queue: Queue, partitioning: str, partitions: int | None) -> Queue:
        """Start a new epoch of partitions. Every group finishes the old ones first, so order per key is kept."""
        kind, count = check_partitioning(partitioning, partitions)
        async with self._pool.connection() as conn, conn.transaction():
            current = await self._hold(conn, queue)
            if current is not None and (current.partitioning, current.partition_count) != (kind, count):
                epoch = current.epoch + 1
                params = {"queue": queue.id, "epoch": epoch, "partitioning": kind, "partition_count": count}
                await conn.execute(_sql["new_epoch"], params)
                if count is not None:
                    names = [str(i) for i in range(count)]
                    await self._catalog.create_partitions(conn, queue.id, epoch, names, is_lane=False)
        return await self._catalog.refresh(queue.name)

    async def _hold(self, conn: AsyncConnection[Any], queue: Queue) -> Queue | None:
        """Lock the queue and all its partitions: no push is under way, no lane is made."""
        current = await self._catalog.lock_on(conn, queue)
        await conn.execute(_sql["lock_lanes"], {"queue": queue.id})
        return current

    async def _seal(self, conn: AsyncConnection[Any], queue: Queue) -> None:
        params = {"queue": queue.id, "segment": queue.segment, "skew": self._clock.skew}
        await conn.execute(_sql.table("summarize", queue.id, queue.segment), params, prepare=False)
        await conn.execute(_sql["seal_lanes"], params)
        await conn.execute(_sql["seal_segment"], params)
        await conn.execute(_drop.table("drop_append", queue.id, queue.segment), prepare=False)
        await self._catalog.create_segment(conn, queue.id, queue.segment + 1)
        await conn.execute(_sql["open_segment"], {"queue": queue.id, "segment": queue.segment + 1})

    async def _is_due(self, conn: AsyncConnection[Any], queue: Queue) -> bool:
        params = {"queue": queue.id, "segment": queue.segment, "skew": self._clock.skew}
        statement = _sql.table("age_and_size", queue.id, queue.segment)
        row = await (await conn.execute(statement, params, prepare=False)).fetchone()
        if row is None or not row[2]:
            return False
        longest = _LONGEST
        if queue.retention_seconds is not None:
            longest = min(longest, timedelta(seconds=min(queue.retention_seconds / 4, 1e9)))
        elif queue.dedup_window_seconds <= 0:
            longest = timedelta.max  # nothing is ever dropped, so age is no reason
        return bool(row[0] > longest or row[1] > _LARGEST)

    async def _retain(self, conn: AsyncConnection[Any], queue: Queue) -> tuple[int, int]:
        dropped = waiting = 0
        params = {"queue": queue.id, "skew": self._clock.skew, "seconds": queue.dedup_window_seconds}
        for (segment,) in await (await conn.execute(_sql["old_ids"], params)).fetchall():
            async with conn.transaction():
                await self._drop_table(conn, "drop_ids_table", queue, segment)
                await conn.execute(_sql["forget_ids"], {"queue": queue.id, "segment": segment})
        if queue.retention_seconds is None:
            return 0, 0
        params["seconds"] = max(queue.retention_seconds, queue.dedup_window_seconds)
        for segment, unread in await (await conn.execute(_sql["expired"], params)).fetchall():
            if unread and not queue.retention_drops_unread:
                waiting += 1
                break  # what comes after it is needed too: a group reads in order
            async with conn.transaction():
                where = {"queue": queue.id, "segment": segment, "skew": self._clock.skew}
                if unread:
                    await self._hold_behind(conn, where)
                    for group, count in await (await conn.execute(_sql["skip_dropped"], where)).fetchall():
                        _logger.warning(
                            "queue %r: retention dropped %d events that group %r had not read", queue.name, count, group
                        )
                await self._drop_table(conn, "drop_chunks_table", queue, segment)
                await self._drop_table(conn, "drop_ids_table", queue, segment)
                await conn.execute(_sql["forget_segment"], where)
            dropped += 1
        return dropped, waiting

    async def _hold_behind(self, conn: AsyncConnection[Any], where: Mapping[str, Any]) -> None:
        """Lock the positions of all groups in a segment's lanes; acks go on, so some may slip away at first."""
        while True:
            row = await (await conn.execute(_sql["lock_behind"], where)).fetchone()
            if row is None or row[0] == row[1]:
                return

    async def _drop_table(self, conn: AsyncConnection[Any], statement: str, queue: Queue, segment: int) -> None:
        # Whoever still reads it is not waited for, and nobody waits behind us: the next round tries again.
        await conn.execute("SET LOCAL lock_timeout = '200ms'")
        await conn.execute(_drop.table(statement, queue.id, segment), prepare=False)

    async def _park(self, conn: AsyncConnection[Any], queue: Queue) -> int:
        if queue.partitioning == "hash" and queue.epoch == 0:
            return 0  # few, and all in use
        params: dict[str, Any] = {"queue": queue.id, "skew": self._clock.skew, "seconds": _IDLE_SECONDS}
        idle = await (await conn.execute(_sql.table("idle_cursors", queue.id, queue.segment), params)).fetchall()
        if not idle:
            return 0
        async with conn.transaction():
            where = {"groups": [group for group, _ in idle], "partitions": [partition for _, partition in idle]}
            held = await (await conn.execute(_sql["try_lock_cursors"], where)).fetchall()
            wanted = {"partitions": sorted({partition for _, partition in held})}
            rows = await (await conn.execute(_sql["try_lock_lanes"], wanted)).fetchall()
            locked = {partition for (partition,) in rows}
            some = [(group, partition) for group, partition in held if partition in locked]
            where = {
                "groups": [group for group, _ in some],
                "partitions": [partition for _, partition in some],
            }
            return (await conn.execute(_sql.table("park", queue.id, queue.segment), where)).rowcount

"""The queues and their partitions: made, configured, remembered."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterable, Mapping
from shlex import quote
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.core.errors import Conflict, NotFound
from penstock.core.names import check_name
from penstock.db.retry import patiently
from penstock.db.statements import Statements
from penstock.log import options as opt
from penstock.log.queue import Queue
from penstock.log.write.encode import Placer

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool

    from penstock.core.clock import Clock

_sql = Statements("penstock.log", "catalog.sql")
_logger = logging.getLogger("penstock.log")

#: How long what is known of a queue is used without asking again.
FRESH_SECONDS = 1.0
#: More lanes than this deserve a word about `hash`.
MANY_LANES = 10_000


class Catalog:
    """What this process knows of the queues."""

    def __init__(self, pool: AsyncConnectionPool[Any], clock: Clock, retry_seconds: float) -> None:
        self._pool = pool
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._queues: dict[str, tuple[float, Queue]] = {}
        self._placers: dict[str, Placer] = {}
        self._lanes: dict[tuple[int, int, str], int] = {}
        self._made = 0

    async def get(self, name: str) -> Queue:
        """The queue of that name, as it was at most a second ago."""
        return self.at_hand(name) or await self.refresh(name)

    async def get_on(self, conn: AsyncConnection[Any], name: str) -> Queue:
        """The same, with a connection at hand: who holds one must not wait for another."""
        return self.at_hand(name) or self._must(name, await self.find_on(conn, name))

    def at_hand(self, name: str) -> Queue | None:
        """The same, if it need not be asked for."""
        cached = self._queues.get(name)
        if cached is not None and time.monotonic() - cached[0] < FRESH_SECONDS:
            return cached[1]
        return None

    async def refresh(self, name: str) -> Queue:
        """The queue of that name, as it is."""
        return self._must(name, await self.find(name))

    def _must(self, name: str, queue: Queue | None) -> Queue:
        if queue is None:
            how = f"queue({name!r}).create(), or `penstock queue create {quote(name)}`"
            raise NotFound(f"there is no queue {name!r}; create it with {how}", queue=name)
        return queue

    async def find(self, name: str) -> Queue | None:
        """The queue of that name, or None."""
        check_name(name, "queue")
        return await patiently(self._pool, self._retry_seconds, lambda conn: self.find_on(conn, name))

    async def find_on(self, conn: AsyncConnection[Any], name: str) -> Queue | None:
        """The queue of that name as this connection sees it, or None."""
        row = await (await conn.execute(_sql["queue"], {"name": name})).fetchone()
        if row is None:
            self._queues.pop(name, None)
            self._placers.pop(name, None)
            return None
        queue = Queue(*row)
        self._queues[name] = (time.monotonic(), queue)
        return queue

    async def lock_on(self, conn: AsyncConnection[Any], queue: Queue) -> Queue | None:
        """Lock the queue's row: no lane is made, and what is read now stays so until the transaction ends."""
        await conn.execute(_sql["lock_queue"], {"queue": queue.id})
        return await self.find_on(conn, queue.name)

    async def names(self) -> list[str]:
        """The names of all queues."""
        return await patiently(self._pool, self._retry_seconds, self.names_on)

    async def names_on(self, conn: AsyncConnection[Any]) -> list[str]:
        """The same, with a connection at hand."""
        rows = await (await conn.execute(_sql["queues"])).fetchall()
        return [name for (name,) in rows]

    def placer(self, queue: Queue) -> Placer:
        """What places keys in the queue's partitions."""
        placer = self._placers.get(queue.name)
        if placer is None or placer.queue.id != queue.id or placer.queue.epoch != queue.epoch:
            placer = self._placers[queue.name] = Placer(queue)
        elif placer.queue is not queue:
            placer.queue = queue
        return placer

    async def configure(
        self,
        name: str,
        given: Mapping[str, object],
        *,
        partitioning: str | None = None,
        partitions: int | None = None,
        only_new: bool = False,
    ) -> Queue:
        """Make the queue, or change the options that are named and leave the others as they are."""
        check_name(name, "queue")
        options = opt.check_options(given)
        if partitioning is not None or partitions is not None:
            wanted = opt.check_partitioning(partitioning or "hash", partitions)
        else:
            wanted = None
        existing = await self.find(name)
        if existing is None:
            created = await self._create(name, options, *(wanted or ("key", None)))
            if created is not None:
                return created
            existing = await self.refresh(name)
        if only_new:
            raise Conflict(f"queue {name!r} exists already; configure it, or choose another name")
        if wanted is not None and wanted[0] != existing.partitioning:
            raise Conflict(
                f"queue {name!r} is partitioned by {existing.partitioning}, not by {wanted[0]}; "
                f"change that with `penstock queue repartition {name}`"
            )
        if partitions is not None and partitions != existing.partition_count:
            raise Conflict(
                f"queue {name!r} has {existing.partition_count} partitions, not {partitions}; "
                f"change that with `penstock queue repartition {name}`"
            )
        if options:
            changed = dataclasses.replace(existing, **options)
            values = {field: getattr(changed, field) for field in (*opt.DEFAULTS, "dedup_window_seconds")}
            async with self._pool.connection() as conn:
                await conn.execute(_sql["configure_queue"], {**values, "queue": existing.id})
            return await self.refresh(name)
        return existing

    async def _create(
        self, name: str, options: Mapping[str, Any], partitioning: str, partition_count: int | None
    ) -> Queue | None:
        values = {
            **opt.DEFAULTS,
            "dedup_window_seconds": opt.DEFAULT_DEDUP_SECONDS[partitioning],
            **options,
            "name": name,
            "partitioning": partitioning,
            "partition_count": partition_count,
        }
        async with self._pool.connection() as conn, conn.transaction():
            row = await (await conn.execute(_sql["create_queue"], values)).fetchone()
            if row is None:
                return None
            queue_id = row[0]
            await self.create_segment(conn, queue_id, 1)
            if partition_count is not None:
                names = [str(i) for i in range(partition_count)]
                await self.create_partitions(conn, queue_id, 0, names, is_lane=False)
        return await self.refresh(name)

    async def create_segment(self, conn: AsyncConnection[Any], queue_id: int, segment: int) -> None:
        """Make the tables of a segment."""
        params = {"queue": queue_id, "segment": segment, "skew": self._clock.skew}
        await conn.execute(_sql["create_segment"], params)
        await conn.execute(_sql["make_segment"], params)

    async def mend(self) -> None:
        """Make the functions anew that a migration has dropped because they changed."""
        async with self._pool.connection() as conn:
            for (name,) in await (await conn.execute(_sql["without_append"])).fetchall():
                async with conn.transaction():
                    queue = await self.find_on(conn, name)
                    queue = None if queue is None else await self.lock_on(conn, queue)
                    if queue is not None:
                        await conn.execute(_sql["make_append"], {"queue": queue.id, "segment": queue.segment})

    async def delete(self, name: str) -> bool:
        """Delete the queue and all that belongs to it; False if there was none."""
        queue = await self.find(name)
        if queue is None:
            return False
        async with self._pool.connection() as conn, conn.transaction():
            if await (await conn.execute(_sql["lock_queue"], {"queue": queue.id})).fetchone() is None:
                return False
            for statement in ("lock_groups", "lock_all", "lock_lanes"):
                await conn.execute(_sql[statement], {"queue": queue.id})
            segments = await (await conn.execute(_sql["segments"], {"queue": queue.id})).fetchall()
            for segment, *_ in segments:
                for statement in ("drop_append", "drop_chunks_table", "drop_ids_table"):
                    await conn.execute(_sql.table(statement, queue.id, segment), prepare=False)
            await conn.execute(_sql["delete_positions"], {"queue": queue.id})
            await conn.execute(_sql["delete_queue"], {"queue": queue.id})
        self._queues.pop(name, None)
        self._placers.pop(name, None)
        return True

    async def lanes(self, queue: Queue, names: Iterable[str]) -> dict[str, int]:
        """The partitions of those names, made where they do not exist yet."""
        found: dict[str, int] = {}
        missing: list[str] = []
        for name in names:
            lane = self._lanes.get((queue.id, queue.epoch, name))
            if lane is None:
                missing.append(name)
            else:
                found[name] = lane
        if missing:
            if len(self._lanes) > 1_000_000:
                self._lanes.clear()
            for name, lane in (await self._find_or_make(queue, missing)).items():
                found[name] = self._lanes[queue.id, queue.epoch, name] = lane
        return found

    async def as_of(self, conn: AsyncConnection[Any], queue: Queue, epoch: int) -> Queue:
        """The queue as it was partitioned in an epoch."""
        row = await (await conn.execute(_sql["epoch"], {"queue": queue.id, "epoch": epoch})).fetchone()
        count = None if row is None or row[0] else row[1]
        kind = "key" if count is None else "hash"
        return dataclasses.replace(queue, epoch=epoch, partitioning=kind, partition_count=count)

    async def lane_of(self, conn: AsyncConnection[Any], queue: Queue, name: str) -> int:
        """The partition of that name in the queue's epoch; 0, which none has, if there is none."""
        known = self._lanes.get((queue.id, queue.epoch, name))
        if known is not None:
            return known
        params = {"queue": queue.id, "epoch": queue.epoch, "names": [name]}
        row = await (await conn.execute(_sql["partitions_named"], params)).fetchone()
        return 0 if row is None else int(row[1])

    async def find_lanes(self, conn: AsyncConnection[Any], queue: Queue, name: str) -> list[int]:
        """The partitions of that name, of the oldest epoch first; none is made."""
        params = {"queue": queue.id, "name": name}
        rows = await (await conn.execute(_sql["partitions_everywhere"], params)).fetchall()
        return [lane for (lane,) in rows]

    async def _find_or_make(self, queue: Queue, names: list[str]) -> dict[str, int]:
        return await patiently(self._pool, self._retry_seconds, lambda conn: self._find_or_make_on(conn, queue, names))

    async def _find_or_make_on(self, conn: AsyncConnection[Any], queue: Queue, names: list[str]) -> dict[str, int]:
        params = {"queue": queue.id, "epoch": queue.epoch, "names": names}
        rows = await (await conn.execute(_sql["partitions_named"], params)).fetchall()
        found: dict[str, int] = dict(rows)
        absent = [name for name in names if name not in found]
        if absent:
            try:
                async with conn.transaction():
                    found.update(await self._create_lanes(conn, queue, absent))
            except psycopg.errors.ForeignKeyViolation:
                raise NotFound(f"queue {queue.name!r} was deleted meanwhile") from None
            if len(found) < len(set(names)):  # somebody else made some of them meanwhile
                rows = await (await conn.execute(_sql["partitions_named"], params)).fetchall()
                found = dict(rows)
            await self._watch_lanes(conn, queue, len(absent))
        return found

    async def _create_lanes(self, conn: AsyncConnection[Any], queue: Queue, names: list[str]) -> dict[str, int]:
        by_key = queue.partitioning == "key"
        return await self.create_partitions(conn, queue.id, queue.epoch, names, is_lane=by_key)

    async def create_partitions(
        self, conn: AsyncConnection[Any], queue_id: int, epoch: int, names: list[str], *, is_lane: bool
    ) -> dict[str, int]:
        """Make partitions, with a cursor for every group. They outlive a push that fails."""
        params: dict[str, Any] = {"queue": queue_id, "epoch": epoch, "names": names, "is_lane": is_lane}
        rows = await (await conn.execute(_sql["create_partitions"], params)).fetchall()
        made: dict[str, int] = dict(rows)
        params["partitions"] = list(made.values())
        await conn.execute(_sql["share_groups"], params)
        await conn.execute(_sql["subscribe_partitions"], params)
        return made

    async def _watch_lanes(self, conn: AsyncConnection[Any], queue: Queue, made: int) -> None:
        if queue.partitioning != "key" or queue.lanes_warned_at is not None:
            return
        before, self._made = self._made, self._made + made
        if before // 1000 == self._made // 1000:
            return
        params = {"queue": queue.id, "epoch": queue.epoch, "limit": MANY_LANES}
        if await (await conn.execute(_sql["warn_of_lanes"], params)).fetchone() is not None:
            self._queues.pop(queue.name, None)
            _logger.warning("queue %r: %s", queue.name, many_lanes_advice(queue.name))


def many_lanes_advice(name: str) -> str:
    """What to say of a queue with very many lanes."""
    return (
        f"it has more than {MANY_LANES:,} lanes. Each event of a thinly used lane is a row of its own: about 170 bytes "
        "and 28 µs where a hash partition takes about 37 bytes and 3 µs. If its keys need order but not a lane "
        f"each (no gates, no per-key leases), run `penstock queue repartition {name} --partitions 8`"
    )

"""The catalog of queues and partitions: creates, configures and deletes them, and caches them for a second."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from shlex import quote
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from penstock.core.clock import Clock
from penstock.core.encryption import check_key
from penstock.core.errors import ConfigurationError, Conflict, InvalidOption, NotFound
from penstock.core.formatting import counted
from penstock.core.names import check_name
from penstock.core.suggestions import closest_names
from penstock.db.retry import run_with_retry
from penstock.db.statements import Statements
from penstock.log import queue_options as opt
from penstock.log.partitioner import Partitioner
from penstock.log.queue import Queue

_sql = Statements("penstock.log", "catalog.sql")
_logger = logging.getLogger("penstock.log")

#: How long a queue or a group is used without reading it again.
CACHE_SECONDS = 1.0
#: A queue by key with more partitions than this gets a warning that recommends hash partitions.
MANY_PARTITIONS = 10_000
#: The number of partitions of a queue is checked after this many were created.
_PARTITION_CHECK_INTERVAL = 1000
_MAX_CACHED_PARTITIONS = 1_000_000
#: A queue does not change its layout more often during one call. Further errors have another cause.
MAX_LAYOUT_RETRIES = 100


def is_layout_change(error: psycopg.Error) -> bool:
    """Whether a statement failed because the queue has a new segment or new partitions: refresh it and try again."""
    return error.sqlstate in ("PS001", "42P01", "42883")


@dataclass(slots=True, eq=False)
class Catalog:
    """The queues and partitions, with a cache."""

    pool: AsyncConnectionPool[Any]
    clock: Clock
    retry_seconds: float
    cache_seconds: float = CACHE_SECONDS
    _queues: dict[str, tuple[float, Queue]] = field(default_factory=dict, init=False)
    _partitioners: dict[str, Partitioner] = field(default_factory=dict, init=False)
    _partition_ids: dict[tuple[int, int, str], int] = field(default_factory=dict, init=False)
    _created_partitions: int = field(default=0, init=False)

    async def get(self, name: str) -> Queue:
        """Return the queue, or raise NotFound. The result may be a second old."""
        return self.cached(name) or await self.refresh(name)

    async def get_on(self, conn: AsyncConnection[Any], name: str) -> Queue:
        """Like :meth:`get`, with the caller's connection: a caller that has one must not wait for another."""
        return self.cached(name) or self._require(name, await self.find_on(conn, name))

    def cached(self, name: str) -> Queue | None:
        cached = self._queues.get(name)
        if cached is None:
            return None
        cached_at, queue = cached
        return queue if time.monotonic() - cached_at < self.cache_seconds else None

    async def refresh(self, name: str) -> Queue:
        """Return the current state of the queue, or raise NotFound."""
        return self._require(name, await self.find(name))

    def _require(self, name: str, queue: Queue | None) -> Queue:
        if queue is None:
            how = f"queue({name!r}).create(), or `penstock queue create {quote(name)}`"
            raise NotFound(f"there is no queue {name!r}; create it with {how}", queue=name)
        return queue

    async def check_exists(self, name: str) -> None:
        """Raise NotFound with similar names if there is no such queue. Not for callers that may not see all queues."""
        if await self.find(name) is None:
            raise missing_queue(name, await self.names())

    async def find(self, name: str) -> Queue | None:
        """Return the current state of the queue, or None."""
        check_name(name, "queue")
        return await run_with_retry(self.pool, self.retry_seconds, lambda conn: self.find_on(conn, name))

    async def find_on(self, conn: AsyncConnection[Any], name: str) -> Queue | None:
        """Return the queue as the connection's transaction sees it, or None."""
        row = await (await conn.execute(_sql["queue"], {"name": name})).fetchone()
        if row is None:
            self._forget(name)
            return None
        queue = Queue(*row)
        self._queues[name] = (time.monotonic(), queue)
        return queue

    async def lock_on(self, conn: AsyncConnection[Any], queue: Queue) -> Queue | None:
        """Lock the queue's row until the transaction ends and return it. No partition is created meanwhile."""
        await conn.execute(_sql["lock_queue"], {"queue": queue.id})
        return await self.find_on(conn, queue.name)

    async def names(self) -> list[str]:
        return await run_with_retry(self.pool, self.retry_seconds, self.names_on)

    async def names_on(self, conn: AsyncConnection[Any]) -> list[str]:
        rows = await (await conn.execute(_sql["queue_names"])).fetchall()
        return [name for (name,) in rows]

    def partitioner(self, queue: Queue) -> Partitioner:
        partitioner = self._partitioners.get(queue.name)
        if partitioner is None or partitioner.queue.id != queue.id or partitioner.queue.epoch != queue.epoch:
            partitioner = self._partitioners[queue.name] = Partitioner(queue)
        elif partitioner.queue is not queue:
            partitioner.queue = queue
        return partitioner

    async def configure(
        self,
        name: str,
        given: Mapping[str, object],
        *,
        partitioning: str | None = None,
        partitions: int | None = None,
        only_new: bool = False,
    ) -> Queue:
        check_name(name, "queue")
        options = opt.check_options(given)
        if options.get("encrypted"):
            try:
                check_key()
            except ConfigurationError as error:
                raise InvalidOption(f"encrypted: {error}", option="encrypted") from None
        existing = await self.find(name)
        _check_readable(options, existing)
        wanted = None
        if partitioning is not None or partitions is not None:
            wanted = opt.check_partitioning(partitioning or "hash", partitions)
        depth = options.get("max_depth_events")
        if "max_depth_events" in options and (existing is None or existing.max_depth_events != depth):
            options.setdefault("max_unread_events", depth)
        if existing is None:
            created = await self._create(name, options, *(wanted or ("key", None)))
            if created is not None:
                return created
            existing = await self.refresh(name)
        if only_new:
            raise Conflict(f"queue {name!r} exists already; configure it, or choose another name")
        if wanted is not None:
            wanted_partitioning, _ = wanted
            if wanted_partitioning != existing.partitioning:
                raise Conflict(
                    f"queue {name!r} is partitioned by {existing.partitioning}, not by {wanted_partitioning}; "
                    f"change that with `penstock queue repartition {name}`"
                )
        if partitions is not None and partitions != existing.partition_count:
            raise Conflict(
                f"queue {name!r} has {counted(existing.partition_count or 0, 'partition')}, not {partitions}; "
                f"change that with `penstock queue repartition {name}`"
            )
        if options:
            changed = dataclasses.replace(existing, **options)
            values = {field: getattr(changed, field) for field in (*opt.DEFAULTS, "dedup_window_seconds")}
            async with self.pool.connection() as conn:
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
        async with self.pool.connection() as conn, conn.transaction():
            row = await (await conn.execute(_sql["create_queue"], values)).fetchone()
            if row is None:
                return None
            (queue_id,) = row
            await conn.execute(_sql["configure_queue"], {**values, "queue": queue_id})
            await self.create_segment(conn, queue_id, 1)
            if partition_count is not None:
                names = [str(i) for i in range(partition_count)]
                await self.create_partitions(conn, queue_id, 0, names, is_key_partition=False)
        return await self.refresh(name)

    async def create_segment(self, conn: AsyncConnection[Any], queue_id: int, segment: int) -> None:
        """Create a segment with its tables and its append function."""
        params = {"queue": queue_id, "segment": segment, "skew": self.clock.skew}
        await conn.execute(_sql["create_segment"], params)
        await conn.execute(_sql["make_segment"], params)

    async def restore_append_functions(self) -> None:
        """Create the append functions that a migration has dropped because their definition changed."""
        async with self.pool.connection() as conn:
            for (name,) in await (await conn.execute(_sql["queues_without_append"])).fetchall():
                async with conn.transaction():
                    queue = await self.find_on(conn, name)
                    queue = None if queue is None else await self.lock_on(conn, queue)
                    if queue is not None:
                        await conn.execute(_sql["make_append"], {"queue": queue.id, "segment": queue.segment})

    async def delete(self, name: str) -> bool:
        """Delete the queue with its events, groups and dead letters. Return False if there is no such queue."""
        queue = await self.find(name)
        if queue is None:
            return False
        async with self.pool.connection() as conn, conn.transaction():
            if await (await conn.execute(_sql["lock_queue"], {"queue": queue.id})).fetchone() is None:
                return False
            for statement in ("lock_groups", "lock_cursors", "lock_partitions"):
                await conn.execute(_sql[statement], {"queue": queue.id})
            segments = await (await conn.execute(_sql["segments"], {"queue": queue.id})).fetchall()
            for (segment,) in segments:
                for statement in ("drop_append", "drop_chunks_table", "drop_ids_table"):
                    await conn.execute(_sql.table(statement, queue.id, segment), prepare=False)
            await conn.execute(_sql["delete_positions"], {"queue": queue.id})
            await conn.execute(_sql["delete_inbox"], {"queue": queue.id})
            await conn.execute(_sql["delete_queue"], {"queue": queue.id})
        self._forget(name)
        return True

    def _forget(self, name: str) -> None:
        self._queues.pop(name, None)
        self._partitioners.pop(name, None)

    async def partition_ids(self, queue: Queue, names: Iterable[str]) -> dict[str, int]:
        """Return the ids of partitions of the queue's epoch by name. Create partitions that do not exist."""
        ids: dict[str, int] = {}
        missing: list[str] = []
        for name in names:
            partition_id = self._partition_ids.get((queue.id, queue.epoch, name))
            if partition_id is None:
                missing.append(name)
            else:
                ids[name] = partition_id
        if missing:
            if len(self._partition_ids) > _MAX_CACHED_PARTITIONS:
                self._partition_ids.clear()
            found = await run_with_retry(
                self.pool, self.retry_seconds, lambda conn: self._find_or_create(conn, queue, missing)
            )
            for name, partition_id in found.items():
                ids[name] = self._partition_ids[queue.id, queue.epoch, name] = partition_id
        return ids

    async def partition_id(self, conn: AsyncConnection[Any], queue: Queue, name: str) -> int:
        """Return the id of a partition of the queue's epoch, or 0 if it does not exist."""
        cached = self._partition_ids.get((queue.id, queue.epoch, name))
        if cached is not None:
            return cached
        return (await self._find_partition_ids(conn, queue, [name])).get(name, 0)

    async def find_partitions(self, conn: AsyncConnection[Any], queue: Queue, name: str) -> list[int]:
        """Return the ids of the partitions of that name in all epochs, the oldest first."""
        params = {"queue": queue.id, "name": name}
        rows = await (await conn.execute(_sql["partitions_of_all_epochs"], params)).fetchall()
        return [partition_id for (partition_id,) in rows]

    async def at_epoch(self, conn: AsyncConnection[Any], queue: Queue, epoch: int) -> Queue:
        """Return the queue with the partitioning of an earlier epoch."""
        row = await (await conn.execute(_sql["epoch"], {"queue": queue.id, "epoch": epoch})).fetchone()
        is_key_partition, partition_count = row if row is not None else (True, None)
        partitioning = "key" if is_key_partition else "hash"
        return dataclasses.replace(queue, epoch=epoch, partitioning=partitioning, partition_count=partition_count)

    async def create_partitions(
        self, conn: AsyncConnection[Any], queue_id: int, epoch: int, names: list[str], *, is_key_partition: bool
    ) -> dict[str, int]:
        """Create partitions, with a cursor for every group, and return their ids by name."""
        params: dict[str, Any] = {
            "queue": queue_id,
            "epoch": epoch,
            "names": names,
            "is_key_partition": is_key_partition,
        }
        rows = await (await conn.execute(_sql["create_partitions"], params)).fetchall()
        created: dict[str, int] = dict(rows)
        params["partitions"] = list(created.values())
        await conn.execute(_sql["share_groups"], params)
        await conn.execute(_sql["subscribe_partitions"], params)
        return created

    async def _find_partition_ids(self, conn: AsyncConnection[Any], queue: Queue, names: list[str]) -> dict[str, int]:
        params = {"queue": queue.id, "epoch": queue.epoch, "names": names}
        return dict(await (await conn.execute(_sql["partition_ids"], params)).fetchall())

    async def _find_or_create(self, conn: AsyncConnection[Any], queue: Queue, names: list[str]) -> dict[str, int]:
        ids = await self._find_partition_ids(conn, queue, names)
        missing = [name for name in names if name not in ids]
        if missing:
            try:
                async with conn.transaction():
                    by_key = queue.partitioning == "key"
                    ids |= await self.create_partitions(conn, queue.id, queue.epoch, missing, is_key_partition=by_key)
            except psycopg.errors.ForeignKeyViolation:
                raise NotFound(f"queue {queue.name!r} was deleted meanwhile") from None
            if len(ids) < len(set(names)):  # another process has created some of them
                ids = await self._find_partition_ids(conn, queue, names)
            await self._warn_about_partitions(conn, queue, len(missing))
        return ids

    async def _warn_about_partitions(self, conn: AsyncConnection[Any], queue: Queue, created: int) -> None:
        if queue.partitioning != "key" or queue.partitions_warned_at is not None:
            return
        before = self._created_partitions // _PARTITION_CHECK_INTERVAL
        self._created_partitions += created
        if before == self._created_partitions // _PARTITION_CHECK_INTERVAL:
            return
        params = {"queue": queue.id, "epoch": queue.epoch, "limit": MANY_PARTITIONS}
        if await (await conn.execute(_sql["mark_partitions_warned"], params)).fetchone() is not None:
            self._queues.pop(queue.name, None)
            _logger.warning("queue %r: %s", queue.name, many_partitions_advice(queue.name))


def _check_readable(options: Mapping[str, Any], existing: Queue | None) -> None:
    encrypted = options.get("encrypted", existing is not None and existing.encrypted)
    readable = options.get("readable_from_sql", existing is not None and existing.readable_from_sql)
    if encrypted and readable:
        raise InvalidOption(
            "readable_from_sql: an encrypted queue cannot be read from SQL, because PostgreSQL has no key; set one of "
            "the two options to no",
            option="readable_from_sql",
        )


def missing_queue(name: str, known: Collection[str]) -> NotFound:
    """Return the error for a queue that does not exist, with similar names of the known ones."""
    close = closest_names(name, known)
    hint = f"did you mean {' or '.join(map(repr, close))}? If not, " if close else ""
    how = f"create it with `penstock queue create {quote(name)}`"
    return NotFound(f"there is no queue {name!r}: {hint}{how}", queue=name)


def many_partitions_advice(queue: str) -> str:
    return (
        f"it has more than {MANY_PARTITIONS:,} key partitions. An event in a partition with few others is a row of its "
        "own, of about 170 bytes and 28 µs, where an event in a hash partition takes about 37 bytes and 3 µs. If its "
        "keys need order but no partition each (no gates, no leases per key), run "
        f"`penstock queue repartition {queue} --partitions 8`"
    )

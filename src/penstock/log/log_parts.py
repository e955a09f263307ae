"""The parts of a log: created when it is opened, and closed in order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Self

from penstock.core.clock import Clock
from penstock.db.pool import Database
from penstock.log.catalog import CACHE_SECONDS, Catalog
from penstock.log.coordination.due_timers import DueTimers
from penstock.log.coordination.kv import KeyValueStore
from penstock.log.coordination.locks import Locks
from penstock.log.coordination.timers import Timers
from penstock.log.database_errors import translate_errors
from penstock.log.dead_letters.dead_letter_store import DeadLetters
from penstock.log.dead_letters.redrive import Redriver
from penstock.log.groups import ConsumerGroups
from penstock.log.inbox.inbox import Inbox
from penstock.log.inbox.mover import InboxMover
from penstock.log.notify import Notifier
from penstock.log.queue_info import QueueStats
from penstock.log.read.ack import Acks
from penstock.log.read.browse import Browser
from penstock.log.read.lease import Leases
from penstock.log.read.pop import MIN_POP_BYTES, Popper
from penstock.log.read.position_store import PositionStore
from penstock.log.storage.retention import Retention
from penstock.log.storage.segments import Segments
from penstock.log.transaction import Transactions
from penstock.log.upkeep import UpkeepLoop
from penstock.log.write.append import Appender
from penstock.log.write.backpressure import Backpressure
from penstock.log.write.idempotency import IdempotencyKeys
from penstock.log.write.push import Pusher
from penstock.log.write.staged_writes import StagedWrites
from penstock.log.write.upload import Uploads

_UPKEEP_SECONDS = 5.0


@translate_errors
class LogParts:
    """The parts of a log, for the engine, the sinks and the server, which take part in transactions of the log.

    Args:
        database: The database.
        clock: The clock, which tests can move.
        retry_seconds: How long operations are retried after a lost connection; by default as in the settings.
        cache_seconds: How long queues and groups are used without reading them again.
        min_pop_bytes: The memory that a pop reserves before it reads the first chunk.
        committed: Called after each push with the seconds that its commit took.
        stamp: Called for each push. It returns headers to add to the events.
    """

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock | None = None,
        retry_seconds: float | None = None,
        cache_seconds: float = CACHE_SECONDS,
        min_pop_bytes: int = MIN_POP_BYTES,
        committed: Callable[[float], None] | None = None,
        stamp: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self.database = database
        self.clock = clock or Clock()
        self.retry_seconds = database.settings.retry_seconds if retry_seconds is None else retry_seconds
        self._cache_seconds = cache_seconds
        self._min_pop_bytes = min_pop_bytes
        self._committed = committed
        self._stamp = stamp
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> Self:
        """Open the database and start the upkeep."""
        await self.database.open()
        self.database.pool.timeout = min(self.database.pool.timeout, self.retry_seconds)
        self._create_parts()
        try:
            await self.catalog.restore_append_functions()
        except BaseException:
            await self.database.close()
            raise
        self._tasks = [
            asyncio.create_task(self._upkeep.run(_UPKEEP_SECONDS)),
            asyncio.create_task(self._mover.run()),
        ]
        return self

    def _create_parts(self) -> None:
        pool, clock, retry = self.database.pool, self.clock, self.retry_seconds
        catalog = self.catalog = Catalog(pool, clock, retry, cache_seconds=self._cache_seconds)
        groups = self.consumer_groups = ConsumerGroups(pool, catalog, clock, retry)
        notifier = self.notifier = Notifier(pool, self.database.connect)
        self._stats = QueueStats(pool, clock)
        self.segments = Segments(pool, catalog, clock)

        keys = IdempotencyKeys(pool, clock)
        appender = self.appender = Appender(pool, catalog, keys, notifier, clock, retry)
        self._backpressure = Backpressure(pool, self._stats, clock)
        self._pusher = Pusher(
            catalog,
            appender,
            self._backpressure,
            keys,
            max_event_bytes=self.database.settings.max_event_bytes,
            committed=self._committed,
            stamp=self._stamp,
        )
        self._uploads = Uploads(pool, catalog, appender, keys, notifier, clock, retry)
        self.staged_writes = StagedWrites(self._uploads)

        dead_letters = self.dead_letter_store = DeadLetters(pool, catalog, clock)
        positions = PositionStore(pool, catalog, dead_letters, clock, retry)
        acks = self.acks = Acks(pool, catalog, dead_letters, positions, notifier, clock, retry)
        leases = self.leases = Leases(pool, catalog, groups, acks, positions, notifier, clock, retry)
        self._popper = Popper(
            pool, catalog, groups, leases, acks, positions, notifier, clock, retry, min_bytes=self._min_pop_bytes
        )
        self._browser = Browser(pool, catalog)
        self._redriver = Redriver(
            pool, catalog, groups, dead_letters, appender, clock, self.database.settings.max_event_bytes
        )
        self._transactions = Transactions(pool, catalog, groups, acks, self._pusher, appender, keys)
        self.kv = KeyValueStore(pool, clock)
        self.locks = Locks(pool, self.kv, clock)
        self.timers = Timers(pool, catalog, self._transactions, notifier, clock)
        self.due_timers = DueTimers(pool, self._transactions, clock)
        self.inbox = Inbox(pool, catalog, self._transactions, self._backpressure)
        self._mover = InboxMover(pool, self.inbox, notifier, self.database.connect)
        self._upkeep = UpkeepLoop(pool, catalog, self.segments, Retention(clock), self.due_timers, notifier, clock)

    async def close(self) -> None:
        """Finish running operations and close the database."""
        if self._tasks:
            for task in self._tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task
            self._tasks = []
            await self._pusher.drain()
            await self.acks.drain()
            await self.leases.close()
            await self.notifier.close()
        await self.database.close()

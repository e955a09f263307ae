"""Creates the parts of the log and connects them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from penstock.log.catalog import Catalog
from penstock.log.dead_letters.redrive import Redriver
from penstock.log.dead_letters.store import DeadLetters
from penstock.log.groups import Groups
from penstock.log.notify import Notifier
from penstock.log.read.ack import Acks
from penstock.log.read.browse import Browser
from penstock.log.read.lease import Leases
from penstock.log.read.pop import Popper
from penstock.log.read.position_store import PositionStore
from penstock.log.storage.queue_stats import QueueStats
from penstock.log.storage.segments import Segments
from penstock.log.transaction import Transactions
from penstock.log.upkeep import UpkeepLoop
from penstock.log.write.append import Appender
from penstock.log.write.backpressure import Backpressure
from penstock.log.write.idempotency import IdempotencyKeys
from penstock.log.write.push import Pusher
from penstock.log.write.staged_writes import StagedWrites
from penstock.log.write.upload import Uploads

if TYPE_CHECKING:
    from penstock.core.clock import Clock
    from penstock.db.pool import Database


class LogComponents:
    """The parts of a log on an open database. :class:`~penstock.log.log.Log` describes the parameters."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        retry_seconds: float,
        cache_seconds: float,
        min_pop_bytes: int,
        committed: Callable[[float], None] | None,
        stamp: Callable[[], Mapping[str, str]] | None,
    ) -> None:
        pool, retry = database.pool, retry_seconds
        catalog = self.catalog = Catalog(pool, clock, retry, cache_seconds=cache_seconds)
        groups = self.groups = Groups(pool, catalog, clock, retry)
        notifier = self.notifier = Notifier(pool, database.connect)
        stats = self.stats = QueueStats(pool, clock)
        self.segments = Segments(pool, catalog, clock)

        keys = IdempotencyKeys(pool, clock)
        appender = self.appender = Appender(pool, catalog, keys, notifier, clock, retry)
        backpressure = self.backpressure = Backpressure(pool, stats, clock)
        max_event_bytes = database.settings.max_event_bytes
        pusher = self.pusher = Pusher(
            catalog, appender, backpressure, keys, max_event_bytes=max_event_bytes, committed=committed, stamp=stamp
        )
        self.uploads = Uploads(pool, catalog, appender, keys, notifier, clock, retry)
        self.staged_writes = StagedWrites(self.uploads)

        dead_letters = self.dead_letters = DeadLetters(pool, catalog, clock)
        positions = PositionStore(pool, catalog, dead_letters, clock, retry)
        acks = self.acks = Acks(pool, catalog, dead_letters, positions, notifier, clock, retry)
        leases = self.leases = Leases(pool, catalog, groups, acks, notifier, clock, retry)
        self.popper = Popper(
            pool, catalog, groups, leases, acks, positions, notifier, clock, retry, min_bytes=min_pop_bytes
        )
        self.browser = Browser(pool)
        self.redriver = Redriver(pool, catalog, groups, dead_letters, appender, clock)

        self.transactions = Transactions(pool, catalog, groups, acks, pusher, appender, keys)
        self.upkeep = UpkeepLoop(pool, catalog, self.segments, clock)

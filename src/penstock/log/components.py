"""Creates the parts of the log and connects them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.log.catalog import CACHE_SECONDS, Catalog
from penstock.log.dead_letters.redrive import Redriver
from penstock.log.dead_letters.store import DeadLetters
from penstock.log.groups import Groups
from penstock.log.notify import Notifier
from penstock.log.read.ack import Acks
from penstock.log.read.browse import Browser
from penstock.log.read.lease import Leases
from penstock.log.read.pop import MIN_POP_BYTES, Popper
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


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Options of a log.

    Args:
        retry_seconds: How long operations are retried after a lost connection.
        cache_seconds: How long queues and groups are used without reading them again.
        min_pop_bytes: The memory that a pop reserves before it reads the first chunk.
        committed: Called after each push with the seconds that its commit took.
        stamp: Called for each push. It returns headers to add to the events.
    """

    retry_seconds: float = 30.0
    cache_seconds: float = CACHE_SECONDS
    min_pop_bytes: int = MIN_POP_BYTES
    committed: Callable[[float], None] | None = None
    stamp: Callable[[], Mapping[str, str]] | None = None


@dataclass(frozen=True, slots=True)
class LogComponents:
    """The parts of the log."""

    catalog: Catalog
    groups: Groups
    notifier: Notifier
    appender: Appender
    pusher: Pusher
    backpressure: Backpressure
    uploads: Uploads
    staged_writes: StagedWrites
    acks: Acks
    leases: Leases
    popper: Popper
    browser: Browser
    transactions: Transactions
    dead_letters: DeadLetters
    redriver: Redriver
    stats: QueueStats
    segments: Segments
    upkeep: UpkeepLoop


def create_components(database: Database, clock: Clock, options: LogOptions) -> LogComponents:
    """Create the parts of a log on an open database."""
    pool, retry_seconds = database.pool, options.retry_seconds
    catalog = Catalog(pool, clock, retry_seconds, cache_seconds=options.cache_seconds)
    groups = Groups(pool, catalog, clock, retry_seconds)
    notifier = Notifier(pool, database.connect)
    stats = QueueStats(pool, clock)
    segments = Segments(pool, catalog, clock)
    # Writing
    keys = IdempotencyKeys(pool, clock)
    appender = Appender(pool, catalog, keys, notifier, clock, retry_seconds)
    backpressure = Backpressure(pool, stats, clock)
    pusher = Pusher(
        catalog,
        appender,
        backpressure,
        keys,
        max_event_bytes=database.settings.max_event_bytes,
        committed=options.committed,
        stamp=options.stamp,
    )
    uploads = Uploads(pool, catalog, appender, keys, notifier, clock, retry_seconds)
    # Reading
    dead_letters = DeadLetters(pool, catalog, clock)
    positions = PositionStore(pool, catalog, dead_letters, clock, retry_seconds)
    acks = Acks(pool, catalog, dead_letters, positions, notifier, clock, retry_seconds)
    leases = Leases(pool, catalog, groups, acks, notifier, clock, retry_seconds)
    popper = Popper(
        pool,
        catalog,
        groups,
        leases,
        acks,
        positions,
        notifier,
        clock,
        retry_seconds,
        min_bytes=options.min_pop_bytes,
    )
    return LogComponents(
        catalog=catalog,
        groups=groups,
        notifier=notifier,
        appender=appender,
        pusher=pusher,
        backpressure=backpressure,
        uploads=uploads,
        staged_writes=StagedWrites(uploads),
        acks=acks,
        leases=leases,
        popper=popper,
        browser=Browser(pool),
        transactions=Transactions(pool, catalog, groups, acks, pusher, appender, keys),
        dead_letters=dead_letters,
        redriver=Redriver(pool, catalog, groups, dead_letters, appender, clock),
        stats=stats,
        segments=segments,
        upkeep=UpkeepLoop(pool, catalog, segments, clock),
    )

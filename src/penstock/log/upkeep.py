"""Upkeep of all queues: rolls segments, applies retention, parks idle cursors, deletes what has expired.

The same loop fires timers when they are due.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.db.retry import CONNECTION_ERRORS
from penstock.db.scalar import fetch_scalar
from penstock.db.statements import Statements
from penstock.log.catalog import Catalog
from penstock.log.coordination.due_timers import DueTimers
from penstock.log.coordination.timers import TOPIC
from penstock.log.notify import Notifier
from penstock.log.storage.idle_cursors import park_idle_cursors
from penstock.log.storage.retention import Retention
from penstock.log.storage.segments import Segments
from penstock.log.write.abandoned_uploads import remove_abandoned_uploads

_dead_letters = Statements("penstock.log.dead_letters", "dead_letters.sql")
_backpressure = Statements("penstock.log.write", "backpressure.sql")
_idempotency = Statements("penstock.log.write", "idempotency.sql")
_kv = Statements("penstock.log.coordination", "kv.sql")
_sql = Statements("penstock.log", "upkeep.sql")
_upload = Statements("penstock.log.write", "upload.sql")
_logger = logging.getLogger("penstock.log")

_WAKE_SECONDS = 0.01
#: The most expired entries that one statement deletes.
_DELETED_ENTRIES = 10_000
#: The advisory lock of the process that runs a round. The others skip theirs.
_ROUND_LOCK = 0x70656E73746F636B


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The result of a round of upkeep: how many segments were rolled and dropped, and how many cursors were parked."""

    rolled: int = 0
    dropped: int = 0
    parked: int = 0
    #: Segments past their retention that some group has not read.
    waiting: int = 0


@dataclass(slots=True, eq=False)
class UpkeepLoop:
    """Runs rounds of upkeep. Only one process does so at a time."""

    pool: AsyncConnectionPool[Any]
    catalog: Catalog
    segments: Segments
    retention: Retention
    due_timers: DueTimers
    notifier: Notifier
    clock: Clock

    async def run(self, interval: float) -> None:
        """Run a round every ``interval`` seconds, and fire timers when they are due."""
        now = asyncio.get_running_loop().time
        next_round = now() + interval
        while True:
            seen = self.notifier.count(TOPIC)
            seconds = await self._fire_timers()
            pause = next_round - now()
            await self.notifier.wait(TOPIC, seen, pause if seconds is None else min(seconds, pause), listen=False)
            if now() < next_round:
                if self.notifier.count(TOPIC) != seen:
                    # Timers that are scheduled one after another are looked for together.
                    await asyncio.sleep(_WAKE_SECONDS)
                continue
            next_round = now() + interval
            try:
                await self.run_once()
            except (psycopg.Error, PenstockError, TimeoutError) as error:
                _logger.debug("a round of upkeep failed and is tried again: %s", error)

    async def _fire_timers(self) -> float | None:
        try:
            return await self.due_timers.fire()
        except (psycopg.Error, PenstockError, TimeoutError) as error:
            _logger.debug("firing timers failed and is tried again: %s", error)
        except Exception:
            _logger.exception("firing timers failed and is tried again")
        return None

    async def run_once(self) -> Upkeep:
        """Run one round over all queues, unless another process does."""
        rolled = dropped = parked = waiting = 0
        # None: the lock may be held, because a cancellation can lose the answer of the statement.
        is_locked: bool | None = None
        async with self.pool.connection() as conn:
            try:
                is_locked = await fetch_scalar(conn, "SELECT pg_try_advisory_lock(%(lock)s)", {"lock": _ROUND_LOCK})
                if not is_locked:
                    return Upkeep()
                for name in await self.catalog.names_on(conn):
                    queue = await self.catalog.find_on(conn, name)
                    if queue is None:
                        continue
                    try:
                        if await self.segments.is_due(conn, queue):
                            queue = await self.segments.roll_on(conn, queue)
                            rolled += 1
                        retention = await self.retention.apply(conn, queue)
                        dropped, waiting = dropped + retention.dropped, waiting + retention.waiting
                        parked += await park_idle_cursors(conn, queue, self.clock)
                        await remove_abandoned_uploads(conn, queue, self.clock)
                    except (psycopg.errors.LockNotAvailable, psycopg.errors.UndefinedTable) as error:
                        _logger.debug("upkeep of queue %r is left for the next round: %s", name, error)
                    except CONNECTION_ERRORS:
                        if conn.broken:
                            raise
                    except Exception:
                        # An error in one queue must not stop the upkeep of the others.
                        _logger.exception("upkeep of queue %r failed", name)
                await conn.execute(_idempotency["delete_expired"])
                await conn.execute(_sql["delete_expired_traces"])
                await conn.execute(_upload["delete_expired_writes"])
                await conn.execute(_dead_letters["delete_redriven"])
                await conn.execute(_backpressure["merge_shed"])
                expired = {"skew": self.clock.skew, "limit": _DELETED_ENTRIES}
                while (await conn.execute(_kv["delete_expired"], expired)).rowcount == _DELETED_ENTRIES:
                    pass
            finally:
                if is_locked is not False:
                    with contextlib.suppress(psycopg.Error):
                        await conn.execute("SELECT pg_advisory_unlock(%s)", (_ROUND_LOCK,))
        return Upkeep(rolled, dropped, parked, waiting)

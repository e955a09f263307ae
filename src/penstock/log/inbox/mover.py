"""The mover: one process of Penstock that moves events from the inbox to their queues.

Every open log runs this loop. The one that holds an advisory lock of PostgreSQL is the mover; the others look every
second whether there is one. Nobody is before the first push from SQL.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from penstock.core.errors import PenstockError
from penstock.db.statements import Statements
from penstock.log.inbox.inbox import LOCKS, MOVER_LOCK, SLEEP_LOCK, Inbox
from penstock.log.notify import Notifier

_sql = Statements("penstock.log.inbox", "mover.sql")
_logger = logging.getLogger("penstock.log")

#: The topic of the notification that wakes the mover.
_TOPIC = "inbox"
_STANDBY_SECONDS = 1.0
#: The pause between two moves. Events that are pushed meanwhile share a chunk. With many pushes it is longer, because
#: chunks of few events take more space.
_PAUSE_SECONDS, _BUSY_PAUSE_SECONDS = 0.02, 0.035
_BUSY_ROWS = 64
#: The mover sleeps after this time without a push. Before that, a push need not wake it.
_LINGER_SECONDS = 1.0
#: A notification can be lost with the connection that listens.
_SLEEP_SECONDS = 5.0
#: Its transaction ends after this time, and another process may become the mover.
_TENURE_SECONDS = 30.0
_PROBE_SECONDS = 1.0


@dataclass(slots=True, eq=False)
class InboxMover:
    pool: AsyncConnectionPool[Any]
    inbox: Inbox
    notifier: Notifier
    #: Opens a connection for the locks of the mover.
    connect: Callable[[], Awaitable[AsyncConnection[Any]]]
    #: Whether pushes send notifications that arrive, which they do not behind some poolers. None: not known yet.
    _is_woken: bool | None = field(default=None, init=False)

    async def run(self) -> None:
        """Move what is pushed while this process is the mover, and stand by otherwise."""
        while True:
            has_served = False
            try:
                if await self._is_used():
                    has_served = await self._serve()
            except (psycopg.Error, PenstockError, TimeoutError) as error:
                _logger.debug("moving events from the inbox failed and is tried again: %s", error)
            except Exception:
                _logger.exception("moving events from the inbox failed and is tried again")
            if not has_served:
                await asyncio.sleep(_STANDBY_SECONDS)

    async def _is_used(self) -> bool:
        async with self.pool.connection() as conn:
            row = await (await conn.execute(_sql["is_used"])).fetchone()
        return row is not None and bool(row[0])

    async def _serve(self) -> bool:
        """Be the mover for a while, and return True; or return False if another process is."""
        async with self.pool.connection() as conn:
            # The lock ends with this statement. It spares standbys the connection.
            if not await _try_lock(conn, MOVER_LOCK):
                return False
        async with await self.connect() as conn, conn.transaction():
            await conn.execute(_sql["begin"])
            if not await _try_lock(conn, MOVER_LOCK):
                return False
            await self._move_for_tenure(conn)
        return True

    async def _move_for_tenure(self, conn: AsyncConnection[Any]) -> None:
        now = asyncio.get_running_loop().time
        end = now() + _TENURE_SECONDS
        active_at = checked_at = now()
        while now() < end:
            if now() - checked_at > _STANDBY_SECONDS:
                # Without the connection, this process does not have the lock any more.
                await conn.execute(_sql["check"])
                checked_at = now()
            seen = self.notifier.count(_TOPIC)
            is_idle = now() - active_at > _LINGER_SECONDS
            moved = await self.inbox.move(is_idle=is_idle)
            if moved:
                active_at = now()
            await self.inbox.measure()
            if not (is_idle and await self._can_sleep(conn) and await self._sleep(conn, seen)):
                await asyncio.sleep(_PAUSE_SECONDS if moved < _BUSY_ROWS else _BUSY_PAUSE_SECONDS)

    async def _can_sleep(self, conn: AsyncConnection[Any]) -> bool:
        if self._is_woken is None:
            row = await (await conn.execute(_sql["can_be_prepared"])).fetchone()
            self._is_woken = row is not None and not row[0] and await self._is_notified()
        return self._is_woken

    async def _is_notified(self) -> bool:
        """Return whether a notification arrives."""
        topic = f"probe {uuid.uuid4()}"
        seen = self.notifier.count(topic)
        # Opens the connection that listens, which then wakes all waiters once.
        await self.notifier.wait(topic, seen, _PROBE_SECONDS)
        seen = self.notifier.count(topic)
        async with self.pool.connection() as conn:
            await conn.execute(_sql["notify"], {"topic": topic})
        await self.notifier.wait(topic, seen, _PROBE_SECONDS)
        return self.notifier.count(topic) != seen

    async def _sleep(self, conn: AsyncConnection[Any], seen: int) -> bool:
        """Sleep until a push sends a notification. Return False if there is something to move, now or soon.

        A push holds the sleep lock, shared, from before it looks for the mover until its commit is visible. While a
        process has the lock alone, no push that did not notify is about to commit, and earlier ones are visible.
        """
        async with conn.transaction(force_rollback=True):  # a rollback to a savepoint releases the lock
            if not await _try_lock(conn, SLEEP_LOCK) or await self.inbox.has_rows():
                return False
            await self.notifier.wait(_TOPIC, seen, _SLEEP_SECONDS)
        return True


async def _try_lock(conn: AsyncConnection[Any], lock: int) -> bool:
    row = await (await conn.execute(_sql["try_lock"], {"locks": LOCKS, "lock": lock})).fetchone()
    return row is not None and bool(row[0])

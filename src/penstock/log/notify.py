"""Notifications of appended events and committed cycles: NOTIFY between processes, counters within a process.

A topic is a queue id, or a query as in :func:`cycle_topic`. No notification is lost between a read and a wait: the
reader notes the counter, reads, and waits only while the counter still has that value.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import psycopg
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from penstock.core.backoff import Backoff
from penstock.db.fast.prepared import fetch

_logger = logging.getLogger("penstock.log")

CHANNEL = "penstock"
#: The least time between two NOTIFYs of a process. A commit with NOTIFY takes a lock on the whole cluster.
_NOTIFY_INTERVAL = 0.005
#: The delay of a notification that need not arrive at once.
_LATER_SECONDS = 0.05
_RECONNECT = Backoff(first=0.1, longest=5.0)

# A notification is useless after a crash, so its commit does not wait for the disk.
_NOTIFY = """
    SELECT pg_notify('penstock', t), set_config('synchronous_commit', 'off', true)
    FROM string_to_array(%(topics)s, ',') AS s (topics), unnest(s.topics) AS t
"""

#: A queue id, or the name of something else that can be waited for.
Topic: TypeAlias = int | str


def cycle_topic(query_id: int) -> Topic:
    return f"cycles {query_id}"


class Notifier:
    """Sends and receives notifications, and lets callers wait for them."""

    def __init__(self, pool: AsyncConnectionPool[Any], connect: Callable[[], Awaitable[AsyncConnection[Any]]]) -> None:
        self._pool = pool
        self._connect = connect
        self._counts: dict[Topic, int] = {}
        self._waiters: dict[Topic, set[asyncio.Future[None]]] = {}
        self._unsent: set[Topic] = set()
        self._delayed: set[Topic] = set()
        self._delayed_sender: asyncio.Task[None] | None = None
        self._sender: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None

    def count(self, topic: Topic) -> int:
        """Return the number of notifications that this process has received. Call it before reading."""
        return self._counts.setdefault(topic, 0)

    def waiting(self, topic: Topic) -> int:
        """Return the number of waiters of this process."""
        return len(self._waiters.get(topic, ()))

    def notify(self, topic: Topic) -> None:
        """Wake the waiters of this process at once, and those of other processes within milliseconds."""
        self.wake_local(topic)
        self._unsent.add(topic)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())

    def notify_later(self, topic: Topic) -> None:
        """Wake the waiters of this process at once, and those of other processes after a short delay."""
        self.wake_local(topic)
        self._delayed.add(topic)
        if self._delayed_sender is None or self._delayed_sender.done():
            self._delayed_sender = asyncio.create_task(self._send_delayed())

    def wake_local(self, topic: Topic) -> None:
        """Wake the waiters of this process only."""
        self._counts[topic] = self.count(topic) + 1
        for waiter in self._waiters.pop(topic, ()):
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, topic: Topic, seen: int, timeout: float, *, listen: bool = True) -> None:
        """Wait until :meth:`count` differs from ``seen``, or for the timeout.

        Without ``listen``, no connection is opened for it: other processes wake it only if there is one already.
        """
        if listen and (self._listener is None or self._listener.done()):
            self._listener = asyncio.create_task(self._listen())
        if self.count(topic) != seen or timeout <= 0:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(topic, set()).add(waiter)
        try:
            async with asyncio.timeout(timeout):
                await waiter
        except TimeoutError:
            pass
        finally:
            self._waiters.get(topic, set()).discard(waiter)

    async def close(self) -> None:
        """Send outstanding notifications and stop listening."""
        if self._sender is not None and not self._sender.done():
            await asyncio.wait([self._sender], timeout=1)
        for task in (self._sender, self._delayed_sender, self._listener):
            if task is not None and not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _send(self) -> None:
        while self._unsent:
            topics, self._unsent = self._unsent, set()
            # A lost notification only causes a delay: waiters also read again after a timeout.
            with contextlib.suppress(psycopg.Error, TimeoutError):
                async with self._pool.connection() as conn:
                    await fetch(conn, _NOTIFY, {"topics": ",".join(map(str, topics))})
            await asyncio.sleep(_NOTIFY_INTERVAL)

    async def _send_delayed(self) -> None:
        while self._delayed:
            await asyncio.sleep(_LATER_SECONDS)
            topics, self._delayed = self._delayed, set()
            self._unsent |= topics
            if self._sender is None or self._sender.done():
                self._sender = asyncio.create_task(self._send())

    async def _listen(self) -> None:
        failures = 0
        while True:
            try:
                conn = await self._connect()
                async with conn:
                    await conn.execute("LISTEN penstock")
                    failures = 0
                    # Notifications may have been missed before LISTEN, so all counters change.
                    for topic in list(self._counts):
                        self.wake_local(topic)
                    async for notification in conn.notifies():
                        payload = notification.payload
                        if payload.isdigit():
                            self.wake_local(int(payload))
                        elif payload in self._counts:
                            self.wake_local(payload)
            except psycopg.Error as error:
                _logger.debug("the listening connection was lost: %s", error)
            failures += 1
            await asyncio.sleep(_RECONNECT.pause(failures))

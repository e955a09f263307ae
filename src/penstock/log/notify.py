"""Waking those who wait for events or for a query's cycles: NOTIFY between processes, a counter within one.

A queue is named by its number, a query as :func:`cycles_of` says. A push is never missed between look and wait: a
waiter notes the counter, looks, and waits only while the counter is still the one it noted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg

from penstock.db.fast.prepared import fetch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool

_logger = logging.getLogger("penstock.log")

CHANNEL = "penstock"
#: NOTIFY takes a lock of the whole cluster at commit: this many seconds lie between two of one process.
_SPACING = 0.005
_FREED_SPACING = 0.05

# What is said is of no use after a crash, so nobody waits for the disk.
_NOTIFY = """
    SELECT pg_notify('penstock', t), set_config('synchronous_commit', 'off', true)
    FROM string_to_array(%(topics)s, ',') AS s (topics), unnest(s.topics) AS t
"""

#: What can be waited for: a queue's events, by its number, or something else by its name.
Topic: TypeAlias = int | str


def cycles_of(query_id: int) -> Topic:
    """The cycles that a query commits."""
    return f"cycles {query_id}"


class Signals:
    """Who waits for which queue, and how they hear of a push."""

    def __init__(self, pool: AsyncConnectionPool[Any], connect: Callable[[], Awaitable[AsyncConnection[Any]]]) -> None:
        self._pool = pool
        self._connect = connect
        self._counts: dict[Topic, int] = {}
        self._wakers: dict[Topic, set[asyncio.Future[None]]] = {}
        self._unsent: set[Topic] = set()
        self._freed: set[int] = set()
        self._releaser: asyncio.Task[None] | None = None
        self._sender: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None

    def count(self, topic: Topic) -> int:
        """How many pushes this process has heard of. Note it before you look."""
        return self._counts.setdefault(topic, 0)

    def pushed(self, topic: Topic) -> None:
        """Tell everybody who waits for it, here at once and elsewhere soon."""
        self.wake(topic)
        self._unsent.add(topic)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())

    def freed(self, queue_id: int) -> None:
        """Tell everybody that a lease has ended: here at once, elsewhere when there is no hurry."""
        self.wake(queue_id)
        self._freed.add(queue_id)
        if self._releaser is None or self._releaser.done():
            self._releaser = asyncio.create_task(self._send_freed())

    def wake(self, topic: Topic) -> None:
        """Tell those who wait in this process."""
        self._counts[topic] = self.count(topic) + 1
        for waiter in self._wakers.pop(topic, ()):
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, topic: Topic, seen: int, timeout: float) -> None:
        """Wait for a push that was not counted yet when ``seen`` was noted, or for the timeout."""
        if self._listener is None or self._listener.done():
            self._listener = asyncio.create_task(self._listen())
        if self.count(topic) != seen or timeout <= 0:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wakers.setdefault(topic, set()).add(waiter)
        try:
            async with asyncio.timeout(timeout):
                await waiter
        except TimeoutError:
            pass
        finally:
            self._wakers.get(topic, set()).discard(waiter)

    async def close(self) -> None:
        """Stop listening; what was pushed has been announced."""
        if self._sender is not None and not self._sender.done():
            await asyncio.wait([self._sender], timeout=1)
        for task in (self._sender, self._releaser, self._listener):
            if task is not None and not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _send(self) -> None:
        while self._unsent:
            topics, self._unsent = self._unsent, set()
            # A lost notification is only a delay: waiters look again by themselves after a while.
            with contextlib.suppress(psycopg.Error, TimeoutError):
                async with self._pool.connection() as conn:
                    await fetch(conn, _NOTIFY, {"topics": ",".join(map(str, topics))})
            await asyncio.sleep(_SPACING)

    async def _send_freed(self) -> None:
        while self._freed:
            await asyncio.sleep(_FREED_SPACING)
            queues, self._freed = self._freed, set()
            self._unsent |= queues
            if self._sender is None or self._sender.done():
                self._sender = asyncio.create_task(self._send())

    async def _listen(self) -> None:
        pause = 0.1
        while True:
            try:
                conn = await self._connect()
                async with conn:
                    await conn.execute("LISTEN penstock")
                    pause = 0.1
                    # What was pushed while nobody listened: also for those who have looked and not waited yet.
                    for topic in list(self._counts):
                        self.wake(topic)
                    async for notice in conn.notifies():
                        said = notice.payload
                        if said.isdigit():
                            self.wake(int(said))
                        elif said in self._counts:
                            self.wake(said)
            except psycopg.Error as error:
                _logger.debug("the listening connection was lost: %s", error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 5.0)

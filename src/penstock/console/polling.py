"""What browsers see move: looked up once a second for all of them together, and not at all while nobody looks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar

import psycopg

from penstock.core.errors import PenstockError

logger = logging.getLogger("penstock.console")

T = TypeVar("T")

#: What takes long to look up is looked up less often: a fifth of the time, no more.
_SHARE = 4.0
#: A look that takes longer is given up.
_PATIENCE_SECONDS = 10.0
#: Answers are good for so long for somebody who joins.
_FRESH = 0.9

TROUBLES = (PenstockError, psycopg.Error, TimeoutError)
"""What a look at the database can come to; everything else is a fault of ours."""


class Follower(Generic[T]):
    """A page that shows what a feed says."""

    def __init__(self, feed: Feed[T], show: Callable[[T], object], failed: Callable[[Exception], object]) -> None:
        self._feed = feed
        self._show = show
        self._failed = failed
        self.is_looking = False
        self.is_closed = False

    def look(self, is_looking: bool) -> None:
        """Say whether somebody sees it: a tab in the background does not count."""
        self.is_looking = is_looking
        if is_looking:
            self._feed.wake()

    def close(self) -> None:
        """Leave."""
        self.is_looking = False
        self.is_closed = True
        self._feed.leave(self)

    def hear(self, value: T) -> None:
        """Show what was found."""
        try:
            self._show(value)
        except Exception:
            # A page that cannot show it does not take it from the others.
            logger.exception("a page could not show what it follows")

    def fail(self, error: Exception) -> None:
        """Say that nothing was found, and why."""
        self._failed(error)


class Feed(Generic[T]):
    """Something that is looked up for as long as it has followers who look."""

    def __init__(self, read: Callable[[], Awaitable[T]], seconds: float, forget: Callable[[], None]) -> None:
        self._read = read
        self._seconds = seconds
        self._forget = forget
        self._followers: set[Follower[T]] = set()
        self._running: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[T] | None = None
        self._last: tuple[float, T] | None = None

    def join(self, show: Callable[[T], object], failed: Callable[[Exception], object]) -> Follower[T]:
        """Follow it; what there is comes when the follower looks."""
        follower = Follower(self, show, failed)
        self._followers.add(follower)
        return follower

    def leave(self, follower: Follower[T]) -> None:
        """Follow it no longer."""
        self._followers.discard(follower)
        if not self._followers:
            self._forget()

    async def now(self) -> T:
        """What there is, at most as old as the time between two looks."""
        if self._last is not None and time.monotonic() - self._last[0] < self._seconds * _FRESH:
            return self._last[1]
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._look())
        return await asyncio.shield(self._reading)

    def wake(self) -> None:
        """Begin to look, if nobody did before."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())

    async def _look(self) -> T:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            value = await self._read()
        self._last = (time.monotonic(), value)
        return value

    async def _run(self) -> None:
        while any(follower.is_looking for follower in self._followers):
            begun = time.monotonic()
            try:
                value = await self.now()
            except TROUBLES as error:
                for follower in self._looking():
                    follower.fail(error)
            except Exception:
                logger.exception("a feed failed")
            else:
                for follower in self._looking():
                    follower.hear(value)
            took = time.monotonic() - begun
            await asyncio.sleep(max(self._seconds - took, _SHARE * took))

    def _looking(self) -> list[Follower[T]]:
        return [follower for follower in self._followers if follower.is_looking]


class Feeds:
    """All feeds of the process, by what they say."""

    def __init__(self) -> None:
        self._feeds: dict[Hashable, Feed[Any]] = {}

    def feed(self, key: Hashable, read: Callable[[], Awaitable[T]], seconds: float = 1.0) -> Feed[T]:
        """The feed of this key; ``read`` looks it up, if it is not looked up already."""
        found = self._feeds.get(key)
        if found is None:
            found = self._feeds[key] = Feed(read, seconds, lambda: self._forget(key))
        return found

    def _forget(self, key: Hashable) -> None:
        self._feeds.pop(key, None)

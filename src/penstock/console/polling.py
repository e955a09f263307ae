"""Polling of the database for open pages.

Pages that poll the same key share one read. A poller pauses while no page that uses it is visible.
"""

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

#: A read that takes one second is followed by a pause of at least four.
_PAUSE_FACTOR = 4.0
_READ_TIMEOUT_SECONDS = 10.0
#: A value stays valid for new subscriptions for this part of the interval.
_FRESH_PART = 0.9

EXPECTED_ERRORS = (PenstockError, psycopg.Error, TimeoutError)
"""Errors of a read that pages show. Any other error is a bug and is logged."""


class PollSubscription(Generic[T]):
    """The subscription of one page to a poller."""

    def __init__(
        self, poller: Poller[T], on_value: Callable[[T], object], on_error: Callable[[Exception], object]
    ) -> None:
        self._poller = poller
        self._on_value = on_value
        self.on_error = on_error
        self.is_visible = False

    def set_visible(self, is_visible: bool) -> None:
        """Resume or pause the delivery of values. A tab in the background is not visible."""
        self.is_visible = is_visible
        if is_visible:
            self._poller.start()

    def close(self) -> None:
        self.is_visible = False
        self._poller.unsubscribe(self)

    def deliver(self, value: T) -> None:
        try:
            self._on_value(value)
        except Exception:
            # The other pages still get the value.
            logger.exception("a page could not show a polled value")


class Poller(Generic[T]):
    """Reads a value at an interval while a subscribed page is visible."""

    def __init__(self, read: Callable[[], Awaitable[T]], seconds: float, on_empty: Callable[[], object]) -> None:
        self._read = read
        self._seconds = seconds
        self._on_empty = on_empty
        self._subscriptions: set[PollSubscription[T]] = set()
        self._loop_task: asyncio.Task[None] | None = None
        self._read_task: asyncio.Task[T] | None = None
        self._last_value: tuple[float, T] | None = None

    def subscribe(
        self, on_value: Callable[[T], object], on_error: Callable[[Exception], object]
    ) -> PollSubscription[T]:
        """Add a subscription, which receives values once it is visible."""
        subscription = PollSubscription(self, on_value, on_error)
        self._subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, subscription: PollSubscription[T]) -> None:
        self._subscriptions.discard(subscription)
        if not self._subscriptions:
            self._on_empty()

    async def latest(self) -> T:
        """Return the last value if it is fresh, or read a new one. Concurrent calls share the read."""
        if self._last_value is not None:
            read_at, value = self._last_value
            if time.monotonic() - read_at < self._seconds * _FRESH_PART:
                return value
        if self._read_task is None or self._read_task.done():
            self._read_task = asyncio.create_task(self._read_value())
        return await asyncio.shield(self._read_task)

    def start(self) -> None:
        """Start the loop if it is not running."""
        if self._loop_task is None or self._loop_task.done():
            self._loop_task = asyncio.create_task(self._run())

    async def _read_value(self) -> T:
        async with asyncio.timeout(_READ_TIMEOUT_SECONDS):
            value = await self._read()
        self._last_value = (time.monotonic(), value)
        return value

    async def _run(self) -> None:
        while self._visible_subscriptions():
            begun = time.monotonic()
            try:
                value = await self.latest()
            except EXPECTED_ERRORS as error:
                for subscription in self._visible_subscriptions():
                    subscription.on_error(error)
            except Exception:
                logger.exception("a poller failed")
            else:
                for subscription in self._visible_subscriptions():
                    subscription.deliver(value)
            elapsed = time.monotonic() - begun
            await asyncio.sleep(max(self._seconds - elapsed, _PAUSE_FACTOR * elapsed))

    def _visible_subscriptions(self) -> list[PollSubscription[T]]:
        return [subscription for subscription in self._subscriptions if subscription.is_visible]


class Pollers:
    def __init__(self) -> None:
        self._pollers: dict[Hashable, Poller[Any]] = {}

    def get(self, key: Hashable, read: Callable[[], Awaitable[T]], seconds: float = 1.0) -> Poller[T]:
        """Return the poller of ``key``, or create one that calls ``read`` every ``seconds``."""
        if key not in self._pollers:
            self._pollers[key] = Poller(read, seconds, on_empty=lambda: self._pollers.pop(key, None))
        return self._pollers[key]

"""Base of the live broadcasters: one task reads for many subscribers.

A broadcaster runs while it has subscribers. New, resumed and restarted subscribers wait for the next read, which serves
all of them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

import psycopg

from penstock.core.errors import DatabaseError, NotFound
from penstock.log.notify import Notifier, Topic
from penstock.server.http.errors import Problem, to_problem
from penstock.server.live.subscriber import LiveMessage, Subscriber
from penstock.server.metrics.counters import ServerMetrics

logger = logging.getLogger("penstock.server")

_FollowedT = TypeVar("_FollowedT")
_PositionT = TypeVar("_PositionT")

#: Time between two reads without a notification: one may be lost.
_POLL_SECONDS = 1.0
#: Shortest pause between two reads; at least as long as the last read took.
_MIN_PAUSE_SECONDS = 0.05
#: Pause after a read that failed.
_RETRY_SECONDS = 1.0


class Broadcaster(ABC, Generic[_FollowedT, _PositionT]):
    """Reads one source and sends what is new to all subscribers."""

    #: The label of its metrics.
    kind: str

    def __init__(self, notifier: Notifier, topic: Topic, metrics: ServerMetrics, on_empty: Callable[[], None]) -> None:
        self._notifier = notifier
        self._topic = topic
        self._metrics = metrics
        self._on_empty = on_empty
        #: The keys that each subscriber follows; None for all.
        self._keys: dict[Subscriber, _FollowedT | None] = {}
        #: Subscribers without a first message: the position after which they resume; None to start anew.
        self._starting: dict[Subscriber, _PositionT | None] = {}
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    def subscribe(self, keys: _FollowedT | None, last_id: str) -> Subscriber:
        """Add a subscriber of some keys or all; ``last_id`` is the id of the last message that the client received."""
        subscriber = Subscriber(self._restart, lambda: self._metrics.live_overruns.add(1, self.kind))
        self._keys[subscriber] = keys
        self._starting[subscriber] = self.parse_position(last_id)
        self._metrics.live_subscribers.add(1, self.kind)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        self._wake.set()
        return subscriber

    def remove(self, subscriber: Subscriber) -> None:
        if subscriber in self._keys:
            del self._keys[subscriber]
            self._starting.pop(subscriber, None)
            self._metrics.live_subscribers.add(-1, self.kind)
        if not self._keys and self._task is not None:
            self._task.cancel()
            self._on_empty()

    def close(self) -> None:
        """End the streams of all subscribers."""
        for subscriber in self._keys:
            subscriber.close()

    @property
    def subscriber_count(self) -> int:
        return len(self._keys)

    @abstractmethod
    async def read_and_send(self) -> None:
        """Read what is new and offer it to the subscribers."""

    @abstractmethod
    def parse_position(self, last_id: str) -> _PositionT | None:
        """Return the position of a message id; None if it is not one of this source."""

    @abstractmethod
    def position_after_overrun(self, subscriber: Subscriber) -> _PositionT | None:
        """Return the position from which a subscriber that was too slow restarts; None to start anew."""

    def _restart(self, subscriber: Subscriber) -> None:
        if subscriber in self._keys:
            self._starting[subscriber] = self.position_after_overrun(subscriber)
            self._wake.set()

    async def _run(self) -> None:
        while self._keys:
            seen = self._notifier.count(self._topic)
            self._wake.clear()
            begun = time.monotonic()
            try:
                await self.read_and_send()
                pause = max(_MIN_PAUSE_SECONDS, time.monotonic() - begun)
            except (NotFound, Problem) as error:
                self._fail(error)
                return
            except (DatabaseError, psycopg.Error, TimeoutError) as error:
                logger.warning("could not read a live stream", extra={"reason": type(error).__name__})
                pause = _RETRY_SECONDS
            except Exception as error:
                logger.exception("a live stream failed")
                self._fail(error)
                return
            await asyncio.sleep(pause)
            await self._wait(seen)

    async def _wait(self, seen: int) -> None:
        """Wait for a notification, a new subscriber, or the time of the next poll."""
        waits = [
            asyncio.create_task(self._notifier.wait(self._topic, seen, _POLL_SECONDS)),
            asyncio.create_task(self._wake.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _fail(self, error: Exception) -> None:
        """End all streams with a problem."""
        message = problem_message(to_problem(error))
        for subscriber in self._keys:
            subscriber.offer(message)
            subscriber.close()


def problem_message(problem: Problem) -> LiveMessage:
    """Return the last message of a stream that ends with a problem."""
    return LiveMessage("problem", bytes(problem.response().body))

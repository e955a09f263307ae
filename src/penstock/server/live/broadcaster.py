"""What many readers share: one task that reads when something has happened, and tells them all.

A hub runs while it has readers. Those that come, come back or were too slow wait for the next step, which reads for all
of them together.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

import psycopg

from penstock.core.errors import DatabaseError, NotFound
from penstock.log.notify import Signals, Topic
from penstock.server.http.errors import Problem, problem_of
from penstock.server.live.subscriber import Frame, Subscriber
from penstock.server.metrics.counters import Instruments

logger = logging.getLogger("penstock.server")

#: Without a signal a hub looks by itself after so many seconds: a notification may be lost.
_LOOK_SECONDS = 1.0
#: Between two reads lies this much, and at least as much as the last one took.
_SPACING_SECONDS = 0.05
_PAUSE_SECONDS = 1.0


class Hub(ABC):
    """Readers of one thing."""

    #: What it is, for metrics.
    kind: str

    def __init__(self, signals: Signals, topic: Topic, metrics: Instruments, ended: Callable[[], None]) -> None:
        self._signals = signals
        self._topic = topic
        self._metrics = metrics
        self._ended = ended
        self._members: set[Subscriber] = set()
        self._task: asyncio.Task[None] | None = None
        self._asked = asyncio.Event()

    def add(self, subscriber: Subscriber) -> None:
        """Let a reader take part."""
        self._members.add(subscriber)
        self._metrics.live_subscribers.add(1, self.kind)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        self._asked.set()

    def remove(self, subscriber: Subscriber) -> None:
        """A reader has left."""
        if subscriber in self._members:
            self._members.discard(subscriber)
            self._metrics.live_subscribers.add(-1, self.kind)
            self.forget(subscriber)
        if not self._members and self._task is not None:
            self._task.cancel()
            self._ended()

    def end(self) -> None:
        """Tell every reader that there will be nothing more."""
        for subscriber in self._members:
            subscriber.end()

    def overrun(self) -> None:
        """A reader was too slow."""
        self._metrics.live_overruns.add(1, self.kind)

    @property
    def size(self) -> int:
        """How many readers there are."""
        return len(self._members)

    @abstractmethod
    async def step(self) -> None:
        """Read what is new and offer it."""

    @abstractmethod
    def forget(self, subscriber: Subscriber) -> None:
        """Let go of what is known of a reader."""

    async def _run(self) -> None:
        while self._members:
            seen = self._signals.count(self._topic)
            self._asked.clear()
            begun = time.monotonic()
            try:
                await self.step()
                pause = max(_SPACING_SECONDS, time.monotonic() - begun)
            except (NotFound, Problem) as error:
                self._refuse(error)
                return
            except (DatabaseError, psycopg.Error, TimeoutError) as error:
                logger.warning("a live stream could not be read", extra={"reason": type(error).__name__})
                pause = _PAUSE_SECONDS
            except Exception as error:
                logger.exception("a live stream failed")
                self._refuse(error)
                return
            await asyncio.sleep(pause)
            await self._wait(seen)

    async def _wait(self, seen: int) -> None:
        """Until something has happened, somebody has come, or it is time to look."""
        waits = [
            asyncio.create_task(self._signals.wait(self._topic, seen, _LOOK_SECONDS)),
            asyncio.create_task(self._asked.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _refuse(self, error: Exception) -> None:
        """End the streams, and say why."""
        frame = problem_frame(problem_of(error))
        for subscriber in self._members:
            subscriber.offer(frame)
            subscriber.end()


def problem_frame(problem: Problem) -> Frame:
    """A problem as the last message of a stream."""
    return Frame("problem", bytes(problem.response().body))

"""Producers: push what is due over HTTP, and wait when they are told to."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from penstock.cli.demo.script import WARM_UP, Phase
from penstock.core.errors import QueueFull
from penstock.log.write.batch import Batch

if TYPE_CHECKING:
    from penstock.cli.demo.expected import Books
    from penstock.cli.demo.traffic import Maker
    from penstock.client.transport import Transport

_TICK_SECONDS = 0.1
#: After a standstill, no more is made up for than this.
_MOST_SECONDS = 1.0
#: A producer that is told to wait does, but looks in between whether it is all over.
_LONGEST_WAIT = 2.0


class Producers:
    """One for each queue, each of which has one push under way at a time, so that its events are in order."""

    def __init__(self, transport: Transport, books: Books, rate: float) -> None:
        self.phase: Phase = WARM_UP
        self._transport = transport
        self._books = books
        self._rate = rate
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Let each finish its push, and end."""
        self._stopping.set()

    async def run(self, maker: Maker) -> None:
        """Push one maker's events until told to stop."""
        last = time.monotonic()
        usual = surging = 0.0
        while not self._stopping.is_set():
            await self._pause(_TICK_SECONDS)
            now = time.monotonic()
            passed, last = min(now - last, _MOST_SECONDS), now
            per_second, besides = maker.how_many(self._rate, self.phase)
            usual += per_second * passed
            surging += besides * passed
            some = maker.make(int(usual), int(surging), time.time_ns() // 1_000_000, self.phase)
            usual, surging = usual % 1, surging % 1
            if some:
                await self._push(maker.queue, some)

    async def _push(self, queue: str, events: list[dict[str, Any]]) -> None:
        """Push events; where the queue is full, wait as long as it says and try again, so that nothing is lost."""
        while True:
            try:
                await self._transport.push([Batch(queue, events)])
                self._books.enter(queue, events)
                return
            except QueueFull as full:
                self._books.sent[queue].refused += 1
                if self._stopping.is_set():
                    return  # never accepted, so never counted
                await self._pause(min(full.retry_after, _LONGEST_WAIT))

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

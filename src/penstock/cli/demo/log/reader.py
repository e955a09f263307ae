"""A consumer of the demonstration: pops orders, reads them and says how it went."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.cli.demo.log.shop import Ledger
from penstock.log.dead_letters.models import DEAD_LETTER_HEADER

if TYPE_CHECKING:
    from penstock import Event, Penstock

#: Says what an order is worth in cents; raises ValueError if it cannot read it.
Worth = Callable[[dict[str, Any]], int]
#: Called with an order, how often it has failed now, what went wrong, and whether it is a dead letter.
Failed = Callable[[dict[str, Any], int, Exception, bool], None]


def ignore(data: dict[str, Any], attempt: int, error: Exception, dead: bool) -> None:
    """Hear of a failure and do nothing."""


class Reader:
    """Reads a queue as one group, at most so many events a second, until it is told to stop.

    Args:
        q: The client.
        queue: The queue to read.
        group: The group to read as.
        worth: What an order is worth.
        pace: Events a second.
        batch: Events a pop.
        failed: Hears of every failure.
    """

    def __init__(
        self,
        q: Penstock,
        queue: str,
        group: str,
        worth: Worth,
        *,
        pace: float,
        batch: int,
        failed: Failed = ignore,
    ) -> None:
        self.ledger = Ledger()
        self._q = q
        self._events = q.queue(queue).group(group).batch(batch).partitions(8).wait(True).timeout_millis(250)
        self._worth = worth
        self._pace = pace
        self._failed = failed

    async def run(self, stop: asyncio.Event) -> None:
        """Read until told to stop."""
        clock = asyncio.get_running_loop().time
        started = clock()
        while not stop.is_set():
            lanes: dict[int, list[Event]] = {}
            for event in await self._events.pop():
                lanes.setdefault(event.partition_id, []).append(event)
            for events in lanes.values():
                await self._read(events)
            await asyncio.sleep(max(self.ledger.orders / self._pace - (clock() - started), 0))

    async def _read(self, events: Sequence[Event]) -> None:
        """Read the orders of one tenant, which have to be taken in order."""
        done: list[tuple[Event, int]] = []
        for event in events:
            try:
                done.append((event, self._worth(event.data)))
            except ValueError as error:
                await self._complete(done)
                done = []
                (answer,) = await self._q.ack(event, "failed", error=error)
                self._failed(event.data, event.attempts + 1, error, answer.dead_letter)
                if not answer.dead_letter:
                    return  # it comes again, and with it those after it
        await self._complete(done)

    async def _complete(self, done: Sequence[tuple[Event, int]]) -> None:
        if not done:
            return
        answers = await self._q.ack([event for event, _ in done])
        for (event, cents), answer in zip(done, answers, strict=True):
            if answer.success:
                self.ledger.enter(event.data, cents, redriven=DEAD_LETTER_HEADER in event.headers)

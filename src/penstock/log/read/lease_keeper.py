"""Extends the leases of delivered events while a consumer processes them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from penstock.core.backoff import Backoff
from penstock.log.event import Event
from penstock.log.read.consume_loop import EventSource, first_of_each_partition

_logger = logging.getLogger("penstock.log")

_RETRY_BACKOFF = Backoff(first=0.25, longest=2.0)


class LeaseKeeper:
    """Extends the lease of events every third of its length, while the block runs.

    ::

        async with LeaseKeeper(log, events, lease_seconds=30) as lease:
            await process(events)
            if not lease.is_lost:
                await log.ack(events)

    ``lease_seconds`` None stands for the lease time of the queue.
    """

    def __init__(self, source: EventSource, events: Sequence[Event], lease_seconds: float | None) -> None:
        self._source = source
        self._events = first_of_each_partition(events)
        self._lease_seconds = lease_seconds
        #: Another consumer may have the events now.
        self.is_lost = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._extend())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _extend(self) -> None:
        queue, failures = self._events[0].queue, 0
        while True:
            try:
                seconds = self._lease_seconds or (await self._source.queue(queue)).lease_seconds
                if not failures:
                    await asyncio.sleep(seconds / 3)
                if await self._source.extend(self._events, seconds) is None:
                    self.is_lost = True
                    _logger.warning("queue %r: a lease has ended while its events were processed", queue)
                    return
                failures = 0
            except Exception as error:
                failures += 1
                _logger.warning("queue %r: a lease could not be extended and is tried again: %s", queue, error)
                await asyncio.sleep(_RETRY_BACKOFF.pause(failures))

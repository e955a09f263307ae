"""The consume loop: pop events, deliver them, repeat. The client's consumers and the sinks run it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from penstock.log.event import Event
from penstock.log.queue import Queue
from penstock.log.read.ack import AckResult
from penstock.log.read.pop_request import PopRequest

#: The longest wait of one pop. The loop pops again after that.
MAX_POP_WAIT_SECONDS = 30.0


class EventSource(Protocol):
    """The operations that a consumer needs: the log has them, and the client's transports."""

    async def queue(self, name: str) -> Queue:
        """Return a queue."""

    async def pop(self, request: PopRequest) -> list[Event]:
        """Lease events and return them; return none if none arrive within the request's wait time."""

    async def ack(
        self,
        events: Sequence[Event],
        status: object = True,
        *,
        error: str = "",
        stage: str = "consumer",
        traceback: str | None = None,
    ) -> Sequence[AckResult]:
        """Acknowledge all events with one status."""

    async def extend(self, events: Sequence[Event], seconds: float = 60.0) -> datetime | None:
        """Extend the lease of these events; return None if it has ended."""


class ConsumeLoop(ABC):
    """Pops events and delivers them until ``stopping`` is set. Several tasks may run the loop of one object."""

    def __init__(self, source: EventSource) -> None:
        self.source = source
        self.stopping = asyncio.Event()

    async def consume(self, idle_seconds: float | None = None) -> None:
        """Run the loop; end it too when there were no events for ``idle_seconds``."""
        clock = asyncio.get_running_loop().time
        idle_since = clock()
        stopped = asyncio.create_task(self.stopping.wait())
        try:
            while not self.is_stopping():
                request = await self.next_request()
                if request is None:
                    return
                if idle_seconds is not None:
                    remaining = max(idle_since + idle_seconds - clock(), 0.0)
                    request = replace(request, wait_seconds=min(request.wait_seconds, remaining))
                try:
                    events = await self._pop_until(stopped, request)
                except Exception as error:
                    await self.handle_pop_error(error)
                    continue
                if events:
                    await self.deliver(events)
                    idle_since = clock()
                await self.finish_round(events)
                if self.is_busy():
                    idle_since = clock()
                elif idle_seconds is not None and not events and clock() - idle_since >= idle_seconds:
                    return
        finally:
            stopped.cancel()

    @abstractmethod
    async def next_request(self) -> PopRequest | None:
        """Return the next pop, or None to end the loop."""

    @abstractmethod
    async def deliver(self, events: Sequence[Event]) -> None:
        """Process events and acknowledge them."""

    async def pop(self, request: PopRequest) -> list[Event]:
        """Pop events."""
        return await self.source.pop(request)

    async def handle_pop_error(self, error: Exception) -> None:
        """Raise the error to end the loop, or return to pop again."""
        raise error

    async def finish_round(self, events: Sequence[Event]) -> None:  # noqa: B027 - optional
        """Run after each pop and its delivery."""

    def is_stopping(self) -> bool:
        """Return whether the loop ends before the next pop."""
        return self.stopping.is_set()

    def is_busy(self) -> bool:
        """Return whether deliveries run in the background, so that the loop does not count as idle."""
        return False

    async def _pop_until(self, stopped: asyncio.Task[bool], request: PopRequest) -> Sequence[Event]:
        """Pop events; cancel the pop when ``stopped`` ends."""
        pop = asyncio.create_task(self.pop(request))
        try:
            await asyncio.wait([pop, stopped], return_when=asyncio.FIRST_COMPLETED)
            if not pop.done():
                pop.cancel()
                await asyncio.wait([pop])
            return [] if pop.cancelled() else pop.result()
        except asyncio.CancelledError:
            if not pop.cancel() and not pop.cancelled() and pop.exception() is None:
                await release_events(self.source, pop.result())
            raise


async def release_events(source: EventSource, events: Sequence[Event]) -> None:
    """Release the leases of these events and of all later events in their partitions; they are delivered again."""
    if events:
        await source.ack(first_of_each_partition(events), "retry")


def group_by_partition(events: Iterable[Event]) -> list[list[Event]]:
    """Return the events of each partition, in order."""
    partitions: dict[int, list[Event]] = {}
    for event in events:
        partitions.setdefault(event.partition_id, []).append(event)
    return list(partitions.values())


def first_of_each_partition(events: Iterable[Event]) -> list[Event]:
    """Return the first event of each partition."""
    return [partition[0] for partition in group_by_partition(events)]

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import cast

from penstock.core.errors import DatabaseUnavailable
from penstock.log.event import Event
from penstock.log.read.consume_loop import EventSource
from penstock.log.read.lease_keeper import LeaseKeeper
from penstock.sinks.conformance import make_events

LATER = datetime(2026, 1, 31, tzinfo=UTC)


class LeaseSource:
    """Returns or raises one prepared result for each extension of a lease."""

    def __init__(self, results: Iterator[datetime | Exception | None]) -> None:
        self.extended: list[list[tuple[int, int]]] = []
        self.used_up = asyncio.Event()
        self._results = results

    async def extend(self, events: Sequence[Event], seconds: float = 60.0) -> datetime | None:
        result = next(self._results, None)
        if result is None:
            self.used_up.set()
        self.extended.append([(event.partition_id, event.offset) for event in events])
        if isinstance(result, Exception):
            raise result
        return result


async def test_a_lease_is_extended_after_an_error_and_lost_when_it_has_ended() -> None:
    source = LeaseSource(iter([LATER, DatabaseUnavailable("restarting"), LATER, None]))
    events = make_events(range(3), partition_id=1) + make_events(range(3), key="b", partition_id=2)

    async with LeaseKeeper(cast("EventSource", source), events, lease_seconds=0.03) as lease:
        async with asyncio.timeout(20):
            await source.used_up.wait()
            while not lease.is_lost:  # noqa: ASYNC110 - set right after the last extension
                await asyncio.sleep(0)

    assert source.extended == [[(1, 0), (2, 0)]] * 4, "one event names the lease of a partition"


async def test_the_lease_time_of_the_queue_is_the_default() -> None:
    asked: list[str] = []

    class QueueSource(LeaseSource):
        async def queue(self, name: str) -> object:
            asked.append(name)

            class Queue:
                lease_seconds = 0.03

            return Queue

    source = QueueSource(iter([]))

    async with LeaseKeeper(cast("EventSource", source), make_events([1]), lease_seconds=None), asyncio.timeout(20):
        await source.used_up.wait()

    assert asked == ["conformance"]

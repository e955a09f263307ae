"""Pollers share reads among pages and pause while no page is visible."""

from __future__ import annotations

import asyncio

from penstock.console.polling import Pollers
from penstock.core.errors import DatabaseError


class Source:
    """Counts the reads."""

    def __init__(self) -> None:
        self.read_count = 0
        self.error: Exception | None = None
        self.was_read = asyncio.Event()

    async def read(self) -> int:
        self.read_count += 1
        self.was_read.set()
        if self.error is not None:
            raise self.error
        return self.read_count


async def test_subscriptions_of_one_key_share_reads() -> None:
    pollers, source = Pollers(), Source()
    values: list[list[int]] = [[], [], []]
    done = asyncio.Event()

    def last(value: int) -> None:
        values[-1].append(value)
        if len(values[-1]) == 3:
            done.set()

    shows = [values[0].append, values[1].append, last]
    subscriptions = [pollers.get("key", source.read, 0.01).subscribe(show, lambda _: None) for show in shows]
    for subscription in subscriptions:
        subscription.set_visible(True)
    async with asyncio.timeout(10):
        await done.wait()
    for subscription in subscriptions:
        subscription.close()
    assert values[0][:3] == values[1][:3] == values[2][:3] == [1, 2, 3]


async def test_poller_pauses_while_no_page_is_visible() -> None:
    pollers, source = Pollers(), Source()
    poller = pollers.get("key", source.read, 0.0)
    delivered = asyncio.Event()
    subscription = poller.subscribe(lambda _: delivered.set(), lambda _: None)
    assert source.read_count == 0
    subscription.set_visible(True)
    async with asyncio.timeout(10):
        await delivered.wait()
    subscription.set_visible(False)
    # The read in progress may finish. No other read starts after it.
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
    count = source.read_count
    subscription.set_visible(False)
    assert source.read_count == count
    source.was_read.clear()
    subscription.set_visible(True)
    async with asyncio.timeout(10):
        await source.was_read.wait()
    subscription.close()


async def test_failed_read_is_reported_and_retried() -> None:
    pollers, source = Pollers(), Source()
    source.error = DatabaseError("gone")
    errors: list[Exception] = []
    recovered = asyncio.Event()

    def failed(error: Exception) -> None:
        errors.append(error)
        source.error = None

    subscription = pollers.get("key", source.read, 0.0).subscribe(lambda _: recovered.set(), failed)
    subscription.set_visible(True)
    async with asyncio.timeout(10):
        await recovered.wait()
    subscription.close()
    assert [str(error) for error in errors] == ["gone"]


async def test_failing_page_does_not_stop_other_pages() -> None:
    pollers, source = Pollers(), Source()
    delivered = asyncio.Event()

    def broken(_: int) -> None:
        raise ValueError("no")

    poller = pollers.get("key", source.read, 0.0)
    subscriptions = [
        poller.subscribe(broken, lambda _: None),
        poller.subscribe(lambda _: delivered.set(), lambda _: None),
    ]
    for subscription in subscriptions:
        subscription.set_visible(True)
    async with asyncio.timeout(10):
        await delivered.wait()
    for subscription in subscriptions:
        subscription.close()

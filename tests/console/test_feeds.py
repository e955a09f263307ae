"""What browsers see move is looked up once for all of them, and not at all while nobody looks."""

from __future__ import annotations

import asyncio

from penstock.console.polling import Pollers
from penstock.core.errors import DatabaseError


class Source:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.read_count = 0
        self.error: Exception | None = None
        self.answered = asyncio.Event()

    async def read(self) -> int:
        self.read_count += 1
        self.answered.set()
        if self.error is not None:
            raise self.error
        return self.read_count


async def test_followers_of_one_key_share_each_look() -> None:
    pollers, source = Pollers(), Source()
    heard: list[list[int]] = [[], [], []]
    done = asyncio.Event()

    def last(value: int) -> None:
        heard[-1].append(value)
        if len(heard[-1]) == 3:
            done.set()

    shows = [heard[0].append, heard[1].append, last]
    subscriptions = [pollers.get("it", source.read, 0.01).subscribe(show, lambda _: None) for show in shows]
    for subscription in subscriptions:
        subscription.set_visible(True)
    async with asyncio.timeout(10):
        await done.wait()
    for subscription in subscriptions:
        subscription.close()
    assert heard[0][:3] == heard[1][:3] == heard[2][:3] == [1, 2, 3]


async def test_nothing_is_looked_up_while_nobody_looks() -> None:
    pollers, source = Pollers(), Source()
    poller = pollers.get("it", source.read, 0.0)
    seen = asyncio.Event()
    subscription = poller.subscribe(lambda _: seen.set(), lambda _: None)
    assert source.read_count == 0
    subscription.set_visible(True)
    async with asyncio.timeout(10):
        await seen.wait()
    subscription.set_visible(False)
    # The look that was under way may end; after it there is none.
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
    asked = source.read_count
    subscription.set_visible(False)
    assert source.read_count == asked
    source.answered.clear()
    subscription.set_visible(True)
    async with asyncio.timeout(10):
        await source.answered.wait()
    subscription.close()


async def test_a_look_that_fails_is_told_and_tried_again() -> None:
    pollers, source = Pollers(), Source()
    source.error = DatabaseError("gone")
    troubles: list[Exception] = []
    recovered = asyncio.Event()

    def failed(error: Exception) -> None:
        troubles.append(error)
        source.error = None

    subscription = pollers.get("it", source.read, 0.0).subscribe(lambda _: recovered.set(), failed)
    subscription.set_visible(True)
    async with asyncio.timeout(10):
        await recovered.wait()
    subscription.close()
    assert [str(error) for error in troubles] == ["gone"]


async def test_a_page_that_cannot_show_it_does_not_take_it_from_the_others() -> None:
    pollers, source = Pollers(), Source()
    seen = asyncio.Event()

    def broken(_: int) -> None:
        raise ValueError("no")

    poller = pollers.get("it", source.read, 0.0)
    subscriptions = [poller.subscribe(broken, lambda _: None), poller.subscribe(lambda _: seen.set(), lambda _: None)]
    for subscription in subscriptions:
        subscription.set_visible(True)
    async with asyncio.timeout(10):
        await seen.wait()
    for subscription in subscriptions:
        subscription.close()

"""What browsers see move is looked up once for all of them, and not at all while nobody looks."""

from __future__ import annotations

import asyncio

from penstock.console.polling import Feeds
from penstock.core.errors import DatabaseError


class Source:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.error: Exception | None = None
        self.answered = asyncio.Event()

    async def read(self) -> int:
        self.asked += 1
        self.answered.set()
        if self.error is not None:
            raise self.error
        return self.asked


async def test_followers_of_one_key_share_each_look() -> None:
    feeds, source = Feeds(), Source()
    heard: list[list[int]] = [[], [], []]
    done = asyncio.Event()

    def last(value: int) -> None:
        heard[-1].append(value)
        if len(heard[-1]) == 3:
            done.set()

    shows = [heard[0].append, heard[1].append, last]
    followers = [feeds.feed("it", source.read, 0.01).join(show, lambda _: None) for show in shows]
    for follower in followers:
        follower.look(True)
    async with asyncio.timeout(10):
        await done.wait()
    for follower in followers:
        follower.close()
    assert heard[0][:3] == heard[1][:3] == heard[2][:3] == [1, 2, 3]


async def test_nothing_is_looked_up_while_nobody_looks() -> None:
    feeds, source = Feeds(), Source()
    feed = feeds.feed("it", source.read, 0.0)
    seen = asyncio.Event()
    follower = feed.join(lambda _: seen.set(), lambda _: None)
    assert source.asked == 0
    follower.look(True)
    async with asyncio.timeout(10):
        await seen.wait()
    follower.look(False)
    # The look that was under way may end; after it there is none.
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
    asked = source.asked
    follower.look(False)
    assert source.asked == asked
    source.answered.clear()
    follower.look(True)
    async with asyncio.timeout(10):
        await source.answered.wait()
    follower.close()


async def test_a_look_that_fails_is_told_and_tried_again() -> None:
    feeds, source = Feeds(), Source()
    source.error = DatabaseError("gone")
    troubles: list[Exception] = []
    recovered = asyncio.Event()

    def failed(error: Exception) -> None:
        troubles.append(error)
        source.error = None

    follower = feeds.feed("it", source.read, 0.0).join(lambda _: recovered.set(), failed)
    follower.look(True)
    async with asyncio.timeout(10):
        await recovered.wait()
    follower.close()
    assert [str(error) for error in troubles] == ["gone"]


async def test_a_page_that_cannot_show_it_does_not_take_it_from_the_others() -> None:
    feeds, source = Feeds(), Source()
    seen = asyncio.Event()

    def broken(_: int) -> None:
        raise ValueError("no")

    feed = feeds.feed("it", source.read, 0.0)
    followers = [feed.join(broken, lambda _: None), feed.join(lambda _: seen.set(), lambda _: None)]
    for follower in followers:
        follower.look(True)
    async with asyncio.timeout(10):
        await seen.wait()
    for follower in followers:
        follower.close()

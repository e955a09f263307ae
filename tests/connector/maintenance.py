"""Rolls segments and runs retention at once."""

from __future__ import annotations

import asyncio

from penstock.core.clock import Clock
from penstock.log.upkeep import Upkeep
from tests.log import logs


def roll(url: str, queue: str = "orders") -> None:
    """Seal the open segment and open the next."""

    async def act() -> None:
        async with logs.opened(url) as log:
            await logs.roll(log, queue)

    asyncio.run(act())


def forget(url: str, queue: str = "orders") -> None:
    """Delete all sealed segments by retention, even unread ones."""
    assert aged(url, queue, retention_drops_unread=True).dropped


def aged(url: str, queue: str = "orders", **options: bool) -> Upkeep:
    """What a round of upkeep does when all that is there is older than retention keeps it."""

    async def act() -> Upkeep:
        clock = Clock()
        async with logs.opened(url, clock=clock) as log:
            await log.configure(queue, {"retention_seconds": 3600, **options})
            clock.advance(90_000)
            return await log.upkeep()

    return asyncio.run(act())

"""What time does to a queue, at once."""

from __future__ import annotations

import asyncio

from penstock.core.clock import Clock
from tests.log import logs


def roll(url: str, queue: str = "orders") -> None:
    """Seal the open segment and open the next."""

    async def act() -> None:
        async with logs.opened(url) as log:
            await logs.roll(log, queue)

    asyncio.run(act())


def forget(url: str, queue: str = "orders") -> None:
    """Let retention drop all that is sealed, whoever has not read it."""

    async def act() -> None:
        clock = Clock()
        async with logs.opened(url, clock=clock) as log:
            await log.configure(queue, {"retention_seconds": 3600, "retention_drops_unread": True})
            clock.advance(90_000)
            assert (await log.upkeep()).dropped

    asyncio.run(act())

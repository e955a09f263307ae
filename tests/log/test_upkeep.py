"""Rounds of upkeep."""

from __future__ import annotations

import asyncio
import random

from penstock.core.clock import Clock
from penstock.log.log import Log
from tests.log.logs import (
    QUEUE,
    drain,
    push,
    roll,
)

KEEPS_LITTLE = {"retention_seconds": 10, "retention_drops_unread": True, "dedup_window_seconds": 0}


async def test_a_cancelled_upkeep_releases_its_lock(log: Log, other_log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, KEEPS_LITTLE)
    chance = random.Random(7)
    for _ in range(30):
        cancelled = asyncio.create_task(log.upkeep())
        await asyncio.sleep(chance.random() / 200)
        cancelled.cancel()
        await asyncio.wait([cancelled])
    await push(log, [1])
    await drain(log)
    await roll(log)
    clock.advance(60)
    assert (await other_log.upkeep()).dropped == 1


async def test_an_error_in_one_queue_does_not_stop_the_upkeep_of_others(log: Log, clock: Clock) -> None:
    for retention in (1e10, 1e13, 1e18):
        await log.configure(f"a queue to keep for {retention:g} seconds", {"retention_seconds": retention})
    for name in [queue.name for queue in await log.queues()]:
        await push(log, [1], queue=name)
        await roll(log, name)
    await log.configure("the other", {"retention_seconds": 100, "dedup_window_seconds": 0})
    await push(log, [1], queue="the other")
    await roll(log, "the other")
    clock.advance(200)
    assert (await log.upkeep()).dropped == 1

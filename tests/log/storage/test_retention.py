"""Retention: which segments are dropped, and what happens to groups that have not read them."""

from __future__ import annotations

import asyncio

from penstock.core.clock import Clock
from penstock.log.log import Log
from tests.log.logs import (
    GROUP,
    QUEUE,
    ask,
    data,
    drain,
    held,
    lag,
    pop,
    push,
    roll,
    waiting,
)

KEEPS_LITTLE = {"retention_seconds": 10, "retention_drops_unread": True, "dedup_window_seconds": 0}


async def test_retention_keeps_unread_segments(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"retention_seconds": 100, "dedup_window_seconds": 0})
    await push(log, range(5), key="ada")
    await log.subscribe(QUEUE, "slow")
    await drain(log, group="quick")
    await roll(log)
    await push(log, range(5, 8), key="ada")
    clock.advance(200)
    upkeep = await log.upkeep()
    assert (upkeep.dropped, upkeep.waiting) == (0, 1)
    assert data(await drain(log, group="slow")) == list(range(8))
    assert data(await drain(log, group="quick")) == [5, 6, 7]
    await log.upkeep()
    clock.advance(200)
    await log.upkeep()
    info = await log.describe(QUEUE)
    assert (info.size.events, info.size.appended) == (0, 8)
    assert (await push(log, [8], key="ada"))[0].offset == 8
    assert data(await drain(log, group="a new one")) == [8]


async def test_retention_drops_unread_segments_if_configured(log: Log, clock: Clock) -> None:
    options = {"retention_seconds": 100, "dedup_window_seconds": 0, "retention_drops_unread": True}
    await log.configure(QUEUE, options)
    await push(log, range(5), key="ada")
    held = await pop(log, batch=2)
    await roll(log)
    await push(log, range(5, 8), key="ada")
    clock.advance(110)
    assert (await log.upkeep()).dropped == 1
    assert not any(await log.ack(held, False))
    assert data(await drain(log)) == [5, 6, 7]
    assert await lag(log) == 0


async def test_events_completed_during_a_drop_are_not_counted_as_dropped(
    log: Log, other_log: Log, database_url: str, clock: Clock
) -> None:
    await log.configure(QUEUE, KEEPS_LITTLE | {"lease_seconds": 1000})
    for key in ("ada", "bob"):
        await push(log, range(10), key=key)
    await roll(log)
    events = await pop(log)
    clock.advance(60)
    counted = "SELECT dropped FROM penstock.groups"
    # Another transaction holds the lock on a position that upkeep needs. An ack comes before or after it.
    hold = "SELECT * FROM penstock.positions WHERE partition_id = %s FOR NO KEY UPDATE"
    async with held(database_url, hold, events[0].partition_id):
        completing = asyncio.create_task(log.ack(events[:5]))
        await waiting(database_url)
        upkeep = asyncio.create_task(other_log.upkeep())
        await waiting(database_url, 2)
    results, done = await completing, await upkeep
    assert done.dropped == 1
    completed = sum(bool(result) for result in results)
    assert await asyncio.to_thread(ask, database_url, counted) == 20 - completed
    assert await lag(log) == 0


async def test_no_more_events_are_kept_than_were_ever_appended(log: Log, database_url: str, clock: Clock) -> None:
    await log.configure(QUEUE, KEEPS_LITTLE)

    async def produce() -> None:
        for number in range(30):
            await push(log, range(10), key=f"key {number % 3}")

    async def check() -> None:
        size = (await log.describe(QUEUE)).size
        assert 0 <= size.events <= size.appended <= 300
        async with log.database.connection() as conn:
            row = await (await conn.execute("SELECT events, appended FROM penstock.depth")).fetchone()
        assert row is not None
        assert 0 <= row[0] <= row[1] <= 300

    async def drop() -> None:
        await roll(log)
        clock.advance(60)
        await log.upkeep()

    producing = asyncio.create_task(produce())
    while not producing.done():
        await check()
        await drop()
    await producing
    await drop()
    size = (await log.describe(QUEUE)).size
    assert (size.events, size.appended) == (0, 300)
    await check()


async def test_young_segments_are_kept(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"retention_seconds": 100, "dedup_window_seconds": 0})
    await push(log, range(5), key="ada")
    await drain(log)
    await roll(log)
    clock.advance(50)
    assert (await log.upkeep()).dropped == 0
    assert len(await log.fetch(QUEUE, "ada")) == 5


async def test_a_seek_to_dropped_events_moves_to_the_first_event(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"retention_seconds": 100, "dedup_window_seconds": 0})
    await push(log, range(5), key="ada")
    await drain(log)
    await roll(log)
    clock.advance(110)
    assert (await log.upkeep()).dropped == 1
    await push(log, range(5, 8), key="ada")
    for place in ("beginning", 0, 2):
        await log.seek(QUEUE, GROUP, place, partition="ada")
        assert data(await drain(log)) == [5, 6, 7]

"""What time does to a queue: segments are sealed and dropped, lanes parked, partitions made anew, letters sent back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import psycopg
import pytest

from penstock.core.clock import Clock
from penstock.log.dead_letters import Filter
from penstock.log.log import Log
from tests.log.logs import (
    GROUP,
    QUEUE,
    ask,
    by_key,
    data,
    drain,
    eventually,
    held,
    lag,
    letters,
    opened,
    pop,
    push,
    roll,
    waiting,
)

KEEPS_LITTLE = {"retention_seconds": 10, "retention_drops_unread": True, "dedup_window_seconds": 0}

# Segments and retention


async def test_reading_goes_on_across_segments(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    for part in range(5):
        for i in range(4):
            await push(other_log if i % 2 else log, [(part, i)], key=f"key {i % 2}")
        await roll(log if part % 2 else other_log)
    expected = [[(part, i) for part in range(5) for i in range(4) if i % 2 == odd] for odd in (0, 1)]
    for group, batch in (("one by one", 1), ("by threes", 3), ("at once", 1000)):
        found = by_key(await drain(log, group=group, batch=batch))
        assert [[tuple(x) for x in found[f"key {odd}"]] for odd in (0, 1)] == expected
    events = await log.fetch(QUEUE, "key 1", 0, 100)
    assert [tuple(event.data) for event in events] == expected[1]
    assert [event.offset for event in events] == list(range(10))


async def test_depth_and_lag_are_right_at_once_after_a_roll(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    await log.subscribe(QUEUE, GROUP)
    for rolls in range(1, 4):
        await push(log, range(3), key="ada")
        await roll(log)
        await push(other_log, range(2), key="ada")
        await push(other_log, range(2), key=f"key {rolls}")
        for mine in (log, other_log):
            assert await lag(mine) == 7 * rolls
            info = await mine.describe(QUEUE)
            assert (info.size.appended, info.size.events, info.groups[0].lag) == (7 * rolls,) * 3
            assert sum(lane.lag for lane in await mine.group_lanes(QUEUE, GROUP)) == 7 * rolls


async def test_retention_keeps_what_is_unread_and_drops_what_is_read(log: Log, clock: Clock) -> None:
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


async def test_retention_drops_what_is_unread_when_it_is_told_to(log: Log, clock: Clock) -> None:
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


async def test_what_is_completed_while_retention_drops_it_is_not_counted_as_dropped(
    log: Log, other_log: Log, database_url: str, clock: Clock
) -> None:
    await log.configure(QUEUE, KEEPS_LITTLE | {"lease_seconds": 1000})
    for key in ("ada", "bob"):
        await push(log, range(10), key=key)
    await roll(log)
    events = await pop(log)
    clock.advance(60)
    counted = "SELECT dropped FROM penstock.groups"
    # Somebody holds the position of one lane while upkeep wants it; an ack is behind them, or before.
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


async def test_upkeep_that_is_cancelled_leaves_the_next_round_to_others(log: Log, other_log: Log, clock: Clock) -> None:
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


async def test_what_is_young_is_kept(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"retention_seconds": 100, "dedup_window_seconds": 0})
    await push(log, range(5), key="ada")
    await drain(log)
    await roll(log)
    clock.advance(50)
    assert (await log.upkeep()).dropped == 0
    assert len(await log.fetch(QUEUE, "ada")) == 5


async def test_seeking_to_what_was_dropped_goes_to_what_is_left(log: Log, clock: Clock) -> None:
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


async def test_one_queue_that_cannot_be_kept_up_does_not_stop_the_others(log: Log, clock: Clock) -> None:
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


# Parking


async def test_a_function_that_a_migration_dropped_is_made_anew(log: Log, database_url: str) -> None:
    await log.configure(QUEUE)
    await push(log, [1], ids=["one"])
    await roll(log)
    queue = await log.catalog.refresh(QUEUE)
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(f"DROP FUNCTION penstock.append_{queue.id}_{queue.segment}".encode())
    async with opened(database_url) as upgraded:
        assert (await push(upgraded, [1, 2], ids=["one", "two"])).duplicates == 1
    assert data(await drain(log)) == [1, 2]


async def test_a_parked_lane_is_read_again_after_a_push(log: Log, other_log: Log, clock: Clock) -> None:
    await log.configure(QUEUE)
    for i in range(20):
        await push(log, [i], key=f"key {i}")
    await drain(log)
    clock.advance(60)
    assert (await log.upkeep()).parked == 20
    assert (await log.upkeep()).parked == 0
    await push(other_log, ["again"], key="key 7")
    assert by_key(await drain(log)) == {"key 7": ["again"]}
    assert await lag(log) == 0


async def test_a_lane_with_something_to_read_is_not_parked(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"lease_seconds": 10})
    await push(log, [1], key="unread")
    await push(log, [1, 2], key="leased")
    await log.subscribe(QUEUE, GROUP)
    await log.ack((await pop(log, partition="leased"))[:1])
    clock.advance(60)
    assert (await log.upkeep()).parked == 0
    assert len(await drain(log)) == 2


async def test_a_parked_lane_is_read_again_after_a_seek(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE)
    await push(log, range(3), key="ada")
    await drain(log)
    clock.advance(60)
    assert (await log.upkeep()).parked == 1
    await log.seek(QUEUE, GROUP, "beginning")
    assert data(await drain(log)) == [0, 1, 2]


# Repartitioning


@pytest.mark.parametrize(
    ("before", "after"),
    [(("key", None), ("hash", 3)), (("hash", 3), ("key", None)), (("hash", 2), ("hash", 5))],
    ids=["key to hash", "hash to key", "hash to hash"],
)
async def test_repartitioning_keeps_order_per_key_and_places_while_others_push(
    log: Log, other_log: Log, before: tuple[str, int | None], after: tuple[str, int | None]
) -> None:
    await log.configure(QUEUE, partitioning=before[0], partitions=before[1])
    keys = [f"key {i}" for i in range(6)]
    for i in range(5):
        for key in keys:
            await push(log, [i], key=key)
    await log.subscribe(QUEUE, "ahead", "end")
    behind = await pop(log, group="behind", batch=7)
    assert all(await log.ack(behind))
    stop = asyncio.Event()
    last = dict.fromkeys(keys, 4)

    async def produce(mine: Log, some: Sequence[str]) -> None:
        while not stop.is_set():
            for key in some:
                last[key] += 1
                await push(mine, [last[key]], key=key)

    producing = [asyncio.create_task(produce(log, keys[:3])), asyncio.create_task(produce(other_log, keys[3:]))]

    async def some_were_pushed() -> object:
        return sum(last.values()) > pushed + 20

    for _ in range(3):
        pushed = sum(last.values())
        await eventually(some_were_pushed)
        await other_log.repartition(QUEUE, *after)
        await log.repartition(QUEUE, *before)
    stop.set()
    await asyncio.gather(*producing)
    expected = {key: list(range(last[key] + 1)) for key in keys}
    assert by_key(await drain(log, group="from the start")) == expected
    rest = by_key(await drain(other_log, group="behind"))
    done = by_key(behind)
    assert {key: done.get(key, []) + rest.get(key, []) for key in keys} == expected
    assert by_key(await drain(log, group="ahead")) == {key: numbers[5:] for key, numbers in expected.items()}


async def test_nothing_of_the_new_partitions_comes_before_the_old_are_done(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"lease_seconds": 60})
    await push(log, ["old"], key="ada")
    await push(log, ["older"], key="bob")
    await log.repartition(QUEUE, "hash", 1)
    await push(log, ["new"], key="ada")
    await log.ack(await pop(log, partition="bob"))
    first = await pop(log)
    assert data(first) == ["old"]
    assert await pop(log) == []
    clock.advance(61)
    assert data(await pop(log)) == ["old"]
    clock.advance(61)
    assert data(await drain(log)) == ["old", "new"]


@pytest.mark.parametrize(
    ("before", "after"),
    [(("key", None), ("hash", 2)), (("hash", 2), ("key", None))],
    ids=["key to hash", "hash to key"],
)
async def test_events_keep_their_keys_when_the_queue_is_repartitioned(
    log: Log, before: tuple[str, int | None], after: tuple[str, int | None]
) -> None:
    await log.configure(QUEUE, {"retry_limit": 0}, partitioning=before[0], partitions=before[1])
    for key in ("ada", "bob"):
        await push(log, [key], key=key)
    await log.repartition(QUEUE, *after)
    events = await pop(log)
    assert {event.data: event.key for event in events} == {"ada": "ada", "bob": "bob"}
    assert {event.data: event.key for event in await log.browse(QUEUE)} == {"ada": "ada", "bob": "bob"}
    await log.ack(events, False)
    assert sorted(letter.key or "" for letter in await letters(log)) == ["ada", "bob"]
    await log.redrive(Filter(queue=QUEUE))
    assert by_key(await drain(log)) == {"ada": ["ada"], "bob": ["bob"]}


async def test_another_process_reads_the_new_partitions_at_once(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, ["old"], key="ada")
    assert data(await drain(other_log)) == ["old"]
    await log.repartition(QUEUE, "hash", 2)
    await push(log, ["new"], key="ada")
    assert data(await pop(other_log)) == ["new"]


async def test_repartitioning_to_what_it_is_changes_nothing(log: Log) -> None:
    queue = await log.configure(QUEUE, partitioning="hash", partitions=2)
    assert (await log.repartition(QUEUE, "hash", 2)).epoch == queue.epoch

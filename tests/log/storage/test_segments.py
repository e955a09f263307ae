"""Segments: rolled and read across."""

from __future__ import annotations

from penstock.log.log import Log
from tests.log.logs import (
    GROUP,
    QUEUE,
    by_key,
    drain,
    lag,
    push,
    roll,
)


async def test_pops_read_across_segments(log: Log, other_log: Log) -> None:
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
            assert sum(partition.lag for partition in await mine.group_positions(QUEUE, GROUP)) == 7 * rolls

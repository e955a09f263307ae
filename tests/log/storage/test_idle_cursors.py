"""Parked cursors of idle partitions."""

from __future__ import annotations

from penstock.core.clock import Clock
from penstock.log.log import Log
from tests.log.logs import (
    GROUP,
    QUEUE,
    by_key,
    data,
    drain,
    lag,
    pop,
    push,
)


async def test_a_push_unparks_a_partition(log: Log, other_log: Log, clock: Clock) -> None:
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


async def test_a_partition_with_unread_events_is_not_parked(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"lease_seconds": 10})
    await push(log, [1], key="unread")
    await push(log, [1, 2], key="leased")
    await log.subscribe(QUEUE, GROUP)
    await log.ack((await pop(log, partition="leased"))[:1])
    clock.advance(60)
    assert (await log.upkeep()).parked == 0
    assert len(await drain(log)) == 2


async def test_a_seek_unparks_a_partition(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE)
    await push(log, range(3), key="ada")
    await drain(log)
    clock.advance(60)
    assert (await log.upkeep()).parked == 1
    await log.seek(QUEUE, GROUP, "beginning")
    assert data(await drain(log)) == [0, 1, 2]

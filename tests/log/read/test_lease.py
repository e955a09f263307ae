"""Leases: exclusive, extended, expired, released."""

from __future__ import annotations

import asyncio

from penstock.core.clock import Clock
from penstock.log.event import Event
from penstock.log.log import Log
from tests.log.logs import (
    PATIENCE,
    QUEUE,
    by_key,
    data,
    drain,
    lag,
    letters,
    pop,
    push,
)

#: A waiting pop polls every five seconds. A notification wakes it much sooner.
CALLED = 4.0


async def test_a_cancelled_pop_keeps_no_lease(log: Log) -> None:
    await log.configure(QUEUE)
    for i in range(30):
        await push(log, [i])
        cancelled = asyncio.create_task(pop(log))
        for _ in range(i):
            await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        if cancelled.cancelled():
            async with asyncio.timeout(CALLED):
                assert data(await pop(log, wait_seconds=PATIENCE, auto_ack=True)) == [i]
        else:
            await log.ack(cancelled.result())


async def test_an_ack_of_an_expired_lease_is_refused(log: Log, other_log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"lease_seconds": 60})
    await push(log, range(3))
    paused = await pop(log)
    clock.advance(61)
    taken = await pop(other_log)
    assert data(taken) == data(paused)
    for status in ("completed", "failed", "retry", "dead_letter"):
        results = await log.ack(paused, status)
        assert not any(results)
        assert all("late" in str(result.error) for result in results)
    assert await letters(log) == []
    assert all(await other_log.ack(taken))
    assert await lag(log) == 0
    assert all(result.noop for result in await log.ack(paused))


async def test_a_late_ack_is_reported(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"lease_seconds": 60})
    await push(log, [1])
    events = await pop(log)
    clock.advance(61)
    (result,) = await log.ack(events)
    assert not result
    assert "late" in str(result.error)
    assert data(await drain(log)) == [1]


async def test_an_extended_lease_does_not_expire(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"lease_seconds": 60})
    await push(log, [1], key="ada")
    await push(log, [2], key="bob")
    events = await pop(log)
    clock.advance(50)
    assert await log.extend(events, 60) is not None
    clock.advance(50)
    assert await pop(log) == []
    assert all(await log.ack(events))
    assert await log.extend(events, 60) is None


async def test_extend_never_shortens_a_lease(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"lease_seconds": 60})
    await push(log, [1])
    events = await pop(log)
    await log.extend(events, 1)
    clock.advance(30)
    assert all(await log.ack(events))


async def test_two_consumers_never_lease_one_partition(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    for i in range(200):
        await push(log, [i], key=f"key {i % 4}")
    holders: set[int] = set()
    got: list[Event] = []

    async def consume(mine: Log) -> None:
        while len(got) < 200:
            events = await pop(mine, batch=3, partitions=2)
            partition_ids = {event.partition_id for event in events}
            assert not partition_ids & holders
            holders.update(partition_ids)
            await asyncio.sleep(0)
            holders.difference_update(partition_ids)
            assert all(await mine.ack(events))
            got.extend(events)

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(consume(mine) for mine in [log, other_log] * 4))
    assert by_key(got) == {f"key {k}": list(range(k, 200, 4)) for k in range(4)}

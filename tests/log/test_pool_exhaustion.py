"""Many concurrent operations share few connections, and none waits for a second connection while it holds one."""

from __future__ import annotations

import asyncio
from itertools import chain

from penstock.log.dead_letters.dead_letter import DeadLetterFilter
from penstock.log.read.ack import EventStatus
from tests.log.logs import (
    CACHED_AND_UNCACHED,
    GROUP,
    PATIENCE,
    QUEUE,
    ask,
    data,
    drain,
    opened,
    pop,
    push,
)

#: A waiting pop polls every five seconds. A notification wakes it much sooner.
CALLED = 4.0


@CACHED_AND_UNCACHED
async def test_all_operations_work_with_one_connection(database_url: str, cache_seconds: float) -> None:
    async with (
        opened(database_url, pool_size=1, retry_seconds=5, cache_seconds=cache_seconds) as log,
        asyncio.timeout(PATIENCE),
    ):
        await log.configure(QUEUE, {"retry_delay_ms": 0, "retry_limit": 0, "max_depth_events": 1000})
        for i in range(12):
            await push(log, [i], key=f"key {i}")
        popped = await asyncio.gather(*(pop(log, partition=f"key {i}") for i in range(12)))
        await asyncio.gather(*(log.ack(events, "dead_letter") for events in popped[:6]))
        await asyncio.gather(*(log.transact([EventStatus(e, True) for e in events], []) for events in popped[6:]))
        await asyncio.gather(*(log.upkeep() for _ in range(3)))
        await log.segments.roll(await log.catalog.refresh(QUEUE))
        await log.repartition(QUEUE, "hash", 2)
        await push(log, [12], key="key 1")
        assert data(await drain(log)) == [12]
        await log.describe(QUEUE)
        assert len(await log.groups()) == 1
        assert await log.count_dead_letters(DeadLetterFilter(queue=QUEUE)) == 6
        assert (await log.redrive(DeadLetterFilter(queue=QUEUE), limit=2)).replayed == 2
        assert len(await drain(log)) == 2
        assert await log.purge(DeadLetterFilter(queue=QUEUE)) == 4
        assert await log.seek(QUEUE, GROUP, "end") > 0
        assert await log.delete_queue(QUEUE)


async def test_a_waiting_pop_holds_no_connection(database_url: str) -> None:
    async with opened(database_url, pool_size=2) as log:
        await log.configure(QUEUE)
        waiters = [asyncio.create_task(pop(log, batch=1, wait_seconds=PATIENCE, auto_ack=True)) for _ in range(20)]
        done, _ = await asyncio.wait(waiters, timeout=0.3)
        assert not done
        async with asyncio.timeout(CALLED):
            for i in range(20):
                await push(log, [i], key=f"key {i}")
            assert sorted(data(chain(*await asyncio.gather(*waiters)))) == list(range(20))
        assert ask(database_url, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()") <= 5

"""Pops: order within a key, completeness, limits, and round robin over the partitions."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from itertools import chain
from typing import Any

from penstock.core.clock import Clock
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.log.read.ack import EventStatus
from tests.log.logs import (
    QUEUE,
    by_key,
    data,
    drain,
    held,
    lag,
    letters,
    pop,
    push,
    waiting,
)

HOLD_AT_COMMIT = """
CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(42);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER hold AFTER INSERT ON penstock.chunks_{queue}_1
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold();
"""


async def test_a_push_that_commits_late_is_delivered_and_in_order(log: Log, other_log: Log, database_url: str) -> None:
    queue = await log.configure(QUEUE)
    await push(log, ["first"], key="ada")
    async with held(database_url, HOLD_AT_COMMIT.format(queue=queue.id)) as conn:
        await conn.commit()
    async with held(database_url, "SELECT pg_advisory_xact_lock(42)"):
        early = asyncio.create_task(push(log, ["early"], key="ada"))
        await waiting(database_url)
        late = asyncio.create_task(push(other_log, ["late"], key="ada"))
        await waiting(database_url, 2)
        assert data(await drain(other_log)) == ["first"]
        assert not early.done()
        assert not late.done()
    assert [(await early)[0].offset, (await late)[0].offset] == [1, 2]
    assert data(await drain(log)) == ["early", "late"]


async def test_a_slow_push_does_not_delay_other_partitions(log: Log, other_log: Log, database_url: str) -> None:
    await log.configure(QUEUE)
    await push(log, [1], key="ada")
    async with held(database_url, "SELECT FROM penstock.partitions WHERE name = 'ada' FOR NO KEY UPDATE"):
        slow = asyncio.create_task(push(log, [2], key="ada"))
        await waiting(database_url)
        await push(other_log, [3], key="bob")
        assert by_key(await drain(other_log)) == {"ada": [1], "bob": [3]}
    await slow
    assert data(await drain(log)) == [2]


async def test_a_failed_event_is_redelivered_with_those_after_it(log: Log) -> None:
    await log.configure(QUEUE, {"retry_delay_ms": 0})
    await push(log, range(5))
    events = await pop(log)
    statuses = ["completed", "completed", "failed", "completed", "completed"]
    results = await log.ack_each([EventStatus(event, status) for event, status in zip(events, statuses, strict=True)])
    assert [bool(result) for result in results] == [True, True, True, False, False]
    assert "held back" in str(results[3].error)
    assert data(await drain(log)) == [2, 3, 4]
    assert await letters(log) == []


async def test_events_of_a_key_stay_in_order_through_failures(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"retry_limit": 2, "retry_delay_ms": 1000}, partitioning="hash", partitions=2)
    keys = [f"key {i}" for i in range(5)]
    chance = random.Random(1)
    for i in range(60):
        await push(log, [i], key=chance.choice(keys))
    completed: list[Event] = []
    while await lag(log) if completed else True:
        clock.advance(2)
        for event in await pop(log, batch=chance.randint(1, 9)):
            status = chance.choice(["completed", "failed", "retry"])
            (result,) = await log.ack_each([EventStatus(event, status)])
            if result and status == "completed":
                completed.append(event)
    dead = {letter.data for letter in await letters(log)}
    assert sorted(data(completed) + list(dead)) == list(range(60))
    for numbers in by_key(completed).values():
        assert numbers == sorted(numbers)


async def test_a_pop_finds_a_push_that_has_returned(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    for i in range(100):
        pusher, popper = (log, other_log) if i % 2 else (other_log, log)
        await push(pusher, [i], key=f"key {i % 7}")
        assert data(await pop(popper, auto_ack=True)) == [i]


async def test_a_pop_respects_batch_and_partitions(log: Log) -> None:
    await log.configure(QUEUE)
    for i in range(30):
        await push(log, [i], key=f"key {i % 6}")
    for batch, partitions in [(1, 1), (4, 1), (7, 2), (3, 6), (30, 2)]:
        events = await pop(log, batch=batch, partitions=partitions)
        assert 0 < len(events) <= batch
        assert len({event.partition_id for event in events}) <= partitions
        await log.ack(events, "retry")


async def test_concurrent_pops_share_the_partitions(log: Log) -> None:
    await log.configure(QUEUE)
    for i in range(20):
        await push(log, [i], key=f"key {i}")
    shares = await asyncio.gather(*(pop(log, batch=2, partitions=2) for _ in range(10)))
    assert [len(share) for share in shares] == [2] * 10
    assert sorted(data(chain(*shares))) == list(range(20))


async def test_a_partition_with_new_events_is_leased_at_once(log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, range(10), key="ada")
    await push(log, ["gone"], key="bob")
    for _ in range(6):  # the partition of bob is drained meanwhile
        await log.ack(await pop(log, batch=1, partitions=1))
    await push(log, ["back"], key="bob")
    events = [await pop(log, batch=1, partitions=1) for _ in range(2)]
    assert "back" in data(chain.from_iterable(events))


async def test_new_partitions_are_not_skipped_for_long(log: Log) -> None:
    await log.configure(QUEUE)
    for key in ("ada", "bob"):
        await push(log, range(100), key=key)
    await push(log, ["gone"], key="cyd")

    async def turn() -> list[Any]:
        popped = await asyncio.gather(*(pop(log, batch=1, partitions=1) for _ in range(2)))
        events = list(chain.from_iterable(popped))
        await log.ack(events)
        return data(events)

    for _ in range(10):
        await turn()
    await push(log, ["back"], key="cyd")
    assert "back" in [each for _ in range(12) for each in await turn()]


async def test_every_partition_is_leased_in_turn(log: Log) -> None:
    await log.configure(QUEUE)
    for i in range(10):
        for n in range(10):
            await push(log, [n], key=f"key {i}")
    served: Counter[str | None] = Counter()
    for _ in range(30):
        events = await pop(log, batch=1)
        served.update(event.key for event in events)
        await log.ack(events)
    assert set(served.values()) == {3}

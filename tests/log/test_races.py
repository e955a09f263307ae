"""Races: each operation is stopped at its critical point by a lock that the test holds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar

import pytest

from penstock.core.clock import Clock
from penstock.core.errors import NotFound
from penstock.log.dead_letters.dead_letter import DeadLetterFilter
from penstock.log.log import Log
from tests.conditions import eventually_async
from tests.log.logs import GROUP, PATIENCE, QUEUE, ask, by_key, data, drain, held, lag, letters, pop, push, waiting

_T = TypeVar("_T")

LOCK_QUEUE = "SELECT FROM penstock.queues FOR UPDATE"
LOCK_LANES = "SELECT FROM penstock.partitions FOR NO KEY UPDATE"


@pytest.mark.parametrize("status", ["dead_letter", "failed"])
async def test_an_ack_is_not_lost_when_two_others_overtake_it(
    log: Log, other_log: Log, database_url: str, status: str
) -> None:
    await log.configure(QUEUE, {"retry_limit": 0})
    await push(log, range(6))
    events = await pop(log)
    async with held(database_url, LOCK_QUEUE):
        # A dead letter references its queue, so this ack waits in the middle of its transaction.
        slow = asyncio.create_task(log.ack(events[4:5], status))
        await waiting(database_url)
        # These acks do not wait.
        assert all(await other_log.ack(events[0:1]))
        assert all(await other_log.ack(events[1:2]))
    (result,) = await slow
    assert result.dead_letter
    assert [letter.data for letter in await letters(log)] == [4]
    await log.ack(events[2:3], "retry")
    assert data(await drain(log)) == [2, 3, 5]


async def test_a_failure_is_not_lost_among_acks_of_the_same_lease(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE, {"retry_limit": 0})
    for round_ in range(10):
        await push(log, range(20), key="ada")
        events = await pop(log)
        assert len(events) == 20
        results = await asyncio.gather(
            *(
                (log if event.data % 2 else other_log).ack([event], "dead_letter" if event.data % 5 == 3 else True)
                for event in events
            )
        )
        # Each event is either a dead letter or completed by a later ack.
        dead = {event.data for event, (result,) in zip(events, results, strict=True) if result.dead_letter}
        left = await drain(log)
        found = [letter.data for letter in await letters(log)]
        assert sorted(found) == sorted(dead), f"round {round_}"
        assert not dead & set(data(left))
        await log.purge(DeadLetterFilter(queue=QUEUE))
        assert await lag(log) == 0


MANY_LANES = """
WITH made AS (
    INSERT INTO penstock.partitions (queue_id, epoch, name)
    SELECT {queue}, 0, 'idle ' || n FROM generate_series(1, 40000) n
    RETURNING id
), pointed AS (
    INSERT INTO penstock.cursors (group_id, partition_id) SELECT {group}, id FROM made RETURNING partition_id
)
INSERT INTO penstock.positions (group_id, partition_id, version, next_offset, lease_end, available_at)
SELECT {group}, partition_id, 0, 0, 0, 'epoch' FROM pointed
"""


async def test_a_slow_pop_delivers_nothing_completed_meanwhile(log: Log, other_log: Log, database_url: str) -> None:
    queue = await log.configure(QUEUE)
    await log.subscribe(QUEUE, GROUP)
    group = ask(database_url, "SELECT id FROM penstock.groups")
    async with held(database_url, MANY_LANES.format(queue=queue.id, group=group)) as conn:
        await conn.commit()
    running = (
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' "
        "AND query LIKE '%penstock.cursors c%' AND pid <> pg_backend_pid()"
    )

    async def walks() -> object:
        return slow.done() or await asyncio.to_thread(ask, database_url, running)

    for i in range(3):
        # The partition with the event comes after all the idle ones.
        await push(log, [i], key="zoe")
        slow = asyncio.create_task(pop(log, batch=10))
        await eventually_async(walks)
        quick = await pop(other_log, partition="zoe")
        if quick:
            assert all(await other_log.ack(quick))
            assert data(await slow) == [], "delivered after another consumer had completed it"
        else:
            assert all(await log.ack(await slow))
    assert await lag(log) == 0


async def test_a_seek_during_parking_is_not_lost(log: Log, other_log: Log, database_url: str, clock: Clock) -> None:
    await log.configure(QUEUE)
    await push(log, range(3), key="ada")
    await drain(log)
    clock.advance(60)
    version = "SELECT group_id, partition_id, max(version) + 1, 0, 0, 'epoch' FROM penstock.positions GROUP BY 1, 2"
    # The seek holds the cursors and waits for this lock. Parking waits for the cursors.
    statement = (
        "INSERT INTO penstock.positions (group_id, partition_id, version, next_offset, lease_end, available_at) "
        + version
    )
    async with held(database_url, statement):
        seek = asyncio.create_task(log.seek(QUEUE, GROUP, "beginning"))
        await waiting(database_url)
        upkeep = asyncio.create_task(other_log.upkeep())
        await asyncio.wait([upkeep], timeout=0.5)
    await asyncio.gather(seek, upkeep)
    assert data(await drain(log)) == [0, 1, 2]


async def test_a_partition_created_during_an_epoch_change_is_read(log: Log, other_log: Log, database_url: str) -> None:
    await log.configure(QUEUE, partitioning="hash", partitions=2)
    await push(log, ["old"], key="ada")
    await drain(log)
    await log.repartition(QUEUE, "key")
    await push(log, ["new"], key="ada")
    held_back = "SELECT FROM penstock.cursors WHERE state = 2 FOR NO KEY UPDATE"
    async with held(database_url, held_back):
        # The epoch change waits for the cursors, and the new partition waits for the group.
        going = asyncio.create_task(drain(log))
        await waiting(database_url)
        pushed = asyncio.create_task(push(other_log, ["newer"], key="bob"))
        await asyncio.wait([pushed], timeout=0.5)
    await pushed
    assert sorted(data(await going + await drain(log))) == ["new", "newer"]


async def test_deleting_a_queue_and_pushing_to_it_do_not_deadlock(log: Log, other_log: Log, database_url: str) -> None:
    await log.configure(QUEUE)
    await push(log, [1], key="ada")
    async with held(database_url, LOCK_LANES):
        pushed = asyncio.create_task(push(log, [2], key="ada"))
        await waiting(database_url)
        deleted = asyncio.create_task(other_log.delete_queue(QUEUE))
        await waiting(database_url, 2)
    assert await patiently(deleted) is True
    # It was first, so it may have been stored before the queue was deleted.
    with suppress(NotFound):
        await patiently(pushed)
    with pytest.raises(NotFound):
        await push(log, [3], key="ada")


async def test_a_seek_and_a_dead_letter_do_not_deadlock(log: Log, other_log: Log, database_url: str) -> None:
    await log.configure(QUEUE)
    await push(log, range(3))
    events = await pop(log)
    async with held(database_url, "SELECT FROM penstock.cursors FOR NO KEY UPDATE"):
        buried = asyncio.create_task(log.ack(events[:1], "dead_letter"))
        await waiting(database_url)
        moved = asyncio.create_task(other_log.seek(QUEUE, GROUP, "beginning"))
        await waiting(database_url, 2)
    assert await patiently(moved) == 1
    await patiently(buried)
    assert data(await drain(log))[-2:] == [1, 2]


async def test_pushes_to_the_same_partitions_never_deadlock(log: Log, other_log: Log, database_url: str) -> None:
    await log.configure(QUEUE)
    await log.configure("second", partitioning="hash", partitions=4)
    keys = [f"key {i}" for i in range(6)]
    before = ask(database_url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")

    async def produce(mine: Log, turn: int) -> None:
        for i in range(20):
            order = keys[turn:] + keys[:turn]
            batches = [(QUEUE, order), ("second", order[::-1])]
            for queue, names in batches if i % 2 else batches[::-1]:
                for name in names:
                    await push(mine, [(turn, i)], key=name, queue=queue)

    await asyncio.gather(*(produce(log if turn % 2 else other_log, turn) for turn in range(4)))
    for queue in (QUEUE, "second"):
        for numbers in by_key(await drain(log, queue)).values():
            for turn in range(4):
                assert [i for t, i in numbers if t == turn] == list(range(20))
    assert ask(database_url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == before


async def test_upkeep_does_not_wait_for_readers(log: Log, database_url: str, clock: Clock) -> None:
    queue = await log.configure(QUEUE, {"retention_seconds": 60, "dedup_window_seconds": 0})
    await push(log, range(3))
    await drain(log)
    await log.segments.roll(queue)
    clock.advance(100)
    async with held(database_url, f"SELECT FROM penstock.chunks_{queue.id}_1"):
        assert (await patiently(asyncio.create_task(log.upkeep()))).dropped == 0
        await push(log, [3])
        assert data(await drain(log)) == [3]
    assert (await log.upkeep()).dropped == 1


async def test_a_long_transaction_blocks_nothing(log: Log, database_url: str) -> None:
    queue = await log.configure(QUEUE)
    await push(log, [0])
    snapshot = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM penstock.positions"
    async with held(database_url, snapshot):
        for i in range(1, 30):
            assert len(await drain(log)) == 1
            await push(log, [i])
        await log.segments.roll(queue)
        await log.repartition(QUEUE, "hash", 2)
        await push(log, [30])
        assert data(await drain(log)) == [29, 30]


async def patiently(what: Awaitable[_T]) -> _T:
    async with asyncio.timeout(PATIENCE):
        return await what

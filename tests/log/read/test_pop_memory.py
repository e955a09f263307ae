"""Pops with limited memory: they return fewer events, and nothing is lost or out of order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator

import pytest

from penstock.log.dead_letters.dead_letter import DeadLetterFilter
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.log.read.pop_request import PopRequest
from penstock.log.read.round_robin import ALL_PARTITIONS, MAX_PARTITION_ID, PartitionSpan, RoundRobin
from penstock.server.http.errors import Problem
from penstock.server.http.memory_budget import MemoryBudget
from tests.log.logs import GROUP, QUEUE, data, drain, opened, pop, push

PARTITIONS = ("ada", "bob", "cyd")


#: The byte limit of a pop.
FEW_BYTES = 20_000


async def fill(log: Log, pushes: int) -> dict[str, list[int]]:
    """Push chunks of one and of several events, small and large, to three partitions."""
    await log.configure(QUEUE, {"retry_delay_ms": 0})
    pushed: dict[str, list[int]] = defaultdict(list)
    number = 0
    for i in range(pushes):
        partition = PARTITIONS[i % 3]
        numbers = list(range(number, number + (1, 1, 7)[i // 3 % 3]))
        number += len(numbers)
        await push(log, [[n, "x" * (10, 3000)[n % 2]] for n in numbers], key=partition)
        pushed[partition] += numbers
    return pushed


@pytest.mark.parametrize("batch", [5, 1000])
@pytest.mark.parametrize("partitions", [1, 3])
async def test_limited_pops_deliver_everything_once_and_in_order(log: Log, partitions: int, batch: int) -> None:
    pushed = await fill(log, 60)
    popped: dict[str, list[int]] = defaultdict(list)
    pops = 0
    while events := await pop(log, batch=batch, partitions=partitions, max_bytes=FEW_BYTES):
        # The limit counts the decompressed size.
        assert sum(len(event.raw) for event in events) <= FEW_BYTES
        for event in events:
            popped[event.partition].append(event.data[0])
        assert all(await log.ack(events))
        pops += 1
    assert popped == pushed
    assert pops > 1


async def test_events_beyond_the_byte_limit_are_released_and_come_next(log: Log) -> None:
    await log.configure(QUEUE)
    for n in range(3):
        for key in PARTITIONS:
            await push(log, [[n, "x" * 3000]], key=key)
    served: list[str] = []
    for _ in range(2):
        # An event above the limit is delivered alone.
        for _ in PARTITIONS:
            (event,) = await pop(log, partitions=3, max_bytes=1)
            served.append(event.partition)
            assert all(await log.ack([event]))
    assert sorted(served[:3]) == sorted(served[3:]) == sorted(PARTITIONS)
    (mine,) = await pop(log, partitions=3, max_bytes=1)
    others = await pop(log, partitions=3)
    assert sorted([mine.partition, *(event.partition for event in others)]) == sorted(PARTITIONS)


def test_round_robin_restarts_at_the_first_released_partition() -> None:
    round_robin = RoundRobin()
    round_robin.record(PartitionSpan(0, 1 << 40), 7)
    round_robin.record(PartitionSpan(7, MAX_PARTITION_ID), None)
    # No partition after it was readable, so several pops together start at the beginning.
    assert round_robin.spans(waiting=2) == [ALL_PARTITIONS]
    round_robin.start_at(8)
    assert round_robin.spans(waiting=2)[0] == PartitionSpan(7, MAX_PARTITION_ID)


async def test_cached_chunks_count_towards_the_byte_limit(log: Log) -> None:
    await log.configure(QUEUE)
    for key in PARTITIONS:
        await push(log, [[n, "x" * 3000] for n in range(4)], key=key)
        # All three chunks are in the cache now.
        assert all(await log.ack(await pop(log, batch=1, partition=key)))
    popped: dict[str, list[int]] = defaultdict(list)
    while events := await pop(log, partitions=3, max_bytes=10_000):
        assert len(events) == 3
        for event in events:
            popped[event.partition].append(event.data[0])
        assert all(await log.ack(events))
    assert popped == {key: [1, 2, 3] for key in PARTITIONS}


async def test_events_for_another_group_are_skipped_under_a_byte_limit(log: Log) -> None:
    pushed = await fill(log, 30)
    failed = await pop(log, group="other", batch=1000, partitions=3, max_bytes=FEW_BYTES)
    while failed:
        await log.ack(failed, "dead_letter")
        failed = await pop(log, group="other", batch=1000, partitions=3, max_bytes=FEW_BYTES)
    # Redriven one at a time, they are many chunks that only the other group reads.
    for letter in reversed(await log.dead_letters(DeadLetterFilter(queue=QUEUE), limit=1000)):
        await log.redrive(DeadLetterFilter(ids=[letter.id]))
    for key in PARTITIONS:
        await push(log, [[key, ""]], key=key)
    popped: dict[str, list[object]] = defaultdict(list)
    for event in await drain(log, group=GROUP, batch=1000, partitions=3, max_bytes=FEW_BYTES):
        popped[event.partition].append(event.data[0])
    assert popped == {key: [*pushed[key], key] for key in PARTITIONS}


class Full:
    """A reservation that has to wait for memory, while another consumer pops."""

    def __init__(self, log: Log) -> None:
        self.popped: list[Event] = []
        self.held = 0
        self._log = log

    async def acquire(self, size: int) -> None:
        self.popped += await pop(self._log)
        self.held = size

    def grow_to(self, size: int, least: int) -> int:
        return self.held

    def resize(self, size: int) -> None:
        self.held = size


async def test_a_pop_that_waits_for_memory_holds_no_lease(log: Log) -> None:
    await log.configure(QUEUE, {"expiry_limit": 1})
    for partition in PARTITIONS:
        await push(log, [partition], key=partition)
    hand = Full(log)
    assert await log.pop(PopRequest(QUEUE, GROUP, batch=10, partitions=10), hand) == []
    assert sorted(data(hand.popped)) == sorted(PARTITIONS)
    assert all(event.attempts == 0 for event in hand.popped)
    assert hand.held == 0


@pytest.fixture
async def frugal_log(database_url: str) -> AsyncIterator[Log]:
    async with opened(database_url, min_pop_bytes=8_000) as log:
        yield log


async def test_a_pop_takes_the_free_memory_and_waits_for_large_events(frugal_log: Log) -> None:
    log = frugal_log
    await log.configure(QUEUE)
    for n in range(6):
        await push(log, [[n, "x" * 3_000]], key="ada")
    await push(log, [[6, "x" * 20_000]], key="ada")
    shared = MemoryBudget(40_000, "answers", 8_000, wait_seconds=0.01)
    asked = PopRequest(QUEUE, GROUP, batch=100, max_bytes=30_000)
    with shared.reserve() as others:
        assert others.grow_to(1 << 20) == 30_000
        numbers: list[int] = []
        for _ in range(3):
            with shared.reserve() as mine:
                events = await log.pop(asked, mine)
                assert shared.used == 30_000 + sum(len(event.raw) for event in events) <= 38_000
                numbers += [event.data[0] for event in events]
                assert all(await log.ack(events))
        assert numbers == [0, 1, 2, 3, 4, 5]
        with shared.reserve() as mine, pytest.raises(Problem, match="answers"):
            await log.pop(asked, mine)
    # The event is not leased, and is delivered when there is memory.
    with shared.reserve() as mine:
        (event,) = await log.pop(asked, mine)
        assert (event.data[0], event.attempts) == (6, 0)
        assert shared.used == len(event.raw)
    assert shared.used == 0

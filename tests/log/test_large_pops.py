"""Pops of more than a process likes to hold: they bring less, and nothing is lost or out of order."""

from __future__ import annotations

from collections import defaultdict

import pytest

from penstock.log.dead import Filter
from penstock.log.log import Log
from tests.log.logs import GROUP, QUEUE, drain, pop, push

LANES = ("ada", "bob", "cyd")


#: What a pop may bring, here.
FEW_BYTES = 20_000


async def fill(log: Log, pushes: int) -> dict[str, list[int]]:
    """Chunks of one event and of several, small and large, in three lanes."""
    await log.configure(QUEUE, {"retry_delay_ms": 0})
    pushed: dict[str, list[int]] = defaultdict(list)
    number = 0
    for i in range(pushes):
        lane = LANES[i % 3]
        numbers = list(range(number, number + (1, 1, 7)[i // 3 % 3]))
        number += len(numbers)
        await push(log, [[n, "x" * (10, 3000)[n % 2]] for n in numbers], key=lane)
        pushed[lane] += numbers
    return pushed


@pytest.mark.parametrize("batch", [5, 1000])
@pytest.mark.parametrize("partitions", [1, 3])
async def test_everything_comes_once_and_in_order_a_part_at_a_time(log: Log, partitions: int, batch: int) -> None:
    pushed = await fill(log, 60)
    popped: dict[str, list[int]] = defaultdict(list)
    pops = 0
    while events := await pop(log, batch=batch, partitions=partitions, max_bytes=FEW_BYTES):
        # However well it compresses: what counts is what has to be held.
        assert sum(len(event.raw) for event in events) <= FEW_BYTES
        for event in events:
            popped[event.partition].append(event.data[0])
        assert all(await log.ack(events))
        pops += 1
    assert popped == pushed
    assert pops > 1


async def test_what_there_is_no_room_for_is_nobodys_and_comes_next(log: Log) -> None:
    await log.configure(QUEUE)
    for n in range(3):
        for lane in LANES:
            await push(log, [[n, "x" * 3000]], key=lane)
    served: list[str] = []
    for _ in range(2):
        # An event that is larger than all that may be brought comes alone.
        for _ in LANES:
            (event,) = await pop(log, partitions=3, max_bytes=1)
            served.append(event.partition)
            assert all(await log.ack([event]))
    assert sorted(served[:3]) == sorted(served[3:]) == sorted(LANES)
    (mine,) = await pop(log, partitions=3, max_bytes=1)
    others = await pop(log, partitions=3)
    assert sorted([mine.partition, *(event.partition for event in others)]) == sorted(LANES)


async def test_chunks_that_were_read_before_count_as_well(log: Log) -> None:
    await log.configure(QUEUE)
    for lane in LANES:
        await push(log, [[n, "x" * 3000] for n in range(4)], key=lane)
        # All three chunks are known then.
        assert all(await log.ack(await pop(log, batch=1, partition=lane)))
    popped: dict[str, list[int]] = defaultdict(list)
    while events := await pop(log, partitions=3, max_bytes=10_000):
        assert len(events) == 3
        for event in events:
            popped[event.partition].append(event.data[0])
        assert all(await log.ack(events))
    assert popped == {lane: [1, 2, 3] for lane in LANES}


async def test_what_is_not_for_the_group_is_passed_over_and_nothing_behind_it(log: Log) -> None:
    pushed = await fill(log, 30)
    failed = await pop(log, group="other", batch=1000, partitions=3, max_bytes=FEW_BYTES)
    while failed:
        await log.ack(failed, "dead_letter")
        failed = await pop(log, group="other", batch=1000, partitions=3, max_bytes=FEW_BYTES)
    # Sent back one at a time, they are a long run of chunks that only the other group reads.
    for letter in reversed(await log.dead_letters(Filter(queue=QUEUE), limit=1000)):
        await log.redrive(Filter(ids=[letter.id]))
    for lane in LANES:
        await push(log, [[lane, ""]], key=lane)
    popped: dict[str, list[object]] = defaultdict(list)
    for event in await drain(log, group=GROUP, batch=1000, partitions=3, max_bytes=FEW_BYTES):
        popped[event.partition].append(event.data[0])
    assert popped == {lane: [*pushed[lane], lane] for lane in LANES}

"""Pops of more than a process likes to hold: they bring less, and nothing is lost or out of order."""

from __future__ import annotations

from collections import defaultdict

import pytest

from penstock.log import reader
from penstock.log.dead import Filter
from penstock.log.log import Log
from tests.log.logs import GROUP, QUEUE, drain, pop, push

LANES = ("ada", "bob", "cyd")


@pytest.fixture
def small_hands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_FEW_EVENTS", 8)
    monkeypatch.setattr(reader, "_FIRST_CHUNKS", 6)
    monkeypatch.setattr(reader, "_MOST_BYTES", 20_000)


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


@pytest.mark.usefixtures("small_hands")
@pytest.mark.parametrize("partitions", [1, 3])
async def test_everything_comes_once_and_in_order_a_part_at_a_time(log: Log, partitions: int) -> None:
    pushed = await fill(log, 60)
    first = await pop(log, batch=1000, partitions=partitions)
    # Six chunks in all, or two of each lane, and not much more than may be held.
    assert 0 < sum(len(event.raw) for event in first) < 60_000
    assert all(await log.ack(first))
    popped: dict[str, list[int]] = defaultdict(list)
    for event in [*first, *await drain(log, batch=1000, partitions=partitions)]:
        popped[event.partition].append(event.data[0])
    assert popped == pushed


@pytest.mark.usefixtures("small_hands")
async def test_what_is_not_for_the_group_is_passed_over_and_nothing_behind_it(log: Log) -> None:
    pushed = await fill(log, 30)
    failed = await pop(log, group="other", batch=1000, partitions=3)
    while failed:
        await log.ack(failed, "dead_letter")
        failed = await pop(log, group="other", batch=1000, partitions=3)
    # Sent back one at a time, they are a long run of chunks that only the other group reads.
    for letter in reversed(await log.dead_letters(Filter(queue=QUEUE), limit=1000)):
        await log.redrive(Filter(ids=[letter.id]))
    for lane in LANES:
        await push(log, [[lane, ""]], key=lane)
    popped: dict[str, list[object]] = defaultdict(list)
    for event in await drain(log, group=GROUP, batch=1000, partitions=3):
        popped[event.partition].append(event.data[0])
    assert popped == {lane: [*pushed[lane], lane] for lane in LANES}

"""Pops of more than a process likes to hold: they bring less, and nothing is lost or out of order."""

from __future__ import annotations

from collections import defaultdict

import pytest

from penstock.log.dead_letters import Filter
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.log.read import pop as popping
from penstock.log.read.lease import _FURTHEST, PopRequest, _Turn
from penstock.server.http.errors import Problem
from penstock.server.ingest import memory_budget
from penstock.server.ingest.memory_budget import Budget
from tests.log.logs import GROUP, QUEUE, data, drain, pop, push

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


def test_the_next_turn_begins_with_what_there_was_no_room_for() -> None:
    turn = _Turn()
    turn.looked(0, 1 << 40, 7)
    turn.looked(7, _FURTHEST, None)
    # Nothing was behind it, so several who ask begin anew.
    assert turn.spans(asking=2) == [(0, _FURTHEST)]
    turn.begin_with(8)
    assert turn.spans(asking=2)[0] == (7, _FURTHEST)


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


class Full:
    """A hand that has to wait for room, while somebody else pops."""

    def __init__(self, log: Log) -> None:
        self.popped: list[Event] = []
        self.held = 0
        self._log = log

    async def reach(self, size: int) -> None:
        self.popped += await pop(self._log)
        self.held = size

    def stretch(self, size: int, least: int) -> int:
        return self.held

    def keep(self, size: int) -> None:
        self.held = size


async def test_who_waits_for_room_has_nothing_leased_meanwhile(log: Log) -> None:
    await log.configure(QUEUE, {"expiry_limit": 1})
    for lane in LANES:
        await push(log, [lane], key=lane)
    hand = Full(log)
    assert await log.pop(PopRequest(QUEUE, GROUP, batch=10, partitions=10), hand) == []
    assert sorted(data(hand.popped)) == sorted(LANES)
    assert all(event.attempts == 0 for event in hand.popped)
    assert hand.held == 0


async def test_where_others_hold_much_a_pop_brings_little_and_what_is_large_waits(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(popping, "FIRST_BYTES", 8_000)
    monkeypatch.setattr(memory_budget, "_PATIENCE_SECONDS", 0.01)
    await log.configure(QUEUE)
    for n in range(6):
        await push(log, [[n, "x" * 3_000]], key="ada")
    await push(log, [[6, "x" * 20_000]], key="ada")
    shared = Budget(40_000, "answers", 8_000)
    asked = PopRequest(QUEUE, GROUP, batch=100, max_bytes=30_000)
    with shared.hold() as others:
        assert others.stretch(1 << 20) == 30_000
        numbers: list[int] = []
        for _ in range(3):
            with shared.hold() as mine:
                events = await log.pop(asked, mine)
                assert shared.held == 30_000 + sum(len(event.raw) for event in events) <= 38_000
                numbers += [event.data[0] for event in events]
                assert all(await log.ack(events))
        assert numbers == [0, 1, 2, 3, 4, 5]
        with shared.hold() as mine, pytest.raises(Problem, match="answers"):
            await log.pop(asked, mine)
    # It is nobody's, and comes as soon as there is room.
    with shared.hold() as mine:
        (event,) = await log.pop(asked, mine)
        assert (event.data[0], event.attempts) == (6, 0)
        assert shared.held == len(event.raw)
    assert shared.held == 0

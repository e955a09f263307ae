"""Repartitioning a queue."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from penstock.core.clock import Clock
from penstock.log.dead_letters.dead_letter import DeadLetterFilter
from penstock.log.log import Log
from tests.conditions import eventually_async
from tests.log.logs import QUEUE, by_key, data, drain, letters, pop, push


@pytest.mark.parametrize(
    ("before", "after"),
    [(("key", None), ("hash", 3)), (("hash", 3), ("key", None)), (("hash", 2), ("hash", 5))],
    ids=["key to hash", "hash to key", "hash to hash"],
)
async def test_repartitioning_during_pushes_keeps_order_and_positions(
    log: Log, other_log: Log, before: tuple[str, int | None], after: tuple[str, int | None]
) -> None:
    await log.configure(QUEUE, partitioning=before[0], partitions=before[1])
    keys = [f"key {i}" for i in range(6)]
    for i in range(5):
        for key in keys:
            await push(log, [i], key=key)
    await log.subscribe(QUEUE, "ahead", "end")
    behind = await pop(log, group="behind", batch=7)
    assert all(await log.ack(behind))
    stop = asyncio.Event()
    last = dict.fromkeys(keys, 4)

    async def produce(mine: Log, some: Sequence[str]) -> None:
        while not stop.is_set():
            for key in some:
                last[key] += 1
                await push(mine, [last[key]], key=key)

    producing = [asyncio.create_task(produce(log, keys[:3])), asyncio.create_task(produce(other_log, keys[3:]))]

    async def some_were_pushed() -> object:
        return sum(last.values()) > pushed + 20

    for _ in range(3):
        pushed = sum(last.values())
        await eventually_async(some_were_pushed)
        await other_log.repartition(QUEUE, *after)
        await log.repartition(QUEUE, *before)
    stop.set()
    await asyncio.gather(*producing)
    expected = {key: list(range(last[key] + 1)) for key in keys}
    assert by_key(await drain(log, group="from the start")) == expected
    rest = by_key(await drain(other_log, group="behind"))
    done = by_key(behind)
    assert {key: done.get(key, []) + rest.get(key, []) for key in keys} == expected
    assert by_key(await drain(log, group="ahead")) == {key: numbers[5:] for key, numbers in expected.items()}


async def test_new_partitions_are_read_after_the_old_ones(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"lease_seconds": 60})
    await push(log, ["old"], key="ada")
    await push(log, ["older"], key="bob")
    await log.repartition(QUEUE, "hash", 1)
    await push(log, ["new"], key="ada")
    await log.ack(await pop(log, partition="bob"))
    first = await pop(log)
    assert data(first) == ["old"]
    assert await pop(log) == []
    clock.advance(61)
    assert data(await pop(log)) == ["old"]
    clock.advance(61)
    assert data(await drain(log)) == ["old", "new"]


@pytest.mark.parametrize(
    ("before", "after"),
    [(("key", None), ("hash", 2)), (("hash", 2), ("key", None))],
    ids=["key to hash", "hash to key"],
)
async def test_events_keep_their_keys_when_the_queue_is_repartitioned(
    log: Log, before: tuple[str, int | None], after: tuple[str, int | None]
) -> None:
    await log.configure(QUEUE, {"retry_limit": 0}, partitioning=before[0], partitions=before[1])
    for key in ("ada", "bob"):
        await push(log, [key], key=key)
    await log.repartition(QUEUE, *after)
    events = await pop(log)
    assert {event.data: event.key for event in events} == {"ada": "ada", "bob": "bob"}
    assert {event.data: event.key for event in await log.browse(QUEUE)} == {"ada": "ada", "bob": "bob"}
    await log.ack(events, False)
    assert sorted(letter.key or "" for letter in await letters(log)) == ["ada", "bob"]
    await log.redrive(DeadLetterFilter(queue=QUEUE))
    assert by_key(await drain(log)) == {"ada": ["ada"], "bob": ["bob"]}


async def test_another_process_sees_the_new_partitions(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, ["old"], key="ada")
    assert data(await drain(other_log)) == ["old"]
    await log.repartition(QUEUE, "hash", 2)
    await push(log, ["new"], key="ada")
    assert data(await pop(other_log)) == ["new"]


async def test_repartitioning_to_the_same_layout_changes_nothing(log: Log) -> None:
    queue = await log.configure(QUEUE, partitioning="hash", partitions=2)
    assert (await log.repartition(QUEUE, "hash", 2)).epoch == queue.epoch

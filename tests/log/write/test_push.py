"""Pushes: results, atomicity, and group commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.core.errors import IdempotencyConflict, InvalidEvent, NotFound
from penstock.log.log import Log
from penstock.log.queue import Queue
from penstock.log.write.encode.batch import Batch
from penstock.log.write.push_result import PushResult
from tests.log.logs import QUEUE, ask, by_key, data, drain, opened, push


async def test_a_push_returns_the_offset_of_each_event(log: Log) -> None:
    await log.configure(QUEUE)
    keys = ["ada", "bob", "ada", "cyd", "bob", "ada"]
    (result,) = await log.push([Batch(QUEUE, [{"data": i, "key": key} for i, key in enumerate(keys)])])
    assert [pushed.index for pushed in result] == list(range(6))
    assert [pushed.partition for pushed in result] == keys
    assert [pushed.offset for pushed in result] == [keys[:i].count(key) for i, key in enumerate(keys)]
    assert (result.accepted, result.duplicates, len(result)) == (6, 0, 6)
    for pushed in result:
        (event,) = await log.fetch(QUEUE, pushed.partition, pushed.offset, 1)
        assert event.data == pushed.index


async def test_large_and_small_pushes_leave_no_gap_in_a_partition(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    sizes = [1, 5000, 3, 1, 2500, 7]
    results = await asyncio.gather(
        *(push(log if i % 2 else other_log, [(i, n) for n in range(size)], key="ada") for i, size in enumerate(sizes))
    )
    offsets = sorted(pushed.offset for result in results for pushed in result)
    assert offsets == list(range(sum(sizes)))
    stored = [tuple(event.data) for event in await drain(log)]
    for i, (size, result) in enumerate(zip(sizes, results, strict=True)):
        assert [stored[pushed.offset] for pushed in result] == [(i, n) for n in range(size)]


async def test_an_empty_push_stores_nothing(log: Log) -> None:
    await log.configure(QUEUE)
    nothing: list[Sequence[Any] | bytes] = [[], b"", b"\n \r\n"]
    for events in nothing:
        (result,) = await log.push([Batch(QUEUE, events)])
        assert len(result) == 0
    assert await log.push([]) == []
    assert (await log.describe(QUEUE)).size.appended == 0


async def test_a_push_to_several_queues_is_atomic(log: Log) -> None:
    names = ["a", "b", "c"]
    for name in names:
        await log.configure(name)
    results = await log.push([Batch(name, [{"data": name}] * 3, key="k") for name in names])
    assert [[pushed.queue for pushed in result] for result in results] == [[name] * 3 for name in names]
    for name in names:
        assert data(await drain(log, name)) == [name] * 3


async def test_an_invalid_event_fails_its_whole_push(log: Log) -> None:
    await log.configure("a")
    await log.configure("b")
    with pytest.raises(InvalidEvent) as refusal:
        await log.push([Batch("a", [{"data": 1}]), Batch("b", [{"data": 1}, {"data": float("nan")}])])
    assert (refusal.value.index, refusal.value.field) == (1, "data")
    for name in ("a", "b"):
        assert (await log.describe(name)).size.appended == 0


async def test_a_missing_queue_fails_the_whole_push(log: Log, other_log: Log) -> None:
    await log.configure("a")
    await log.configure("b")
    for i in range(2):
        await log.push([Batch(name, [{"data": i}], key="k") for name in ("a", "b")])
    await other_log.delete_queue("b")
    for key in ("k", "another"):
        with pytest.raises(NotFound, match="b"):
            await log.push([Batch(name, [{"data": 2}], key=key) for name in ("a", "b")])
    assert data(await drain(log, "a")) == [0, 1]


async def test_readers_never_see_half_a_push(log: Log, other_log: Log) -> None:
    await log.configure("a")
    await log.configure("b")

    async def produce() -> None:
        for i in range(40):
            await log.push([Batch(name, [{"data": i}], key="k") for name in ("a", "b")])

    producing = asyncio.create_task(produce())
    seen = 0
    while not producing.done() or seen < 40:
        # The second queue is read after the first, so it has at least as many events.
        first = (await other_log.describe("a")).size.appended
        seen = (await other_log.describe("b")).size.appended
        assert seen >= first
    await producing


def flushes_and_chunks(url: str, queue: Queue) -> tuple[int, int]:
    table = f"penstock.chunks_{queue.id}_{queue.segment}"
    flushes, chunks = ask(url, f"SELECT ARRAY[count(DISTINCT flush_id), count(*)] FROM {table}")  # noqa: S608
    return flushes, chunks


async def test_concurrent_pushes_share_connections_and_commits(database_url: str) -> None:
    watch = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    async with opened(database_url, pool_size=4) as log:
        queue = await log.configure(QUEUE, partitioning="hash", partitions=2)
        most = 0

        async def produce(task: int) -> None:
            nonlocal most
            for i in range(20):
                await push(log, [(task, i)], key=f"key {task % 5}")
                if task == 0:
                    most = max(most, await asyncio.to_thread(ask, database_url, watch))

        await asyncio.gather(*(produce(task) for task in range(50)))
        # The pool, and one listening connection.
        assert most <= 5
        flushes, chunks = flushes_and_chunks(database_url, queue)
        assert flushes < 500
        assert chunks < 1000
        events = await drain(log)
        assert sorted(tuple(event.data) for event in events) == [(t, i) for t in range(50) for i in range(20)]
        for numbers in by_key(events).values():
            for task in range(50):
                mine = [i for t, i in numbers if t == task]
                assert mine == sorted(mine)


async def test_a_single_push_does_not_wait(log: Log, database_url: str) -> None:
    queue = await log.configure(QUEUE)
    for i in range(3):
        await push(log, [i])
    assert flushes_and_chunks(database_url, queue) == (3, 3)


async def test_a_refused_push_does_not_fail_concurrent_ones(log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, ["first"], idempotency_key="taken")
    outcomes = await asyncio.gather(
        *(push(log, [i], idempotency_key="taken" if i == 5 else None) for i in range(10)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [PushResult] * 5 + [IdempotencyConflict] + [PushResult] * 4
    assert sorted(map(str, data(await drain(log)))) == sorted(["first", *"012346789"])

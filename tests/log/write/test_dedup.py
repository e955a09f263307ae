"""Deduplication by id."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from penstock.core.clock import Clock
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from penstock.log.write.push_result import Pushed, PushResult
from tests.log.logs import QUEUE, data, drain, push

Answer = list[tuple[str, int, str | None, bool]]


def answer(result: PushResult) -> Answer:
    return [(pushed.partition, pushed.offset, pushed.id, pushed.duplicate) for pushed in result]


async def test_an_id_is_stored_once_within_the_window(log: Log, other_log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"dedup_window_seconds": 60})
    assert answer(await push(log, ["a", "b"], key="k", ids=["1", "2"])) == [("k", 0, "1", False), ("k", 1, "2", False)]
    clock.advance(50)
    again = await push(other_log, ["c", "b", "a"], key="k", ids=["3", "2", "1"])
    assert answer(again) == [("k", 2, "3", False), ("k", 1, "2", True), ("k", 0, "1", True)]
    assert (again.accepted, again.duplicates) == (1, 2)
    clock.advance(20)
    assert answer(await push(log, ["a", "c"], key="k", ids=["1", "3"])) == [("k", 3, "1", False), ("k", 2, "3", True)]
    assert data(await drain(log)) == ["a", "b", "c", "a"]


async def test_an_id_is_stored_once_within_a_push(log: Log) -> None:
    await log.configure(QUEUE)
    result = await push(log, range(5), key="k", ids=["1", "2", "1", None, "2"])
    assert answer(result) == [
        ("k", 0, "1", False),
        ("k", 1, "2", False),
        ("k", 0, "1", True),
        ("k", 2, None, False),
        ("k", 1, "2", True),
    ]
    assert data(await drain(log)) == [0, 1, 3]


async def test_ids_are_separate_for_each_key(log: Log) -> None:
    await log.configure(QUEUE)
    for key in ("ada", "bob"):
        assert (await push(log, [key], key=key, ids=["1"])).accepted == 1


async def test_one_id_under_two_keys_of_a_partition_is_two_events(log: Log) -> None:
    await log.configure(QUEUE, {"dedup_window_seconds": 60}, partitioning="hash", partitions=1)
    events = [{"data": key, "key": key, "id": "a"} for key in ("ada", "bob", "ada")]
    (result,) = await log.push([Batch(QUEUE, events)])
    assert [(pushed.offset, pushed.duplicate) for pushed in result] == [(0, False), (1, False), (0, True)]


@pytest.mark.parametrize(
    ("before", "after"), [(None, 3), (3, None), (2, 5), (1, 1)], ids=["to hash", "to keys", "more", "the same"]
)
async def test_an_id_is_known_after_a_repartition(
    log: Log, other_log: Log, clock: Clock, before: int | None, after: int | None
) -> None:
    def kind(partitions: int | None) -> str:
        return "key" if partitions is None else "hash"

    window = {"dedup_window_seconds": 600}
    await log.configure(QUEUE, window, partitioning=kind(before), partitions=before)
    events = [{"data": n, "id": f"id {n}"} | ({"key": f"key {n % 4}"} if n % 5 else {}) for n in range(20)]
    (first,) = await log.push([Batch(QUEUE, events)])
    await other_log.repartition(QUEUE, kind(after), after)
    new = [{"data": "new", "key": "key 0", "id": "new"}, {"data": "new", "key": "key 0", "id": "new"}]
    (again,) = await log.push([Batch(QUEUE, [*events, *new])])
    assert (again.accepted, again.duplicates) == (1, 21)

    def where(result: Sequence[Pushed]) -> list[tuple[str, int, int]]:
        return [(pushed.partition, pushed.partition_id, pushed.offset) for pushed in result]

    assert where(again[:20]) == where(first)
    assert where(again[20:21]) == where(again[21:])
    clock.advance(601)
    (late,) = await log.push([Batch(QUEUE, events)])
    assert late.duplicates == 0


async def test_an_id_is_remembered_across_segments(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"dedup_window_seconds": 1000})
    for i in range(4):
        assert (await push(log, [i], key="k", ids=[f"id {i}"])).accepted == 1
        clock.advance(100)
        await log.segments.roll(await log.catalog.refresh(QUEUE))
        await log.upkeep()
        for known in range(i + 1):
            (again,) = await push(log, ["again"], key="k", ids=[f"id {known}"])
            assert (again.offset, again.duplicate) == (known, True)


async def test_concurrent_pushes_of_an_id_store_it_once(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    for i in range(5):
        results = await asyncio.gather(
            *(push(mine, [n], key="k", ids=[f"id {i}"]) for n, mine in enumerate([log, other_log] * 4))
        )
        assert sum(result.accepted for result in results) == 1
        assert {result[0].offset for result in results} == {i}
    assert len(await drain(log)) == 5


async def test_ids_are_ignored_without_a_window(log: Log) -> None:
    await log.configure(QUEUE, {"dedup_window_seconds": 0})
    for _ in range(2):
        assert (await push(log, [1], ids=["1"])).accepted == 1

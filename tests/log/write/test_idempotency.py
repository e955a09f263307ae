"""Idempotency keys."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.core.errors import IdempotencyConflict, InvalidEvent
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from penstock.log.write.push_result import PushResult
from tests.log.logs import QUEUE, data, drain, push

Answer = list[tuple[str, int, str | None, bool]]


def answer(result: PushResult) -> Answer:
    return [(pushed.partition, pushed.offset, pushed.id, pushed.duplicate) for pushed in result]


async def test_a_repeated_key_returns_the_first_result(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    await log.configure("second", partitioning="hash", partitions=3)
    batches = [
        Batch(QUEUE, [{"data": i, "key": f"key {i % 3}", "id": f"id {i}"} for i in range(7)]),
        Batch("second", b'{"n": 1}\n{"n": 2}', key="ada"),
    ]
    first = await log.push(batches, idempotency_key="request 1")
    for mine in (log, other_log):
        again = await mine.push(batches, idempotency_key="request 1")
        assert all(result.replayed for result in again)
        assert [answer(result) for result in again] == [answer(result) for result in first]
    assert len(await drain(log)) == 7
    assert len(await drain(log, "second")) == 2


OTHERS: dict[str, dict[str, Any]] = {
    "data": {"data": 2},
    "key": {"key": "bob"},
    "no key": {"key": None},
    "id": {"id": "other"},
    "time": {"time": "2026-01-31T12:00:01Z"},
    "headers": {"headers": {"a": "c"}},
}


@pytest.mark.parametrize("partitions", [None, 3])
@pytest.mark.parametrize("what", OTHERS)
async def test_a_key_with_other_events_conflicts(log: Log, what: str, partitions: int | None) -> None:
    await log.configure(QUEUE, partitioning="hash" if partitions else "key", partitions=partitions)
    event = {"data": 1, "key": "ada", "id": "a", "time": "2026-01-31T12:00:00Z", "headers": {"a": "b"}}
    await log.push([Batch(QUEUE, [event])], idempotency_key="request 1")
    with pytest.raises(IdempotencyConflict, match="request 1"):
        await log.push([Batch(QUEUE, [event | OTHERS[what]])], idempotency_key="request 1")
    assert (await log.describe(QUEUE)).size.appended == 1


async def test_a_key_for_another_queue_conflicts(log: Log) -> None:
    await log.configure("a")
    await log.configure("b")
    await log.push([Batch("a", [{"data": 1}])], idempotency_key="request 1")
    with pytest.raises(IdempotencyConflict):
        await log.push([Batch("b", [{"data": 1}])], idempotency_key="request 1")


async def test_the_fingerprint_does_not_depend_on_partitions(log: Log) -> None:
    await log.configure(QUEUE, partitioning="hash", partitions=5)
    events: list[dict[str, Any]] = [{"data": 0, "key": "ada"}, {"data": 1}, {"data": 2, "key": "bob"}, {"data": 3}]
    for i in range(10):
        first, again = [(await log.push([Batch(QUEUE, events)], idempotency_key=f"request {i}"))[0] for _ in range(2)]
        assert again.replayed
        assert answer(again) == answer(first)


async def test_a_key_is_known_after_a_repartition(log: Log) -> None:
    await log.configure(QUEUE)
    batch = Batch(QUEUE, [{"data": i, "key": f"key {i}"} for i in range(5)])
    (first,) = await log.push([batch], idempotency_key="request 1")
    await log.repartition(QUEUE, "hash", 2)
    (again,) = await log.push([batch], idempotency_key="request 1")
    assert again.replayed
    assert answer(again) == answer(first)


async def test_concurrent_repetitions_are_stored_once(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    for i in range(5):
        results = await asyncio.gather(
            *(push(mine, [i, i], idempotency_key=f"request {i}") for mine in [log, other_log] * 4)
        )
        assert sum(not result.replayed for result in results) == 1
        assert len({str(answer(result)) for result in results}) == 1
    assert data(await drain(log)) == [i for i in range(5) for _ in range(2)]


async def test_concurrent_requests_under_one_key_conflict(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    outcomes = await asyncio.gather(
        *(push([log, other_log][i % 2], [i], idempotency_key="request 1") for i in range(8)), return_exceptions=True
    )
    stored = [outcome for outcome in outcomes if isinstance(outcome, PushResult)]
    assert len(stored) == 1
    assert sum(isinstance(outcome, IdempotencyConflict) for outcome in outcomes) == 7
    assert len(await drain(log)) == 1


async def test_a_refused_push_can_be_repeated_with_its_key(log: Log) -> None:
    await log.configure(QUEUE)
    with pytest.raises(InvalidEvent):
        await push(log, [1, float("inf")], idempotency_key="request 1")
    assert not (await push(log, [1, 2], idempotency_key="request 1")).replayed

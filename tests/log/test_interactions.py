"""Interactions of two features."""

from __future__ import annotations

import pytest

from penstock.core.clock import Clock
from penstock.log.dead_letters.dead_letter import DeadLetterFilter
from penstock.log.log import Log
from penstock.log.write.append import Appender
from penstock.log.write.encode.batch import Batch
from penstock.log.write.encode.chunk_builder import build_chunks
from penstock.log.write.flush import AppendRequest
from penstock.log.write.idempotency import IdempotencyKeys
from tests.log.logs import GROUP, QUEUE, data, drain, lag, pop, push


async def test_retention_of_one_partition_keeps_the_others(log: Log, clock: Clock) -> None:
    options = {"retention_seconds": 100, "dedup_window_seconds": 0, "retention_drops_unread": True}
    queue = await log.configure(QUEUE, options)
    await push(log, ["old"], key="ada")
    await log.segments.roll(queue)
    await push(log, ["new"], key="bob")
    clock.advance(101)
    assert (await log.upkeep()).dropped == 1
    assert data(await drain(log)) == ["new"]
    assert await lag(log) == 0


async def test_a_pop_crosses_a_gap_left_by_retention(log: Log, clock: Clock) -> None:
    options = {"retention_seconds": 100, "dedup_window_seconds": 0}
    queue = await log.configure(QUEUE, options)
    await push(log, range(500), key="ada")
    await log.segments.roll(queue)
    await push(log, ["new"], key="ada")
    clock.advance(101)
    await log.upkeep()
    await log.subscribe(QUEUE, "late")
    assert data(await pop(log, group="late", batch=1)) == ["new"]


async def test_ids_without_a_key_are_deduplicated(log: Log) -> None:
    await log.configure(QUEUE, {"dedup_window_seconds": 600}, partitioning="hash", partitions=8)
    results = [await log.push([Batch(QUEUE, [{"data": n, "id": "same"}])]) for n in range(10)]
    assert [result[0].accepted for result in results] == [1] + [0] * 9
    many = [{"data": n, "id": f"id {n}"} for n in range(20)]
    await log.push([Batch(QUEUE, many)])
    assert (await log.push([Batch(QUEUE, many)]))[0].duplicates == 20


async def test_a_clock_set_back_hides_no_events(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"retry_delay_ms": 0})
    await push(log, [1])
    await log.ack(await pop(log), "retry")
    await drain(log)
    clock.advance(-3600)
    await push(log, [2])
    assert data(await drain(log)) == [2]


async def test_a_dead_letter_behind_a_redriven_event_does_not_block_the_partition(log: Log) -> None:
    await log.configure(QUEUE, {"retry_limit": 0})
    await push(log, [0], key="ada")
    await log.ack(await pop(log), "dead_letter")
    await drain(log, group="other")
    await log.redrive(DeadLetterFilter(queue=QUEUE))
    await push(log, [1, 2], key="ada")
    (first, second) = await pop(log, group="other", batch=3)
    await log.ack([first], "dead_letter")
    await log.ack([second])
    await push(log, [3], key="ada")
    assert data(await drain(log, group="other")) == [3]
    assert data(await drain(log)) == [0, 1, 2, 3]


@pytest.mark.parametrize("retention", [1e13, 1e15, 1e18])
async def test_upkeep_survives_a_huge_retention(log: Log, retention: float) -> None:
    await log.configure("a", {"retention_seconds": retention})
    await push(log, [1], queue="a")
    await log.upkeep()


async def test_an_append_in_several_calls_keeps_its_ids(log: Log) -> None:
    pool, clock = log.database.pool, log.clock
    keys = IdempotencyKeys(pool, clock)
    appender = Appender(pool, log.catalog, keys, log.notifier, clock, log.retry_seconds, max_call_bytes=300)
    await log.configure(QUEUE)
    events = [{"data": f"{n:0500}", "key": f"key {n % 7}", "id": f"id {n}"} for n in range(100)]
    pieces = await log.encode(Batch(QUEUE, events))
    assert len(build_chunks([(i, [piece]) for i, piece in enumerate(pieces)], 300)) > 1
    request = AppendRequest([pieces])
    await appender.append([request])
    assert request.results[0].accepted == 100
    again = (await log.push([Batch(QUEUE, events)]))[0]
    assert again.duplicates == 100
    found = {event.id: (event.partition, event.offset) for event in await drain(log)}
    assert {pushed.id: (pushed.partition, pushed.offset) for pushed in again} == found


async def test_a_transaction_without_acks_is_a_push(log: Log) -> None:
    await log.configure(QUEUE)
    done = await log.transact([], [Batch(QUEUE, [{"data": 1}]), Batch(QUEUE, [{"data": 2}])])
    assert [len(pushed) for pushed in done.pushes] == [1, 1]
    assert data(await drain(log)) == [1, 2]
    assert GROUP in {info.group for info in await log.groups(QUEUE)}

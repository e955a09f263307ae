"""Transactions: acks and pushes that are committed together."""

from __future__ import annotations

import asyncio

import pytest

from penstock.core.clock import Clock
from penstock.core.errors import InvalidRequest, QueueFull, TransactionRefused
from penstock.log.log import Log
from penstock.log.read.ack import EventStatus
from penstock.log.write.encode.batch import Batch
from tests.conditions import eventually_async
from tests.log.logs import GROUP, QUEUE, data, drain, lag, letters, pop, push


async def test_a_transaction_acks_and_pushes_together(log: Log) -> None:
    await log.configure(QUEUE)
    await log.configure("out")
    await push(log, range(3))
    events = await pop(log)
    done = await log.transact(
        [EventStatus(event, True) for event in events], [Batch("out", [{"data": "sum", "key": "k"}])]
    )
    assert done.acked == 3
    assert [pushed.offset for pushed in done.pushes[0]] == [0]
    assert await lag(log) == 0
    assert data(await drain(log, "out")) == ["sum"]


async def test_a_refused_ack_discards_the_pushes(log: Log, other_log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"lease_seconds": 60})
    await log.configure("out")
    await push(log, range(3), key="ada")
    await push(log, range(3), key="bob")
    paused = await pop(log)
    clock.advance(61)
    (taken, *_) = await pop(other_log, partition="ada")
    out = [Batch("out", [{"data": 1}])]
    with pytest.raises(TransactionRefused, match="late"):
        await log.transact([EventStatus(event, True) for event in paused], out)
    assert await drain(log, "out") == []
    assert await lag(log) == 6
    await other_log.transact([EventStatus(taken, True)], out)
    with pytest.raises(TransactionRefused, match="committed"):
        await other_log.transact([EventStatus(taken, True)], out)
    assert data(await drain(log, "out")) == [1]


async def test_a_refused_push_discards_the_acks(log: Log) -> None:
    await log.configure(QUEUE)
    await log.configure("out")
    await push(log, range(3))
    events = await pop(log)
    batches = [Batch("out", [{"data": 1}]), Batch("out", [{"data": float("nan")}])]
    with pytest.raises(InvalidRequest):
        await log.transact([EventStatus(event, True) for event in events], batches)
    assert await lag(log) == 3
    assert await drain(log, "out") == []


async def test_a_transaction_accepts_every_status(log: Log) -> None:
    await log.configure(QUEUE, {"retry_limit": 0})
    await log.configure("out")
    for key in ("ada", "bob", "cyd"):
        await push(log, [key], key=key)
    statuses = {"ada": "failed", "bob": "retry", "cyd": "dead_letter"}
    await log.transact(
        [EventStatus(event, statuses[event.data], "why") for event in await pop(log)], [Batch("out", [{"data": 1}])]
    )
    assert sorted(letter.data for letter in await letters(log)) == ["ada", "cyd"]
    assert data(await drain(log)) == ["bob"]
    assert data(await drain(log, "out")) == [1]


async def test_concurrent_transactions_of_a_lease_commit_once(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    await log.configure("out")
    await push(log, [1])
    events = await pop(log)
    out = [Batch("out", [{"data": 1}])]
    outcomes = await asyncio.gather(
        *(mine.transact([EventStatus(events[0], True)], out) for mine in [log, other_log] * 5), return_exceptions=True
    )
    assert sum(isinstance(outcome, TransactionRefused) for outcome in outcomes) == 9
    assert data(await drain(log, "out")) == [1]


async def test_a_full_queue_refuses_a_transaction(log: Log) -> None:
    await log.configure(QUEUE)
    await log.configure("out", {"max_depth_events": 10})
    await log.subscribe("out", GROUP)
    await push(log, range(3))
    await push(log, range(10), queue="out")
    (event, *_) = await pop(log)
    with pytest.raises(QueueFull):
        await log.transact([EventStatus(event, True)], [Batch("out", [{"data": "one too many"}])])
    assert await lag(log) == 3
    assert len(await drain(log, "out")) == 10

    async def accepted() -> bool:
        try:
            done = await log.transact([EventStatus(event, True)], [Batch("out", [{"data": "fits"}])])
        except QueueFull:  # until the next measurement of the queue
            return False
        return done.acked == 1

    await eventually_async(accepted)
    assert data(await drain(log, "out")) == ["fits"]


async def test_a_transaction_may_push_as_many_events_as_it_acks(log: Log) -> None:
    await log.configure(QUEUE, {"max_depth_events": 3})
    await log.subscribe(QUEUE, GROUP)
    await push(log, range(3))
    events = await pop(log)
    again = [{"data": event.data + 10} for event in events]
    assert (await log.transact([EventStatus(event, True) for event in events], [Batch(QUEUE, again)])).acked == 3
    assert data(await drain(log)) == [10, 11, 12]

"""Acks and pushes that happen together or not at all."""

from __future__ import annotations

import asyncio

import pytest

from penstock.core.clock import Clock
from penstock.core.errors import InvalidRequest, QueueFull, TransactionRefused
from penstock.log.log import Batch, Log
from tests.log.logs import (
    GROUP,
    QUEUE,
    data,
    drain,
    eventually,
    lag,
    letters,
    pop,
    push,
)


async def test_a_transaction_acks_and_pushes_together(log: Log) -> None:
    await log.configure(QUEUE)
    await log.configure("out")
    await push(log, range(3))
    events = await pop(log)
    done = await log.transact([(event, True, "") for event in events], [Batch("out", [{"data": "sum", "key": "k"}])])
    assert done.acked == 3
    assert [pushed.offset for pushed in done.pushes[0]] == [0]
    assert await lag(log) == 0
    assert data(await drain(log, "out")) == ["sum"]


async def test_a_refused_ack_takes_the_pushes_with_it(log: Log, other_log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"lease_seconds": 60})
    await log.configure("out")
    await push(log, range(3), key="ada")
    await push(log, range(3), key="bob")
    paused = await pop(log)
    clock.advance(61)
    (taken, *_) = await pop(other_log, partition="ada")
    out = [Batch("out", [{"data": 1}])]
    with pytest.raises(TransactionRefused, match="late"):
        await log.transact([(event, True, "") for event in paused], out)
    assert await drain(log, "out") == []
    assert await lag(log) == 6
    await other_log.transact([(taken, True, "")], out)
    with pytest.raises(TransactionRefused, match="committed"):
        await other_log.transact([(taken, True, "")], out)
    assert data(await drain(log, "out")) == [1]


async def test_a_refused_push_takes_the_acks_with_it(log: Log) -> None:
    await log.configure(QUEUE)
    await log.configure("out")
    await push(log, range(3))
    events = await pop(log)
    batches = [Batch("out", [{"data": 1}]), Batch("out", [{"data": float("nan")}])]
    with pytest.raises(InvalidRequest):
        await log.transact([(event, True, "") for event in events], batches)
    assert await lag(log) == 3
    assert await drain(log, "out") == []


async def test_a_transaction_says_failed_retry_and_dead_letter_too(log: Log) -> None:
    await log.configure(QUEUE, {"retry_limit": 0})
    await log.configure("out")
    for key in ("ada", "bob", "cyd"):
        await push(log, [key], key=key)
    said = {"ada": "failed", "bob": "retry", "cyd": "dead_letter"}
    await log.transact([(event, said[event.data], "why") for event in await pop(log)], [Batch("out", [{"data": 1}])])
    assert sorted(letter.data for letter in await letters(log)) == ["ada", "cyd"]
    assert data(await drain(log)) == ["bob"]
    assert data(await drain(log, "out")) == [1]


async def test_transactions_that_compete_for_a_lease_happen_once(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    await log.configure("out")
    await push(log, [1])
    events = await pop(log)
    out = [Batch("out", [{"data": 1}])]
    outcomes = await asyncio.gather(
        *(mine.transact([(events[0], True, "")], out) for mine in [log, other_log] * 5), return_exceptions=True
    )
    assert sum(isinstance(outcome, TransactionRefused) for outcome in outcomes) == 9
    assert data(await drain(log, "out")) == [1]


async def test_a_transaction_is_refused_where_its_push_would_be(log: Log) -> None:
    await log.configure(QUEUE)
    await log.configure("out", {"max_depth_events": 10})
    await log.subscribe("out", GROUP)
    await push(log, range(3))
    await push(log, range(10), queue="out")
    (event, *_) = await pop(log)
    with pytest.raises(QueueFull):
        await log.transact([(event, True, "")], [Batch("out", [{"data": "one too many"}])])
    assert await lag(log) == 3
    assert len(await drain(log, "out")) == 10

    async def accepted() -> bool:
        try:
            done = await log.transact([(event, True, "")], [Batch("out", [{"data": "fits"}])])
        except QueueFull:  # for as long as the last look at the queue counts
            return False
        return done.acked == 1

    await eventually(accepted)
    assert data(await drain(log, "out")) == ["fits"]


async def test_a_transaction_may_put_back_what_it_takes_however_full_the_queue_is(log: Log) -> None:
    await log.configure(QUEUE, {"max_depth_events": 3})
    await log.subscribe(QUEUE, GROUP)
    await push(log, range(3))
    events = await pop(log)
    again = [{"data": event.data + 10} for event in events]
    assert (await log.transact([(event, True, "") for event in events], [Batch(QUEUE, again)])).acked == 3
    assert data(await drain(log)) == [10, 11, 12]

"""Queues with delay_seconds."""

from __future__ import annotations

import asyncio

from penstock.core.clock import Clock
from penstock.log.log import Log
from tests.log.logs import (
    PATIENCE,
    QUEUE,
    data,
    drain,
    lag,
    pop,
    push,
)

#: A waiting pop polls every five seconds. A notification wakes it much sooner.
CALLED = 4.0


async def test_a_delayed_event_is_delivered_when_it_is_due(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"delay_seconds": 60})
    await push(log, [1])
    clock.advance(30)
    await push(log, [2])
    assert await pop(log) == []
    clock.advance(31)
    assert data(await drain(log)) == [1]
    assert await lag(log) == 1
    clock.advance(30)
    assert data(await drain(log)) == [2]


async def test_auto_ack_completes_only_due_events(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"delay_seconds": 60})
    await push(log, [1])
    clock.advance(30)
    await push(log, [2])
    clock.advance(31)
    assert data(await pop(log, auto_ack=True)) == [1]
    assert await lag(log) == 1
    clock.advance(30)
    assert data(await drain(log)) == [2]


async def test_due_events_are_delivered_before_delayed_ones(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"delay_seconds": 60})
    for key in ("ada", "bob"):
        await push(log, [f"old {key}"], key=key)
    clock.advance(61)
    await drain(log)
    await push(log, ["due"], key="bob")
    clock.advance(59)
    await push(log, ["not due"], key="ada")
    clock.advance(2)
    assert data(await pop(log, batch=1, partitions=1)) == ["due"]


async def test_a_waiting_pop_returns_when_an_event_is_due(log: Log) -> None:
    await log.configure(QUEUE, {"delay_seconds": 0.3})
    await push(log, [1])
    assert await pop(log) == []
    async with asyncio.timeout(CALLED):
        assert data(await pop(log, wait_seconds=PATIENCE)) == [1]

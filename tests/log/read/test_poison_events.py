"""Poison events: consumers that receive them die, until the event becomes a dead letter."""

from __future__ import annotations

import pytest

from penstock.core.clock import Clock
from penstock.core.formatting import counted
from penstock.log.dead_letters.dead_letter import DeadLetterFilter
from penstock.log.event import Event
from penstock.log.log import Log
from tests.log.logs import QUEUE, data, drain, lag, letters, pop, push

LEASE = 10


async def die(log: Log, clock: Clock, batch: int = 1000) -> list[Event]:
    """Pop and never ack."""
    events = await pop(log, batch=batch)
    clock.advance(LEASE + 1)
    return events


async def survive(log: Log, clock: Clock, poison: object, deaths: int) -> list[object]:
    """Consume like a process that dies of one event and is restarted, at most so many times."""
    done: list[object] = []
    while True:
        events = await pop(log, batch=100)
        if not events:
            return done
        if poison in data(events):
            assert deaths > 0, "the poison event was delivered too often"
            deaths -= 1
            clock.advance(LEASE + 1)
            continue
        assert all(await log.ack(events))
        done += data(events)


async def test_expired_leases_are_free_without_a_limit(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"lease_seconds": LEASE})
    await push(log, range(3), key="ada")
    for _ in range(20):
        assert data(await die(log, clock)) == [0, 1, 2]
    assert await letters(log) == []


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_a_poison_event_becomes_a_dead_letter_at_its_limit(log: Log, clock: Clock, limit: int) -> None:
    await log.configure(QUEUE, {"lease_seconds": LEASE, "expiry_limit": limit})
    await push(log, ["poison"], key="ada")
    for _ in range(limit):
        assert data(await die(log, clock)) == ["poison"]
    assert await pop(log) == []
    (letter,) = await letters(log)
    assert (letter.data, letter.stage, letter.attempts) == ("poison", "lease", limit)
    assert f"ended {counted(limit, 'time')} without an answer" in letter.error
    assert "expiry_limit" in letter.error
    assert await lag(log) == 0


@pytest.mark.parametrize("place", [0, 57, 99])
async def test_only_the_poison_event_of_a_batch_becomes_a_dead_letter(log: Log, clock: Clock, place: int) -> None:
    await log.configure(QUEUE, {"lease_seconds": LEASE, "expiry_limit": 2})
    await push(log, ["poison" if n == place else n for n in range(100)], key="ada")
    # Once with all the others, then alone.
    done = await survive(log, clock, "poison", deaths=3)
    assert done == [n for n in range(100) if n != place]
    assert [letter.offset for letter in await letters(log)] == [place]


async def test_only_events_of_the_expired_lease_come_one_at_a_time(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"lease_seconds": LEASE, "expiry_limit": 3})
    await push(log, range(10), key="ada")
    assert data(await die(log, clock, batch=3)) == [0, 1, 2]
    for expected in ([0], [1], [2], [3, 4, 5, 6, 7, 8, 9]):
        events = await pop(log)
        assert data(events) == expected
        await log.ack(events)


async def test_a_poison_event_does_not_delay_other_partitions(log: Log, other_log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"lease_seconds": LEASE, "expiry_limit": 1})
    await push(log, range(10), key="ada")
    await die(log, clock)
    await push(log, range(10, 20), key="bob")
    assert data(await pop(other_log, batch=8)) == [0, *range(10, 17)]


async def test_acked_leases_are_not_counted_as_expired(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"lease_seconds": LEASE, "expiry_limit": 1, "retry_limit": 100, "retry_delay_ms": 0})
    await push(log, ["slow"], key="ada")
    for status in ("retry", "failed") * 5:
        (event,) = await pop(log)
        assert all(await log.ack([event], status))
    assert await letters(log) == []
    assert data(await drain(log)) == ["slow"]


async def test_progress_resets_the_count_of_expiries(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"lease_seconds": LEASE, "expiry_limit": 2})
    await push(log, range(20), key="ada")
    done = []
    while events := await pop(log, batch=3):
        # The consumer completes one event and dies.
        assert all(await log.ack(events[:1]))
        done += data(events[:1])
        clock.advance(LEASE + 1)
    assert done == list(range(20))
    assert await letters(log) == []


async def test_a_released_lease_is_not_counted_as_expired(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"lease_seconds": LEASE, "expiry_limit": 1})
    await push(log, ["late"], key="ada")
    await log.configure(QUEUE, {"delay_seconds": 100})
    for _ in range(3):
        assert await die(log, clock) == []
    clock.advance(100)
    assert data(await drain(log)) == ["late"]


async def test_a_poison_event_can_be_redriven(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"lease_seconds": LEASE, "expiry_limit": 1})
    await push(log, ["poison"], key="ada")
    await die(log, clock)
    assert await pop(log) == []
    assert (await log.redrive(DeadLetterFilter(queue=QUEUE))).replayed == 1
    assert data(await drain(log)) == ["poison"]

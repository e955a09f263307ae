"""Acks: completed, failed, retry and dead_letter."""

from __future__ import annotations

import pytest

from penstock.core.clock import Clock
from penstock.core.errors import InvalidRequest
from penstock.log.log import Log
from penstock.log.read.ack import EventStatus
from tests.log.logs import (
    GROUP,
    QUEUE,
    ask,
    data,
    drain,
    lag,
    letters,
    pop,
    push,
)


async def test_completing_twice_changes_nothing(log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, range(3))
    events = await pop(log)
    await log.ack(events[:2])
    results = await log.ack_each([EventStatus(event, True) for event in events[:2]])
    assert [(result.success, result.noop) for result in results] == [(True, True)] * 2
    assert await lag(log) == 1
    assert all(await log.ack(events[2:]))


@pytest.mark.parametrize("status", ["failed", "retry", "dead_letter"])
async def test_a_completed_event_cannot_fail(log: Log, status: str) -> None:
    await log.configure(QUEUE)
    await push(log, range(3))
    events = await pop(log)
    await log.ack(events[:2])
    (result,) = await log.ack(events[:1], status)
    assert not result
    assert "committed" in str(result.error)
    assert await letters(log) == []
    assert all(await log.ack(events[2:]))


async def test_completing_an_event_completes_those_before_it(log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, range(5))
    events = await pop(log)
    await log.ack(events[3:4])
    assert await lag(log) == 1


async def test_retried_events_are_delivered_at_once(log: Log) -> None:
    await log.configure(QUEUE, {"retry_delay_ms": 60_000})
    await push(log, range(3))
    await log.ack(await pop(log), "retry")
    assert data(await pop(log)) == [0, 1, 2]


async def test_a_failed_event_waits_for_its_retry_delay(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"retry_delay_ms": 60_000})
    await push(log, [1], key="ada")
    await push(log, [2], key="bob")
    events = await pop(log)
    await log.ack([event for event in events if event.key == "ada"], False)
    await log.ack([event for event in events if event.key == "bob"], True)
    await push(log, [3], key="ada")
    assert await pop(log) == []
    clock.advance(61)
    assert data(await pop(log)) == [1, 3]


@pytest.mark.parametrize("limit", [0, 1, 3])
async def test_a_retry_limit_of_n_means_n_more_deliveries(log: Log, limit: int) -> None:
    await log.configure(QUEUE, {"retry_limit": limit, "retry_delay_ms": 0})
    await push(log, ["bad", "good"])
    for delivery in range(limit + 1):
        events = await pop(log)
        assert data(events) == ["bad", "good"]
        assert events[0].attempts == delivery
        (result,) = await log.ack(events[:1], False, error=f"failure {delivery}")
        assert result.dead_letter == (delivery == limit)
    assert data(await drain(log) or await pop(log)) == []
    (letter,) = await letters(log)
    assert (letter.data, letter.attempts, letter.error) == ("bad", limit + 1, f"failure {limit}")


async def test_each_event_has_its_own_retries(log: Log) -> None:
    await log.configure(QUEUE, {"retry_limit": 3, "retry_delay_ms": 0})
    await push(log, range(4))
    for failing in (3, 2, 1):
        assert not (await log.ack((await pop(log))[failing : failing + 1], False))[0].dead_letter
    for attempt in range(4):
        events = await pop(log)
        assert [event.attempts for event in events] == [attempt, 1, 1, 1]
        (result,) = await log.ack(events[:1], False)
        assert result.dead_letter == (attempt == 3)
    (letter,) = await letters(log)
    assert (letter.data, letter.attempts) == (0, 4)


async def test_failures_are_kept_while_earlier_events_are_completed(log: Log) -> None:
    await log.configure(QUEUE, {"retry_limit": 1, "retry_delay_ms": 0})
    await push(log, range(5))
    await log.ack((await pop(log))[3:4], False)
    await log.ack(await pop(log, batch=2))
    events = await pop(log)
    assert [(event.data, event.attempts) for event in events] == [(2, 0), (3, 1), (4, 0)]
    assert [result.dead_letter for result in await log.ack_each([EventStatus(events[1], False)])] == [True]
    assert all(await log.ack([events[0], events[2]]))
    assert await lag(log) == 0


async def test_attempts_that_an_earlier_version_counted_are_those_of_the_next_event(
    log: Log, database_url: str
) -> None:
    await log.configure(QUEUE, {"retry_limit": 2, "retry_delay_ms": 0})
    await push(log, range(2))
    await log.ack((await pop(log))[:1], False)
    ask(database_url, "UPDATE penstock.positions SET attempts = 2, failures = '{}' WHERE attempts > 0 RETURNING 1")
    events = await pop(log)
    assert [event.attempts for event in events] == [2, 0]
    assert (await log.ack(events[:1], False))[0].dead_letter


async def test_retry_and_expiry_do_not_count_as_failures(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"retry_limit": 1, "retry_delay_ms": 0, "lease_seconds": 60})
    await push(log, [1])
    for _ in range(3):
        await log.ack(await pop(log), "retry")
        await pop(log)
        clock.advance(61)
    for is_last in (False, True):
        (event,) = await pop(log)
        (result,) = await log.ack([event], False)
        assert result.dead_letter == is_last


async def test_a_dead_letter_does_not_block_its_partition(log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, range(5))
    events = await pop(log)
    (result,) = await log.ack(events[2:3], "dead_letter", error="why", stage="parse", traceback="where")
    assert result.dead_letter
    assert all(await log.ack(events[:2] + events[3:]))
    assert await pop(log) == []
    (letter,) = await letters(log)
    assert (letter.data, letter.error, letter.stage, letter.traceback) == (2, "why", "parse", "where")
    assert (letter.group, letter.queue, letter.offset) == (GROUP, QUEUE, 2)


async def test_a_dead_letter_in_the_middle_is_not_delivered_again(log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, range(5))
    events = await pop(log)
    await log.ack(events[2:3], "dead_letter")
    await log.ack(events[:1])
    await log.ack(events[1:2], "retry")
    assert data(await drain(log)) == [1, 3, 4]
    assert len(await letters(log)) == 1


async def test_two_acks_of_an_event_create_one_dead_letter(log: Log) -> None:
    await log.configure(QUEUE, {"retry_limit": 0})
    await push(log, range(2))
    first, second = await pop(log)
    await log.ack_each(
        [EventStatus(first, "dead_letter"), EventStatus(first, "dead_letter"), EventStatus(first, False)]
    )
    await log.ack_each([EventStatus(second, True), EventStatus(second, "dead_letter")])
    assert data(await drain(log)) == []
    assert [letter.data for letter in await letters(log)] == [0]


async def test_a_dead_letter_does_not_reset_the_retries_of_others(log: Log) -> None:
    await log.configure(QUEUE, {"retry_limit": 1, "retry_delay_ms": 0})
    await push(log, ["bad", "other", "another"])
    deliveries = 0
    while events := [event for event in await pop(log) if event.data == "bad"]:
        deliveries += 1
        rest = [event for event in await pop(log) if event.data != "bad"]
        await log.ack(rest[:1], "dead_letter")
        await log.ack(events, False)
    assert deliveries == 2


async def test_an_event_that_was_not_popped_cannot_be_acked(log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, [1], key="ada")
    with pytest.raises(InvalidRequest, match="popped"):
        await log.ack(await log.fetch(QUEUE, "ada"))


async def test_auto_ack_commits_at_delivery(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"lease_seconds": 60})
    await push(log, range(5))
    assert data(await pop(log, batch=3, auto_ack=True)) == [0, 1, 2]
    assert await lag(log) == 2
    clock.advance(61)
    assert data(await drain(log)) == [3, 4]

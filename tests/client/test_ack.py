from __future__ import annotations

import pytest

from penstock import InvalidRequest, Penstock
from penstock.client.arguments import AckStatus
from tests.client.conditions import numbered_events, sequence_numbers


@pytest.fixture(autouse=True)
async def jobs(q: Penstock) -> None:
    await q.queue("jobs").config(retry_limit=1, retry_delay_ms=0).create()
    await q.queue("jobs").push(numbered_events(4))


async def test_completing_an_event_completes_those_before_it(q: Penstock) -> None:
    events = await q.queue("jobs").batch(4).pop()

    results = await q.ack(events[2])

    assert [bool(result) for result in results] == [True]
    assert await q.queue("jobs").lag() == 1


@pytest.mark.parametrize("status", [False, "failed"])
async def test_a_failed_event_is_redelivered_and_then_a_dead_letter(q: Penstock, status: AckStatus) -> None:
    reader = q.queue("jobs").group("g")
    for attempt in range(2):
        (event,) = await reader.pop()
        assert event.attempts == attempt
        await q.ack(event, status, error=f"no luck {attempt}")

    (letter,) = await reader.dlq().list()

    assert (letter.data, letter.error, letter.group) == ({"seq": 0}, "no luck 1", "g")


async def test_the_error_can_be_an_exception_or_in_the_context(q: Penstock) -> None:
    reader = q.queue("jobs").group("g")
    events = await reader.batch(2).pop()
    try:
        raise ValueError("seventeen")
    except ValueError as error:
        await q.ack(events[0], "dead_letter", error=error)
    await q.ack(events[1], "dead_letter", {"group": "g", "error": "said so"})

    second, first = await reader.dlq().list()

    assert first.error == "ValueError: seventeen"
    assert first.traceback is not None
    assert "raise ValueError" in first.traceback
    assert (second.error, second.traceback) == ("said so", None)


async def test_retry_uses_up_no_retries(q: Penstock) -> None:
    reader = q.queue("jobs").batch(4)
    for _ in range(5):
        events = await reader.pop()
        await q.ack(events, "retry")

    again = await reader.pop()

    assert sequence_numbers(again) == [0, 1, 2, 3]
    assert again[0].attempts == 0


async def test_events_of_several_pops_are_acked_and_renewed_together(q: Penstock) -> None:
    await q.queue("jobs").key("other").push(numbered_events(1, start=9))
    first = await q.queue("jobs").batch(4).pop()
    second = await q.queue("jobs").batch(4).pop()

    assert await q.renew(first + second) is not None
    assert all(await q.ack(first + second))
    assert await q.queue("jobs").lag() == 0


async def test_an_ack_for_another_group_is_refused(q: Penstock) -> None:
    events = await q.queue("jobs").group("billing").pop()

    with pytest.raises(InvalidRequest, match="popped by group 'billing' and cannot be acknowledged for 'shipping'"):
        await q.ack(events, True, {"group": "shipping"})
    with pytest.raises(InvalidRequest, match="leave the group out"):
        await q.ack(events, group="shipping")
    assert all(await q.ack(events, group="billing"))


async def test_dead_letters_are_filtered_counted_redriven_and_purged(q: Penstock) -> None:
    reader = q.queue("jobs").group("g")
    for event, error in zip(await reader.batch(4).pop(), ["timeout", "bad", "timeout", "worse"], strict=True):
        await q.ack(event, "dead_letter", error=error)
    dead = q.queue("jobs").dlq()

    assert await dead.count() == 4
    assert await q.queue("jobs").dlq("another").count() == 0
    assert [letter.data["seq"] for letter in await dead.list(error="timeout")] == [2, 0]
    (worst,) = await dead.list(limit=1)
    assert (await dead.get(worst.id)).error == "worse"

    assert (await dead.redrive(error="timeout")).replayed == 2
    assert sequence_numbers(await reader.batch(4).pop()) == [0, 2]
    assert await dead.purge(worst.id) == 1
    assert (await dead.redrive(all=True)).replayed == 1
    assert await dead.count() == 0


async def test_purging_all_dead_letters_needs_all_true(q: Penstock) -> None:
    await q.ack(await q.queue("jobs").pop(), "dead_letter")
    dead = q.queue("jobs").dlq()

    with pytest.raises(InvalidRequest, match="all=True"):
        await dead.purge()
    assert await dead.purge(all=True) == 1

from __future__ import annotations

import asyncio

import pytest

from penstock import (
    BufferFull,
    EventShed,
    InvalidEvent,
    InvalidRequest,
    NotFound,
    Penstock,
    PushFailed,
    SyncPenstock,
)
from penstock.client.queue import QueueHandle
from tests.client.conditions import TIMEOUT_SECONDS, numbered_events, sequence_numbers
from tests.conditions import eventually_async


@pytest.fixture
async def clicks(q: Penstock) -> QueueHandle:
    await q.queue("clicks").config(max_event_bytes=100).create()
    return q.queue("clicks")


async def test_single_events_are_pushed_in_batches_in_order(clicks: QueueHandle) -> None:
    async with clicks.buffered(max_events=50) as buffer:
        receipts = [await buffer.push({"data": {"seq": n}, "key": "ada"}) for n in range(200)]
        placed = [(await receipt.result()).offset for receipt in receipts]

    assert placed == list(range(200))
    events = await clicks.partition("ada").batch(1000).pop()
    assert sequence_numbers(events) == list(range(200))
    assert len({event.appended_at for event in events}) <= 4


async def test_events_are_pushed_after_the_linger_time(clicks: QueueHandle) -> None:
    async with clicks.buffered(linger_millis=1) as buffer:
        receipt = await buffer.push({"data": {"seq": 1}})

        async def stored() -> bool:
            return receipt.done

        await eventually_async(stored)
        assert sequence_numbers(await clicks.pop()) == [1]


async def test_flush_waits_until_all_events_are_stored(clicks: QueueHandle) -> None:
    async with clicks.buffered(linger_millis=60_000) as buffer:
        for n in range(30):
            await buffer.push(
                {"data": {"seq": n}, "id": f"i{n}", "headers": {"h": "v"}, "time": "2026-01-31T12:00:00Z"}
            )
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await buffer.flush()

        assert buffer.waiting == 0
        events = await clicks.batch(100).pop()
        assert sequence_numbers(events) == list(range(30))
        assert (events[3].id, events[3].headers, events[3].time.year) == ("i3", {"h": "v"}, 2026)


async def test_events_without_a_key_get_the_key_of_the_handle(clicks: QueueHandle) -> None:
    async with clicks.key("ada").buffered() as buffer:
        await buffer.push({"data": 1})
        await buffer.push({"data": 2, "key": "bob"})

    assert sorted((event.key, event.data) for event in await clicks.browse()) == [("ada", 1), ("bob", 2)]


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({"data": float("nan")}, "data"),
        ({"dat": 1}, "'dat'"),
        ({"data": 1, "key": 7}, "key"),
        ({"data": 1, "id": ""}, "id"),
        ({"data": 1, "time": "noon"}, "time"),
        ({"data": 1, "headers": []}, "headers"),
        ([], "event"),
    ],
)
@pytest.mark.parametrize("url", ["database"], indirect=True)
async def test_push_raises_for_an_invalid_event(clicks: QueueHandle, event: object, field: str) -> None:
    async with clicks.buffered() as buffer:
        with pytest.raises(InvalidEvent) as refusal:
            await buffer.push(event)  # type: ignore[arg-type]  # the error under test
    assert refusal.value.field == field


async def test_a_refused_event_does_not_affect_the_others(clicks: QueueHandle) -> None:
    async with clicks.buffered(linger_millis=60_000) as buffer:
        receipts = [await buffer.push({"data": {"seq": n, "text": "x" * (200 if n == 1 else 1)}}) for n in range(3)]
        with pytest.raises(PushFailed) as failed:
            await buffer.flush()
        assert [event["data"]["seq"] for event, _ in failed.value.failures] == [1]
        with pytest.raises(InvalidEvent, match="limit is 100"):
            await receipts[1].result()
        assert (await receipts[2].result()).offset == 1

    assert sequence_numbers(await clicks.batch(10).pop()) == [0, 2]


async def test_a_buffer_that_waits_for_room_names_the_group(q: Penstock, caplog: pytest.LogCaptureFixture) -> None:
    jobs = q.queue("jobs")
    await jobs.config(max_depth_events=2).create()
    held = await jobs.group("slow").pop()
    assert held == []
    await jobs.push(numbered_events(2))
    async with jobs.buffered(linger_millis=1) as buffer:
        receipt = await buffer.push({"data": {"seq": 2}})

        async def is_reported() -> bool:
            return "waiting" in caplog.text

        await eventually_async(is_reported)
        assert "queue 'jobs' is full: group 'slow' is 2 events behind and 2 are allowed" in caplog.text
        assert not receipt.done
        events = await jobs.group("slow").batch(10).partitions(10).pop()
        assert len(events) == 2
        assert all(await q.ack(events))
        await receipt.result()


async def test_close_raises_failures_of_receipts_that_were_not_awaited(q: Penstock) -> None:
    buffer = q.queue("nowhere").buffered()
    first = await buffer.push({"data": 1})
    with pytest.raises(NotFound):
        await first.result()
    await buffer.push({"data": 2})

    with pytest.raises(PushFailed, match="1 event for queue 'nowhere' could not be stored") as failed:
        await buffer.close()

    assert isinstance(failed.value.failures[0][1], NotFound)
    with pytest.raises(InvalidRequest, match="is closed"):
        await buffer.push({"data": 3})


async def test_a_shed_event_is_reported_only_by_its_receipt(q: Penstock) -> None:
    queue = q.queue("shedding").config(max_depth_events=10, overflow="shed")
    await queue.create()
    await queue.pop()
    await queue.push([{"data": n} for n in range(10)])
    async with queue.buffered() as buffer:
        receipt = await buffer.push({"data": 10})
        await buffer.flush()
        with pytest.raises(EventShed, match="overflow") as shed:
            await receipt.result()
    assert shed.value.queue == "shedding"


async def test_a_full_buffer_waits_or_raises(clicks: QueueHandle) -> None:
    async with clicks.buffered(linger_millis=60_000, max_waiting=2, max_events=10, when_full="raise") as buffer:
        await buffer.push({"data": 1})
        await buffer.push({"data": 2})
        with pytest.raises(BufferFull):
            await buffer.push({"data": 3})
        await buffer.flush()
        await buffer.push({"data": 3})

    async with clicks.buffered(max_waiting=2, max_events=2) as buffer:
        await asyncio.gather(*(buffer.push({"data": n}) for n in range(20)))

    assert (await clicks.describe()).size.events == 23


async def test_closing_the_client_flushes_its_buffers(url: str) -> None:
    async with Penstock(url) as q:
        await q.queue("clicks").create()
        buffer = q.queue("clicks").buffered(linger_millis=60_000)
        receipt = await buffer.push({"data": {"seq": 7}})
    assert receipt.done

    async with Penstock(url) as q:
        assert sequence_numbers(await q.queue("clicks").pop()) == [7]


def test_synchronous_buffer(sync_q: SyncPenstock) -> None:
    sync_q.queue("clicks").create()

    with sync_q.queue("clicks").buffered() as buffer:
        receipts = [buffer.push({"data": {"seq": n}}) for n in range(20)]

    assert [receipt.result().offset for receipt in receipts] == list(range(20))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_events": 0}, "max_events"),
        ({"linger_millis": -1}, "linger_millis"),
        ({"max_bytes": 1}, "max_bytes"),
        ({"max_waiting": 0}, "max_waiting"),
        ({"when_full": "drop"}, "when_full"),
    ],
)
def test_invalid_buffer_options_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        Penstock("postgresql://localhost/none").queue("clicks").buffered(**options)  # type: ignore[arg-type]  # the error under test

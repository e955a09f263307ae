from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock import ConsumeResult, Event, NotFound, Penstock, PenstockError
from penstock.client.queue import QueueHandle
from tests.client.conditions import TIMEOUT_SECONDS, numbered_events, sequence_numbers
from tests.conditions import eventually_async


@pytest.fixture
async def jobs(q: Penstock) -> QueueHandle:
    await q.queue("jobs").config(retry_limit=1, retry_delay_ms=0).create()
    return q.queue("jobs").group("g").batch(10).partitions(10)


class Recorder:
    """A handler that records its events and fails on some of them."""

    def __init__(self, fails: Callable[[int], bool] = lambda seq: False) -> None:
        self.calls: list[Any] = []
        self._fails = fails

    async def __call__(self, given: Event | list[Event]) -> None:
        got = given.data["seq"] if isinstance(given, Event) else sequence_numbers(given)
        self.calls.append(got)
        if any(self._fails(seq) for seq in ([got] if isinstance(got, int) else got)):
            raise ValueError(f"cannot do {got}")


async def test_a_handler_gets_lists_that_are_completed_when_it_returns(jobs: QueueHandle) -> None:
    await jobs.push(numbered_events(25))
    handler = Recorder()

    consumed = await jobs.consume(handler, idle_seconds=0)

    assert handler.calls == [list(range(10)), list(range(10, 20)), list(range(20, 25))]
    assert consumed == ConsumeResult(completed=25, failed=0)
    assert await jobs.lag() == 0


async def test_each_calls_the_handler_with_single_events_in_order(jobs: QueueHandle) -> None:
    await jobs.push(numbered_events(12))
    handler = Recorder()

    await jobs.each().consume(handler, idle_seconds=0)

    assert handler.calls == list(range(12))


async def test_a_failure_completes_the_events_before_and_redelivers_the_rest(jobs: QueueHandle) -> None:
    await jobs.push(numbered_events(5))
    failures = iter([True])
    handler = Recorder(lambda seq: seq == 2 and next(failures, False))

    consumed = await jobs.each().consume(handler, idle_seconds=0)

    assert handler.calls == [0, 1, 2, 2, 3, 4]
    assert consumed == ConsumeResult(completed=5, failed=1)
    assert await jobs.dlq().count() == 0


async def test_an_event_without_retries_is_a_dead_letter_and_the_others_go_on(jobs: QueueHandle) -> None:
    await jobs.push(numbered_events(5))
    handler = Recorder(lambda seq: seq == 2)

    consumed = await jobs.each().consume(handler, idle_seconds=0)

    assert handler.calls == [0, 1, 2, 2, 3, 4]
    assert consumed == ConsumeResult(completed=4, failed=2)
    assert await jobs.lag() == 0
    (letter,) = await jobs.dlq().list()
    assert (letter.data, letter.error, letter.attempts) == ({"seq": 2}, "ValueError: cannot do 2", 2)


async def test_the_traceback_of_a_dead_letter_begins_in_the_handler(jobs: QueueHandle) -> None:
    await jobs.push(numbered_events(1))

    def handler(event: Event) -> None:
        raise ValueError("here")

    await jobs.each().consume(handler, idle_seconds=0)

    (letter,) = await jobs.dlq().list()
    assert letter.traceback is not None
    assert letter.traceback.splitlines()[1].endswith("in handler")


async def test_a_failure_does_not_delay_other_partitions(jobs: QueueHandle) -> None:
    for key in "ab":
        await jobs.key(key).push([{"data": {"seq": f"{key}{n}"}} for n in range(3)])
    seen: list[str] = []
    failures = iter([True])

    async def handler(event: Event) -> None:
        seen.append(event.data["seq"])
        if event.data["seq"] == "a1" and next(failures, False):
            raise ValueError

    await jobs.each().consume(handler, idle_seconds=0)

    assert seen == ["a0", "a1", "b0", "b1", "b2", "a1", "a2"]


async def test_a_failed_list_is_delivered_one_by_one(jobs: QueueHandle) -> None:
    await jobs.push(numbered_events(4))
    handler = Recorder(lambda seq: seq == 1)

    consumed = await jobs.consume(handler, idle_seconds=0)

    first_delivery, second_delivery = [[0, 1, 2, 3], [0], [1]], [[1, 2, 3], [1], [2], [3]]
    assert handler.calls == first_delivery + second_delivery
    assert consumed == ConsumeResult(completed=3, failed=2)
    (letter,) = await jobs.dlq().list()
    assert letter.data == {"seq": 1}


async def test_a_plain_function_runs_in_a_thread(jobs: QueueHandle) -> None:
    await jobs.push(numbered_events(2))
    release, threads = threading.Event(), set()

    def handler(event: Event) -> None:
        threads.add(threading.current_thread().name)
        assert release.wait(TIMEOUT_SECONDS)

    consuming = asyncio.create_task(jobs.each().consume(handler, limit=2))
    await jobs.push(numbered_events(1))
    release.set()

    assert await consuming == ConsumeResult(completed=2)
    assert threading.current_thread().name not in threads


async def test_an_awaitable_result_is_awaited(jobs: QueueHandle) -> None:
    await jobs.push(numbered_events(1))
    handler = Recorder()

    await jobs.each().consume(lambda event: handler(event), idle_seconds=0)

    assert handler.calls == [0]


async def test_stop_iteration_of_a_plain_function_is_a_failure(jobs: QueueHandle) -> None:
    await jobs.push(numbered_events(1))

    def handler(event: Event) -> None:
        next(iter([]))

    await jobs.each().consume(handler, idle_seconds=0)

    (letter,) = await jobs.dlq().list()
    assert "StopIteration" in letter.error


async def test_system_exit_ends_the_consumer_and_releases_the_event(jobs: QueueHandle) -> None:
    await jobs.push(numbered_events(2))

    def handler(event: Event) -> None:
        if event.data["seq"] == 1:
            raise SystemExit(3)

    with pytest.raises(SystemExit):
        await jobs.each().consume(handler)

    (event,) = await jobs.pop()
    assert (event.data["seq"], event.attempts) == (1, 0)


async def test_the_lease_is_renewed_while_the_handler_runs(q: Penstock, jobs: QueueHandle) -> None:
    await jobs.push(numbered_events(1))
    renewed = asyncio.Event()

    async def handler(event: Event) -> None:
        assert event.delivery.lease_until is not None
        end_of_lease = event.delivery.lease_until

        async def is_extended() -> bool:
            (position,) = await jobs.positions()
            return position.available_at > end_of_lease

        await eventually_async(is_extended)
        renewed.set()

    consumed = await jobs.each().lease_seconds(1).consume(handler, limit=1)

    assert renewed.is_set()
    assert consumed == ConsumeResult(completed=1)


async def test_the_lease_is_renewed_by_the_lease_time_of_the_queue(q: Penstock, jobs: QueueHandle) -> None:
    await jobs.config(lease_time=1).create()
    await test_the_lease_is_renewed_while_the_handler_runs(q, jobs)


async def test_events_handled_under_a_lost_lease_are_redelivered(jobs: QueueHandle) -> None:
    await jobs.push(numbered_events(3))
    calls: list[list[int]] = []

    async def handler(events: list[Event]) -> None:
        calls.append(sequence_numbers(events))
        if len(calls) == 1:
            await jobs.seek("beginning")  # a seek ends the leases of the group

    consumed = await jobs.consume(handler, idle_seconds=0)

    assert calls == [[0, 1, 2], [0, 1, 2]]
    assert consumed == ConsumeResult(completed=3)


async def test_a_lost_lease_stops_the_delivery(jobs: QueueHandle, caplog: pytest.LogCaptureFixture) -> None:
    await jobs.push(numbered_events(3))
    seen: list[int] = []

    async def is_logged() -> bool:
        return "a lease has ended" in caplog.text

    async def handler(event: Event) -> None:
        seen.append(event.data["seq"])
        if len(seen) == 1:
            await jobs.seek("beginning")
            await eventually_async(is_logged)

    await jobs.each().lease_seconds(1).consume(handler, idle_seconds=0)

    assert seen == [0, 0, 1, 2]


async def test_consume_stops_after_the_limit(jobs: QueueHandle) -> None:
    await jobs.push(numbered_events(25))
    handler = Recorder()

    consumed = await jobs.consume(handler, limit=12)

    assert consumed.completed == 12
    assert handler.calls == [list(range(10)), [10, 11]]
    assert sequence_numbers(await jobs.batch(1).pop()) == [12]


@pytest.mark.parametrize("kind", [asyncio.Event, threading.Event])
async def test_a_waiting_consumer_stops_when_stop_is_set(
    jobs: QueueHandle, kind: type[asyncio.Event] | type[threading.Event]
) -> None:
    stop = kind()
    consuming = asyncio.create_task(jobs.consume(Recorder(), stop=stop))

    async def subscribed() -> bool:
        return (await jobs.describe()).groups != []

    await eventually_async(subscribed)
    stop.set()

    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert await consuming == ConsumeResult()


async def test_stopping_finishes_the_running_event_and_releases_the_rest(jobs: QueueHandle) -> None:
    await jobs.push(numbered_events(5))
    stop, seen = asyncio.Event(), []

    async def handler(event: Event) -> None:
        seen.append(event.data["seq"])
        if event.data["seq"] == 1:
            stop.set()

    consumed = await jobs.each().consume(handler, stop=stop)

    assert (seen, consumed) == ([0, 1], ConsumeResult(completed=2))
    rest = await jobs.pop()
    assert sequence_numbers(rest) == [2, 3, 4]
    assert rest[0].attempts == 0


async def test_cancelling_finishes_the_running_event_and_releases_the_rest(jobs: QueueHandle) -> None:
    await jobs.push(numbered_events(3))
    started, finish = asyncio.Event(), asyncio.Event()

    async def handler(event: Event) -> None:
        started.set()
        await finish.wait()

    consuming = asyncio.create_task(jobs.each().consume(handler))
    await started.wait()
    consuming.cancel()
    finish.set()

    with pytest.raises(asyncio.CancelledError):
        await consuming
    assert sequence_numbers(await jobs.pop()) == [1, 2]


async def test_cancelling_twice_interrupts_the_handler_and_releases_all_events(jobs: QueueHandle) -> None:
    for key in "ab":
        await jobs.key(key).push(numbered_events(2))
    started, never = asyncio.Event(), asyncio.Event()

    async def handler(event: Event) -> None:
        started.set()
        await never.wait()

    consuming = asyncio.create_task(jobs.each().consume(handler))
    await started.wait()
    consuming.cancel()
    await asyncio.sleep(0)
    consuming.cancel()

    with pytest.raises(asyncio.CancelledError):
        await consuming
    assert sequence_numbers(await jobs.pop()) == [0, 1, 0, 1]


async def test_a_cancelled_pop_leaves_no_lease_behind(jobs: QueueHandle) -> None:
    for seq in range(5):
        consuming = asyncio.create_task(jobs.consume(Recorder()))
        await jobs.push(numbered_events(1, start=seq))
        consuming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consuming

        async def drained() -> bool:
            await jobs.consume(Recorder(), idle_seconds=0)
            return await jobs.lag() == 0

        await eventually_async(drained)


async def test_closing_the_client_lets_consumers_finish(database_url: str) -> None:
    q = await Penstock(database_url).open()
    await q.queue("jobs").create()
    await q.queue("jobs").push(numbered_events(2))
    started, finish = asyncio.Event(), asyncio.Event()

    async def handler(event: Event) -> None:
        started.set()
        await finish.wait()

    consuming = asyncio.create_task(q.queue("jobs").batch(2).each().consume(handler))
    await started.wait()
    closing = asyncio.create_task(q.close())
    await asyncio.sleep(0)
    finish.set()
    await closing

    assert await consuming == ConsumeResult(completed=1)


async def test_a_handler_cannot_close_its_client(q: Penstock, jobs: QueueHandle) -> None:
    await jobs.push(numbered_events(1))

    async def handler(event: Event) -> None:
        with pytest.raises(PenstockError, match="given to consume"):
            await q.close()

    assert await jobs.each().consume(handler, idle_seconds=0) == ConsumeResult(completed=1)


async def test_concurrent_workers_keep_the_order_of_each_partition(jobs: QueueHandle) -> None:
    keys = [f"k{n}" for n in range(8)]
    await jobs.push([{"data": {"seq": n}, "key": key} for n in range(20) for key in keys])
    seen: dict[str | None, list[int]] = {}
    running: set[str | None] = set()
    most_running = 0

    async def handler(events: list[Event]) -> None:
        nonlocal most_running
        mine = {event.key for event in events}
        assert not mine & running
        running.update(mine)
        most_running = max(most_running, len(running))
        await asyncio.sleep(0)
        for event in events:
            seen.setdefault(event.key, []).append(event.data["seq"])
        running.difference_update(mine)

    consumed = await jobs.partitions(1).batch(3).consume(handler, concurrency=4, limit=160)

    assert consumed == ConsumeResult(completed=160)
    assert seen == {key: list(range(20)) for key in keys}
    assert most_running <= 4


async def test_consuming_a_missing_queue_raises_not_found(q: Penstock) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        await q.queue("nowhere").consume(Recorder(), concurrency=3)

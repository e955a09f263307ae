from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Consumed, Event, NotFound, Penstock, PenstockError
from penstock.client import delivery
from penstock.client.queue import QueueHandle
from tests.client.conditions import PATIENCE, eventually, numbered, seqs


@pytest.fixture
async def jobs(q: Penstock) -> QueueHandle:
    await q.queue("jobs").config(retry_limit=1, retry_delay_ms=0).create()
    return q.queue("jobs").group("g").batch(10).partitions(10)


class Recorder:
    """A handler that notes what it gets and fails on what it is told to."""

    def __init__(self, fails: Callable[[int], bool] = lambda seq: False) -> None:
        self.calls: list[Any] = []
        self._fails = fails

    async def __call__(self, given: Event | list[Event]) -> None:
        got = given.data["seq"] if isinstance(given, Event) else seqs(given)
        self.calls.append(got)
        if any(self._fails(seq) for seq in ([got] if isinstance(got, int) else got)):
            raise ValueError(f"cannot do {got}")


async def test_a_handler_gets_lists_and_what_it_returns_from_is_completed(jobs: QueueHandle) -> None:
    await jobs.push(numbered(25))
    handler = Recorder()

    consumed = await jobs.consume(handler, idle_seconds=0)

    assert handler.calls == [list(range(10)), list(range(10, 20)), list(range(20, 25))]
    assert consumed == Consumed(completed=25, failed=0)
    assert await jobs.lag() == 0


async def test_each_hands_over_one_event_at_a_time_in_order(jobs: QueueHandle) -> None:
    await jobs.push(numbered(12))
    handler = Recorder()

    await jobs.each().consume(handler, idle_seconds=0)

    assert handler.calls == list(range(12))


async def test_a_failure_completes_what_came_before_and_repeats_the_rest(jobs: QueueHandle) -> None:
    await jobs.push(numbered(5))
    failures = iter([True])
    handler = Recorder(lambda seq: seq == 2 and next(failures, False))

    consumed = await jobs.each().consume(handler, idle_seconds=0)

    assert handler.calls == [0, 1, 2, 2, 3, 4]
    assert consumed == Consumed(completed=5, failed=1)
    assert await jobs.dlq().count() == 0


async def test_an_event_that_fails_for_good_is_a_dead_letter_and_its_neighbours_go_on(jobs: QueueHandle) -> None:
    await jobs.push(numbered(5))
    handler = Recorder(lambda seq: seq == 2)

    consumed = await jobs.each().consume(handler, idle_seconds=0)

    assert handler.calls == [0, 1, 2, 2, 3, 4]
    assert consumed == Consumed(completed=4, failed=2)
    assert await jobs.lag() == 0
    (letter,) = await jobs.dlq().list()
    assert (letter.data, letter.error, letter.attempts) == ({"seq": 2}, "ValueError: cannot do 2", 2)


async def test_the_traceback_of_a_dead_letter_begins_in_the_handler(jobs: QueueHandle) -> None:
    await jobs.push(numbered(1))

    def handler(event: Event) -> None:
        raise ValueError("here")

    await jobs.each().consume(handler, idle_seconds=0)

    (letter,) = await jobs.dlq().list()
    assert letter.traceback is not None
    assert letter.traceback.splitlines()[1].endswith("in handler")


async def test_a_failure_in_one_partition_does_not_hold_up_another(jobs: QueueHandle) -> None:
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


async def test_a_list_that_fails_is_tried_one_by_one_so_that_only_the_bad_event_pays(jobs: QueueHandle) -> None:
    await jobs.push(numbered(4))
    handler = Recorder(lambda seq: seq == 1)

    consumed = await jobs.consume(handler, idle_seconds=0)

    first_delivery, second_delivery = [[0, 1, 2, 3], [0], [1]], [[1, 2, 3], [1], [2], [3]]
    assert handler.calls == first_delivery + second_delivery
    assert consumed == Consumed(completed=3, failed=2)
    (letter,) = await jobs.dlq().list()
    assert letter.data == {"seq": 1}


async def test_a_plain_function_is_called_in_a_thread_and_may_block(jobs: QueueHandle) -> None:
    await jobs.push(numbered(2))
    release, threads = threading.Event(), set()

    def handler(event: Event) -> None:
        threads.add(threading.current_thread().name)
        assert release.wait(PATIENCE)

    consuming = asyncio.create_task(jobs.each().consume(handler, limit=2))
    await jobs.push(numbered(1))
    release.set()

    assert await consuming == Consumed(completed=2)
    assert threading.current_thread().name not in threads


async def test_a_function_may_return_something_to_await(jobs: QueueHandle) -> None:
    await jobs.push(numbered(1))
    handler = Recorder()

    await jobs.each().consume(lambda event: handler(event), idle_seconds=0)

    assert handler.calls == [0]


async def test_a_plain_function_may_fail_in_odd_ways(jobs: QueueHandle) -> None:
    await jobs.push(numbered(1))

    def handler(event: Event) -> None:
        next(iter([]))

    await jobs.each().consume(handler, idle_seconds=0)

    (letter,) = await jobs.dlq().list()
    assert "StopIteration" in letter.error


async def test_a_handler_that_exits_ends_the_consumer_and_puts_its_event_back(jobs: QueueHandle) -> None:
    await jobs.push(numbered(2))

    def handler(event: Event) -> None:
        if event.data["seq"] == 1:
            raise SystemExit(3)

    with pytest.raises(SystemExit):
        await jobs.each().consume(handler)

    (event,) = await jobs.pop()
    assert (event.data["seq"], event.attempts) == (1, 0)


async def test_the_lease_is_renewed_while_the_handler_runs(q: Penstock, jobs: QueueHandle) -> None:
    await jobs.push(numbered(1))
    renewed = asyncio.Event()

    async def handler(event: Event) -> None:
        assert event.delivery.lease_until is not None
        end_of_lease = event.delivery.lease_until

        async def lasts_longer() -> bool:
            (lane,) = await jobs.lanes()
            return lane.available_at > end_of_lease

        await eventually(lasts_longer)
        renewed.set()

    consumed = await jobs.each().lease_seconds(1).consume(handler, limit=1)

    assert renewed.is_set()
    assert consumed == Consumed(completed=1)


async def test_the_lease_time_of_the_queue_is_what_is_renewed_by_default(q: Penstock, jobs: QueueHandle) -> None:
    await jobs.config(lease_time=1).create()
    await test_the_lease_is_renewed_while_the_handler_runs(q, jobs)


async def test_what_was_handled_under_a_lost_lease_does_not_count_and_comes_again(jobs: QueueHandle) -> None:
    await jobs.push(numbered(3))
    calls: list[list[int]] = []

    async def handler(events: list[Event]) -> None:
        calls.append(seqs(events))
        if len(calls) == 1:
            await jobs.seek("beginning")  # somebody moves the group, which ends its leases

    consumed = await jobs.consume(handler, idle_seconds=0)

    assert calls == [[0, 1, 2], [0, 1, 2]]
    assert consumed == Consumed(completed=3)


async def test_once_a_lease_is_lost_the_rest_is_left_to_who_gets_it_next(
    jobs: QueueHandle, caplog: pytest.LogCaptureFixture
) -> None:
    await jobs.push(numbered(3))
    seen: list[int] = []

    async def noticed() -> bool:
        return "a lease has ended" in caplog.text

    async def handler(event: Event) -> None:
        seen.append(event.data["seq"])
        if len(seen) == 1:
            await jobs.seek("beginning")
            await eventually(noticed)

    await jobs.each().lease_seconds(1).consume(handler, idle_seconds=0)

    assert seen == [0, 0, 1, 2]


async def test_what_is_done_is_reported_while_the_rest_of_a_batch_takes_its_time(
    jobs: QueueHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_REPORT_SECONDS", 0.0)
    await jobs.push(numbered(3))
    lags: list[int] = []

    async def handler(event: Event) -> None:
        lags.append(await jobs.lag())

    await jobs.each().consume(handler, idle_seconds=0)

    assert lags == [3, 2, 1]


async def test_it_stops_after_the_limit_and_leaves_the_rest(jobs: QueueHandle) -> None:
    await jobs.push(numbered(25))
    handler = Recorder()

    consumed = await jobs.consume(handler, limit=12)

    assert consumed.completed == 12
    assert handler.calls == [list(range(10)), [10, 11]]
    assert seqs(await jobs.batch(1).pop()) == [12]


@pytest.mark.parametrize("kind", [asyncio.Event, threading.Event])
async def test_a_consumer_that_waits_stops_when_it_is_told(
    jobs: QueueHandle, kind: type[asyncio.Event] | type[threading.Event]
) -> None:
    stop = kind()
    consuming = asyncio.create_task(jobs.consume(Recorder(), stop=stop))

    async def subscribed() -> bool:
        return (await jobs.describe()).groups != []

    await eventually(subscribed)
    stop.set()

    async with asyncio.timeout(PATIENCE):
        assert await consuming == Consumed()


async def test_stopping_finishes_the_event_in_hand_and_puts_back_the_rest(jobs: QueueHandle) -> None:
    await jobs.push(numbered(5))
    stop, seen = asyncio.Event(), []

    async def handler(event: Event) -> None:
        seen.append(event.data["seq"])
        if event.data["seq"] == 1:
            stop.set()

    consumed = await jobs.each().consume(handler, stop=stop)

    assert (seen, consumed) == ([0, 1], Consumed(completed=2))
    rest = await jobs.pop()
    assert seqs(rest) == [2, 3, 4]
    assert rest[0].attempts == 0


async def test_cancelling_finishes_the_event_in_hand_and_puts_back_the_rest(jobs: QueueHandle) -> None:
    await jobs.push(numbered(3))
    entered, leave = asyncio.Event(), asyncio.Event()

    async def handler(event: Event) -> None:
        entered.set()
        await leave.wait()

    consuming = asyncio.create_task(jobs.each().consume(handler))
    await entered.wait()
    consuming.cancel()
    leave.set()

    with pytest.raises(asyncio.CancelledError):
        await consuming
    assert seqs(await jobs.pop()) == [1, 2]


async def test_cancelling_twice_interrupts_the_handler_and_puts_everything_back(jobs: QueueHandle) -> None:
    for key in "ab":
        await jobs.key(key).push(numbered(2))
    entered, never = asyncio.Event(), asyncio.Event()

    async def handler(event: Event) -> None:
        entered.set()
        await never.wait()

    consuming = asyncio.create_task(jobs.each().consume(handler))
    await entered.wait()
    consuming.cancel()
    await asyncio.sleep(0)
    consuming.cancel()

    with pytest.raises(asyncio.CancelledError):
        await consuming
    assert seqs(await jobs.pop()) == [0, 1, 0, 1]


async def test_a_cancelled_wait_leaves_no_lease_behind(jobs: QueueHandle) -> None:
    for seq in range(5):
        consuming = asyncio.create_task(jobs.consume(Recorder()))
        await jobs.push(numbered(1, start=seq))
        consuming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consuming

        async def drained() -> bool:
            await jobs.consume(Recorder(), idle_seconds=0)
            return await jobs.lag() == 0

        await eventually(drained)


async def test_closing_the_client_lets_consumers_finish(database_url: str) -> None:
    q = await Penstock(database_url).open()
    await q.queue("jobs").create()
    await q.queue("jobs").push(numbered(2))
    entered, leave = asyncio.Event(), asyncio.Event()

    async def handler(event: Event) -> None:
        entered.set()
        await leave.wait()

    consuming = asyncio.create_task(q.queue("jobs").batch(2).each().consume(handler))
    await entered.wait()
    closing = asyncio.create_task(q.close())
    await asyncio.sleep(0)
    leave.set()
    await closing

    assert await consuming == Consumed(completed=1)


async def test_a_handler_cannot_close_its_client(q: Penstock, jobs: QueueHandle) -> None:
    await jobs.push(numbered(1))

    async def handler(event: Event) -> None:
        with pytest.raises(PenstockError, match="given to consume"):
            await q.close()

    assert await jobs.each().consume(handler, idle_seconds=0) == Consumed(completed=1)


async def test_workers_share_the_partitions_and_each_keeps_its_order(jobs: QueueHandle) -> None:
    keys = [f"k{n}" for n in range(8)]
    await jobs.push([{"data": {"seq": n}, "key": key} for n in range(20) for key in keys])
    seen: dict[str | None, list[int]] = {}
    at_work: set[str | None] = set()
    most = 0

    async def handler(events: list[Event]) -> None:
        nonlocal most
        mine = {event.key for event in events}
        assert not mine & at_work
        at_work.update(mine)
        most = max(most, len(at_work))
        await asyncio.sleep(0)
        for event in events:
            seen.setdefault(event.key, []).append(event.data["seq"])
        at_work.difference_update(mine)

    consumed = await jobs.partitions(1).batch(3).consume(handler, concurrency=4, limit=160)

    assert consumed == Consumed(completed=160)
    assert seen == {key: list(range(20)) for key in keys}
    assert most <= 4


async def test_a_consumer_of_a_queue_that_is_not_there_says_so(q: Penstock) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        await q.queue("nowhere").consume(Recorder(), concurrency=3)

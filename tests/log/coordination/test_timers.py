"""Timers push their event once, when it is due."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from penstock.core import json
from penstock.core.clock import Clock
from penstock.core.errors import IdempotencyConflict, InvalidEvent, InvalidRequest, NotFound, PenstockError
from penstock.log.coordination.timers import TimerOperation
from penstock.log.dead_letters.dead_letter import DeadLetterFilter
from penstock.log.log import Log
from penstock.log.read.pop_request import PopRequest
from tests.conditions import eventually_async
from tests.corpus.hostile import NAMES
from tests.log.logs import QUEUE, drain

GROUP = "workers"


def schedule(key: str, data: Any, seconds: float, **options: Any) -> TimerOperation:
    return TimerOperation("schedule", QUEUE, key, Raw(json.encode(data)), seconds, **options)


def cancel(key: str) -> TimerOperation:
    return TimerOperation("cancel", QUEUE, key)


async def statuses(log: Log, *operations: TimerOperation) -> list[str]:
    return [result.status for result in await log.timers.apply(operations)]


async def fire_all(log: Log) -> None:
    """Wait until no timer is left. The upkeep of the log may fire some of them at the same time."""

    async def is_done() -> bool:
        return await log.due_timers.fire() is None

    await eventually_async(is_done)


async def read_all(log: Log) -> list[Any]:
    return [event.data for event in await drain(log)]


async def test_an_event_is_pushed_when_it_is_due(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE)
    assert await statuses(log, schedule("a", {"n": 1}, 60, event_key="k", event_id="id-1")) == ["scheduled"]
    await log.due_timers.fire()
    assert await read_all(log) == []
    clock.advance(61)
    await fire_all(log)
    (event,) = await drain(log)
    assert (event.data, event.key, event.id) == ({"n": 1}, "k", "id-1")
    await log.due_timers.fire()
    assert await read_all(log) == []


async def test_the_running_log_fires_without_a_call(log: Log) -> None:
    await log.configure(QUEUE)
    await log.timers.apply([schedule("later", 2, 0.3), schedule("past", 1, -5)])
    request = PopRequest(QUEUE, GROUP, wait_seconds=20, auto_ack=True)
    assert [event.data for event in [*await log.pop(request), *await log.pop(request)]] == [1, 2]


async def test_a_repetition_with_the_same_key_schedules_nothing(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"dedup_window_seconds": 0})
    operations = [schedule("a", 1, 60), schedule("b", 2, 0, event_id="id-b"), cancel("c")]
    first = await log.timers.apply(operations, idempotency_key="request-1")
    clock.advance(61)
    await fire_all(log)
    assert await log.timers.apply(operations, idempotency_key="request-1") == first
    await fire_all(log)
    assert [result.status for result in first] == ["scheduled", "scheduled", "absent"]
    assert sorted(await read_all(log)) == [1, 2]


async def test_a_key_of_other_timers_is_refused(log: Log) -> None:
    await log.configure(QUEUE)
    await log.timers.apply([schedule("a", 1, 60)], idempotency_key="request-1")
    with pytest.raises(IdempotencyConflict):
        await log.timers.apply([schedule("a", 2, 60)], idempotency_key="request-1")
    timer = await log.timers.find(QUEUE, "a")
    assert timer is not None
    assert timer.data == "1"


async def test_a_refused_request_does_not_use_up_its_key(log: Log) -> None:
    operations = [schedule("a", 1, 60)]
    with pytest.raises(NotFound):
        await log.timers.apply(operations, idempotency_key="request-1")
    await log.configure(QUEUE)
    assert (await log.timers.apply(operations, idempotency_key="request-1"))[0].status == "scheduled"


async def test_a_timer_that_another_process_has_scheduled_is_fired(log: Log, other_log: Log, clock: Clock) -> None:
    await log.configure(QUEUE)
    await other_log.timers.apply([schedule("a", 1, 60)])
    clock.advance(61)
    await fire_all(log)
    assert await read_all(log) == [1]


async def test_many_processes_push_each_event_once(log: Log, other_log: Log, clock: Clock) -> None:
    await log.configure(QUEUE)
    await log.configure("other")
    for start in range(0, 1200, 600):
        await log.timers.apply([schedule(f"timer {n}", n, 60) for n in range(start, start + 600)])
    clock.advance(61)
    await asyncio.gather(*(each.due_timers.fire() for _ in range(3) for each in (log, other_log)))
    await fire_all(log)
    assert sorted(await read_all(log)) == list(range(1200))


async def test_scheduling_again_replaces_and_cancelling_removes(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE)
    assert await statuses(log, schedule("a", "old", 10), schedule("b", "cancelled", 10)) == ["scheduled"] * 2
    assert await statuses(log, schedule("a", "new", 30), cancel("b"), cancel("c")) == [
        "rescheduled",
        "cancelled",
        "absent",
    ]
    clock.advance(20)
    await log.due_timers.fire()
    assert await read_all(log) == []
    clock.advance(20)
    await fire_all(log)
    assert await read_all(log) == ["new"]
    assert await statuses(log, cancel("a")) == ["absent"]


async def test_a_timer_that_an_open_transaction_cancels_does_not_hold_back_others(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE)
    await log.timers.apply([schedule("cancelled", 1, 10), schedule("other", 2, 10)])
    clock.advance(11)
    async with log.database.connection() as conn, conn.transaction():
        await log.timers.apply_on(conn, [cancel("cancelled")])
        assert await log.due_timers.fire() is not None
        assert await read_all(log) == [2]
    await log.due_timers.fire()
    assert await read_all(log) == []


async def test_a_rolled_back_transaction_schedules_nothing(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE)
    async with log.database.connection() as conn, conn.transaction(force_rollback=True):
        await log.timers.apply_on(conn, [schedule("a", 1, 10)])
    clock.advance(11)
    await log.due_timers.fire()
    assert await read_all(log) == []


async def test_timers_ignore_the_maximum_depth(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"max_depth_events": 1})
    await log.subscribe(QUEUE, GROUP)
    await log.timers.apply([schedule(f"timer {n}", n, 10) for n in range(5)])
    clock.advance(11)
    await fire_all(log)
    assert sorted(await read_all(log)) == list(range(5))


async def test_an_event_that_the_queue_no_longer_accepts_becomes_a_dead_letter(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE)
    await log.timers.apply([schedule("large", "x" * 5000, 10), schedule("small", 1, 10)])
    await log.configure(QUEUE, {"max_event_bytes": 1024})
    clock.advance(11)
    await fire_all(log)
    assert await read_all(log) == [1]
    (letter,) = await log.dead_letters(DeadLetterFilter(queue=QUEUE))
    assert letter.data == "x" * 5000


async def test_large_events_are_fired_in_portions(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE)
    text = "x" * (1 << 19)
    for n in range(40):
        await log.timers.apply([schedule(f"timer {n:02}", f"{n}{text}", 10 + n / 1000)])
    clock.advance(11)
    await fire_all(log)
    assert sorted(int(data.rstrip("x")) for data in await read_all(log)) == list(range(40))


async def test_data_that_looks_encrypted_is_pushed_as_it_is(log: Log) -> None:
    await log.configure(QUEUE)
    await log.timers.apply([schedule("a", "encrypted:text", -1), schedule("b", "other", -1)])
    await fire_all(log)
    assert sorted(await read_all(log)) == ["encrypted:text", "other"]


async def test_a_queue_whose_timers_cannot_be_fired_does_not_hold_back_others(
    log: Log, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    await log.configure("broken")
    await log.configure(QUEUE)
    await log.timers.apply([TimerOperation("schedule", "broken", "a", Raw(b"1"), 10), schedule("a", 1, 11)])
    async with log.database.connection() as conn:
        # Headers that only an encrypted timer has.
        await conn.execute("""UPDATE penstock.timers SET headers = '"encrypted:damaged"' WHERE due_at < (
            SELECT max(due_at) FROM penstock.timers)""")
    clock.advance(12)
    for _ in range(3):
        await log.due_timers.fire()
    assert await read_all(log) == [1]
    assert sum("'broken' cannot be fired" in record.message for record in caplog.records) == 1


async def test_deleting_a_queue_deletes_its_timers(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE)
    await log.timers.apply([schedule("a", 1, 10)])
    await log.delete_queue(QUEUE)
    clock.advance(11)
    assert await log.due_timers.fire() is None
    with pytest.raises(NotFound):
        await log.timers.apply([schedule("a", 1, 10)])


async def test_invalid_timers_are_refused_as_a_whole(log: Log) -> None:
    await log.configure(QUEUE, {"max_event_bytes": 1024})
    with pytest.raises(InvalidEvent):
        await log.timers.apply([schedule("a", 1, 10), schedule("b", "x" * 2000, 10)])
    with pytest.raises(InvalidRequest, match="two for the same key"):
        await log.timers.apply([schedule("a", 1, 10), cancel("a")])
    with pytest.raises(InvalidRequest):
        await log.timers.apply([schedule("a", 1, 1e12)])
    assert await log.timers.page(QUEUE) == []


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name[:20])
async def test_hostile_keys_are_scheduled_or_refused(name: str, log: Log) -> None:
    await log.configure(QUEUE)
    try:
        await log.timers.apply([schedule(name, name, -1, event_key=name, event_id=name)])
    except (PenstockError, json.JSONProblem):
        assert await log.timers.page(QUEUE) == []
        return
    await fire_all(log)
    (event,) = await drain(log)
    assert (event.data, event.key, event.id) == (name, name, name)


async def test_sql_schedules_and_cancels(log: Log) -> None:
    await log.configure(QUEUE)
    async with log.database.connection() as conn:
        await conn.execute("SELECT penstock.schedule_timer('orders', 'b', '{}', interval '1 hour')")
        await conn.execute("SELECT penstock.schedule_timer('orders', 'a', '{\"n\": 1}', interval '0', 'customer-7')")
        cancelled = await (await conn.execute("SELECT penstock.cancel_timer('orders', 'b')")).fetchall()
    assert len(cancelled) == 1
    await fire_all(log)
    (event,) = await drain(log)
    assert (event.data, event.key) == ({"n": 1}, "customer-7")

"""Delivering and acknowledging: where queues lose, repeat or reorder events, and this one must not."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from itertools import chain
from typing import Any

import pytest
from psycopg import AsyncConnection

from penstock.core.clock import Clock
from penstock.core.errors import InvalidRequest
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.log.read import lease
from tests.log.logs import (
    GROUP,
    PATIENCE,
    QUEUE,
    by_key,
    data,
    drain,
    eventually,
    held,
    lag,
    letters,
    pop,
    push,
    waiting,
)

#: A pop that waits looks by itself after five seconds; one that was called comes much sooner.
CALLED = 4.0

HOLD_AT_COMMIT = """
CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(42);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER hold AFTER INSERT ON penstock.chunks_{queue}_1
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold();
"""


# Order


async def test_a_push_that_commits_late_is_delivered_and_in_order(log: Log, other_log: Log, database_url: str) -> None:
    queue = await log.configure(QUEUE)
    await push(log, ["first"], key="ada")
    async with held(database_url, HOLD_AT_COMMIT.format(queue=queue.id)) as conn:
        await conn.commit()
    async with held(database_url, "SELECT pg_advisory_xact_lock(42)"):
        early = asyncio.create_task(push(log, ["early"], key="ada"))
        await waiting(database_url)
        late = asyncio.create_task(push(other_log, ["late"], key="ada"))
        await waiting(database_url, 2)
        assert data(await drain(other_log)) == ["first"]
        assert not early.done()
        assert not late.done()
    assert [(await early)[0].offset, (await late)[0].offset] == [1, 2]
    assert data(await drain(log)) == ["early", "late"]


async def test_a_slow_push_holds_up_nobody_in_another_lane(log: Log, other_log: Log, database_url: str) -> None:
    await log.configure(QUEUE)
    await push(log, [1], key="ada")
    async with held(database_url, "SELECT FROM penstock.partitions WHERE name = 'ada' FOR NO KEY UPDATE"):
        slow = asyncio.create_task(push(log, [2], key="ada"))
        await waiting(database_url)
        await push(other_log, [3], key="bob")
        assert by_key(await drain(other_log)) == {"ada": [1], "bob": [3]}
    await slow
    assert data(await drain(log)) == [2]


async def test_a_failed_event_is_redelivered_with_those_after_it(log: Log) -> None:
    await log.configure(QUEUE, {"retry_delay_ms": 0})
    await push(log, range(5))
    events = await pop(log)
    said = ["completed", "completed", "failed", "completed", "completed"]
    results = await log.ack_each([(event, status, "") for event, status in zip(events, said, strict=True)])
    assert [bool(result) for result in results] == [True, True, True, False, False]
    assert "held back" in str(results[3].error)
    assert data(await drain(log)) == [2, 3, 4]
    assert await letters(log) == []


async def test_events_of_a_key_stay_in_order_through_failures(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"retry_limit": 2, "retry_delay_ms": 1000}, partitioning="hash", partitions=2)
    keys = [f"key {i}" for i in range(5)]
    chance = random.Random(1)
    for i in range(60):
        await push(log, [i], key=chance.choice(keys))
    completed: list[Event] = []
    while await lag(log) if completed else True:
        clock.advance(2)
        for event in await pop(log, batch=chance.randint(1, 9)):
            status = chance.choice(["completed", "failed", "retry"])
            (result,) = await log.ack_each([(event, status, "")])
            if result and status == "completed":
                completed.append(event)
    dead = {letter.data for letter in await letters(log)}
    assert sorted(data(completed) + list(dead)) == list(range(60))
    for numbers in by_key(completed).values():
        assert numbers == sorted(numbers)


# Finding what is there


async def test_a_pop_straight_after_a_push_finds_it(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    for i in range(100):
        pusher, popper = (log, other_log) if i % 2 else (other_log, log)
        await push(pusher, [i], key=f"key {i % 7}")
        assert data(await pop(popper, auto_ack=True)) == [i]


PUSHER = """
import asyncio, sys
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.log import Batch, Log

async def main() -> None:
    log = await Log(Database(Settings(database_url=sys.argv[1]))).open()
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        await log.push([Batch(sys.argv[2], [{"data": line.strip()}])])
        print("pushed", flush=True)
    await log.close()

asyncio.run(main())
"""


async def test_a_waiting_pop_is_woken_by_another_process(log: Log, database_url: str) -> None:
    await log.configure(QUEUE)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PUSHER, database_url, QUEUE, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    for i in range(5):
        popped = asyncio.create_task(pop(log, wait_seconds=PATIENCE, auto_ack=True))
        await asyncio.sleep(0)
        process.stdin.write(b"%d\n" % i)
        assert await process.stdout.readline() == b"pushed\n"
        # What another process has pushed is there for a pop that does not wait, and wakes one that does.
        async with asyncio.timeout(CALLED):
            assert data(await popped) == [str(i)]
    process.stdin.close()
    assert await process.wait() == 0


async def test_no_push_is_missed_between_look_and_wait(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    chance = random.Random(2)
    for i in range(150):
        popped = asyncio.create_task(pop(log, wait_seconds=PATIENCE, auto_ack=True))
        for _ in range(chance.randrange(30)):
            await asyncio.sleep(0)
        await push(other_log if i % 3 else log, [i])
        async with asyncio.timeout(CALLED):
            assert data(await popped) == [i]


async def test_a_waiting_pop_comes_back_empty_when_its_time_is_up(log: Log) -> None:
    await log.configure(QUEUE)
    began = time.monotonic()
    assert await pop(log, wait_seconds=0.2) == []
    assert 0.2 <= time.monotonic() - began < CALLED


async def test_a_waiting_pop_comes_when_a_lease_ends(log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, [1])
    await pop(log, lease_seconds=0.3)
    async with asyncio.timeout(CALLED):
        assert data(await pop(log, wait_seconds=PATIENCE)) == [1]


async def test_pops_that_wait_together_look_for_the_next_moment_together(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log.configure(QUEUE)
    await push(log, [1])
    (event,) = await pop(log)
    looks = 0
    fetch = lease._fetch

    async def counted(name: str, params: dict[str, Any], conn: AsyncConnection[Any]) -> list[Any]:
        nonlocal looks
        looks += name == "next_moment"
        return await fetch(name, params, conn)

    monkeypatch.setattr(lease, "_fetch", counted)
    pops = [asyncio.create_task(pop(log, wait_seconds=PATIENCE)) for _ in range(50)]
    await eventually(lambda: _are_waiting(log, 50))
    assert looks <= 5
    await log.ack([event], "retry")
    done, rest = await asyncio.wait(pops, return_when=asyncio.FIRST_COMPLETED)
    assert [data(task.result()) for task in done] == [[1]]
    for task in rest:
        task.cancel()
    await asyncio.wait(rest)


async def _are_waiting(log: Log, most: int) -> bool:
    queue = await log.catalog.get(QUEUE)
    return len(log._signals._wakers.get(queue.id, ())) >= most


async def test_a_waiting_pop_comes_when_another_gives_back(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE, {"retry_delay_ms": 0})
    await push(log, [1, 2])
    events = await pop(log, batch=1)
    waiter = asyncio.create_task(pop(other_log, wait_seconds=PATIENCE))
    await asyncio.sleep(0)
    await log.ack(events)
    async with asyncio.timeout(CALLED):
        assert data(await waiter) == [2]


async def test_a_cancelled_pop_keeps_no_lease(log: Log) -> None:
    await log.configure(QUEUE)
    for i in range(30):
        await push(log, [i])
        cancelled = asyncio.create_task(pop(log))
        for _ in range(i):
            await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        if cancelled.cancelled():
            async with asyncio.timeout(CALLED):
                assert data(await pop(log, wait_seconds=PATIENCE, auto_ack=True)) == [i]
        else:
            await log.ack(cancelled.result())


# Leases


async def test_a_consumer_whose_lease_went_elsewhere_cannot_ack(log: Log, other_log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"lease_seconds": 60})
    await push(log, range(3))
    paused = await pop(log)
    clock.advance(61)
    taken = await pop(other_log)
    assert data(taken) == data(paused)
    for status in ("completed", "failed", "retry", "dead_letter"):
        results = await log.ack(paused, status)
        assert not any(results)
        assert all("late" in str(result.error) for result in results)
    assert await letters(log) == []
    assert all(await other_log.ack(taken))
    assert await lag(log) == 0
    assert all(result.noop for result in await log.ack(paused))


async def test_a_late_ack_says_so(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"lease_seconds": 60})
    await push(log, [1])
    events = await pop(log)
    clock.advance(61)
    (result,) = await log.ack(events)
    assert not result
    assert "late" in str(result.error)
    assert data(await drain(log)) == [1]


async def test_an_extended_lease_lasts(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"lease_seconds": 60})
    await push(log, [1], key="ada")
    await push(log, [2], key="bob")
    events = await pop(log)
    clock.advance(50)
    assert await log.extend(events, 60) is not None
    clock.advance(50)
    assert await pop(log) == []
    assert all(await log.ack(events))
    assert await log.extend(events, 60) is None


async def test_a_lease_is_never_made_shorter(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"lease_seconds": 60})
    await push(log, [1])
    events = await pop(log)
    await log.extend(events, 1)
    clock.advance(30)
    assert all(await log.ack(events))


async def test_two_consumers_never_hold_one_partition(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    for i in range(200):
        await push(log, [i], key=f"key {i % 4}")
    holders: set[int] = set()
    got: list[Event] = []

    async def consume(mine: Log) -> None:
        while len(got) < 200:
            events = await pop(mine, batch=3, partitions=2)
            lanes = {event.partition_id for event in events}
            assert not lanes & holders
            holders.update(lanes)
            await asyncio.sleep(0)
            holders.difference_update(lanes)
            assert all(await mine.ack(events))
            got.extend(events)

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(consume(mine) for mine in [log, other_log] * 4))
    assert by_key(got) == {f"key {k}": list(range(k, 200, 4)) for k in range(4)}


async def test_a_pop_takes_no_more_than_it_asks_for(log: Log) -> None:
    await log.configure(QUEUE)
    for i in range(30):
        await push(log, [i], key=f"key {i % 6}")
    for batch, partitions in [(1, 1), (4, 1), (7, 2), (3, 6), (30, 2)]:
        events = await pop(log, batch=batch, partitions=partitions)
        assert 0 < len(events) <= batch
        assert len({event.partition_id for event in events}) <= partitions
        await log.ack(events, "retry")


async def test_consumers_who_ask_together_share(log: Log) -> None:
    await log.configure(QUEUE)
    for i in range(20):
        await push(log, [i], key=f"key {i}")
    shares = await asyncio.gather(*(pop(log, batch=2, partitions=2) for _ in range(10)))
    assert [len(share) for share in shares] == [2] * 10
    assert sorted(data(chain(*shares))) == list(range(20))


async def test_a_lane_that_comes_back_to_life_has_its_turn_at_once(log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, range(10), key="ada")
    await push(log, ["gone"], key="bob")
    for _ in range(6):  # the lane of bob is drained meanwhile, and found to be
        await log.ack(await pop(log, batch=1, partitions=1))
    await push(log, ["back"], key="bob")
    events = [await pop(log, batch=1, partitions=1) for _ in range(2)]
    assert "back" in data(chain.from_iterable(events))


async def test_lanes_that_come_to_life_are_not_passed_by_for_long(log: Log) -> None:
    await log.configure(QUEUE)
    for key in ("ada", "bob"):
        await push(log, range(100), key=key)
    await push(log, ["gone"], key="cyd")

    async def turn() -> list[Any]:
        popped = await asyncio.gather(*(pop(log, batch=1, partitions=1) for _ in range(2)))
        events = list(chain.from_iterable(popped))
        await log.ack(events)
        return data(events)

    for _ in range(10):
        await turn()
    await push(log, ["back"], key="cyd")
    assert "back" in [each for _ in range(12) for each in await turn()]


async def test_every_lane_has_its_turn(log: Log) -> None:
    await log.configure(QUEUE)
    for i in range(10):
        for n in range(10):
            await push(log, [n], key=f"key {i}")
    served: Counter[str | None] = Counter()
    for _ in range(30):
        events = await pop(log, batch=1)
        served.update(event.key for event in events)
        await log.ack(events)
    assert set(served.values()) == {3}


# What is said of an event


async def test_completing_twice_changes_nothing(log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, range(3))
    events = await pop(log)
    await log.ack(events[:2])
    results = await log.ack_each([(event, True, "") for event in events[:2]])
    assert [(result.success, result.noop) for result in results] == [(True, True)] * 2
    assert await lag(log) == 1
    assert all(await log.ack(events[2:]))


@pytest.mark.parametrize("status", ["failed", "retry", "dead_letter"])
async def test_what_was_completed_cannot_fail(log: Log, status: str) -> None:
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


async def test_events_given_back_are_there_at_once(log: Log) -> None:
    await log.configure(QUEUE, {"retry_delay_ms": 60_000})
    await push(log, range(3))
    await log.ack(await pop(log), "retry")
    assert data(await pop(log)) == [0, 1, 2]


async def test_a_failed_event_waits_for_its_retry(log: Log, clock: Clock) -> None:
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


async def test_giving_back_and_lease_expiry_cost_no_retries(log: Log, clock: Clock) -> None:
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


async def test_a_dead_letter_does_not_stop_its_neighbours(log: Log) -> None:
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


async def test_an_event_that_is_spoken_of_twice_dies_once(log: Log) -> None:
    await log.configure(QUEUE, {"retry_limit": 0})
    await push(log, range(2))
    first, second = await pop(log)
    await log.ack_each([(first, "dead_letter", ""), (first, "dead_letter", ""), (first, False, "")])
    await log.ack_each([(second, True, ""), (second, "dead_letter", "")])
    assert data(await drain(log)) == []
    assert [letter.data for letter in await letters(log)] == [0]


async def test_an_event_does_not_get_more_retries_because_another_dies(log: Log) -> None:
    await log.configure(QUEUE, {"retry_limit": 1, "retry_delay_ms": 0})
    await push(log, ["bad", "other", "another"])
    deliveries = 0
    while events := [event for event in await pop(log) if event.data == "bad"]:
        deliveries += 1
        rest = [event for event in await pop(log) if event.data != "bad"]
        await log.ack(rest[:1], "dead_letter")
        await log.ack(events, False)
    assert deliveries == 2


async def test_what_was_read_and_not_popped_cannot_be_acked(log: Log) -> None:
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


# Delay


async def test_a_delayed_event_comes_when_it_is_due(log: Log, clock: Clock) -> None:
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


async def test_a_delayed_event_that_is_committed_at_delivery_is_committed_alone(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"delay_seconds": 60})
    await push(log, [1])
    clock.advance(30)
    await push(log, [2])
    clock.advance(31)
    assert data(await pop(log, auto_ack=True)) == [1]
    assert await lag(log) == 1
    clock.advance(30)
    assert data(await drain(log)) == [2]


async def test_what_is_due_is_not_hidden_by_what_is_not(log: Log, clock: Clock) -> None:
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


async def test_a_waiting_pop_comes_when_an_event_is_due(log: Log) -> None:
    await log.configure(QUEUE, {"delay_seconds": 0.3})
    await push(log, [1])
    assert await pop(log) == []
    async with asyncio.timeout(CALLED):
        assert data(await pop(log, wait_seconds=PATIENCE)) == [1]

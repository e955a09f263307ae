"""Pushing: all or nothing, once, and without taking more than its share."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.core.clock import Clock
from penstock.core.errors import Conflict, IdempotencyConflict, InvalidEvent, NotFound, QueueFull
from penstock.log.dead_letters import Filter
from penstock.log.log import Batch, Log
from penstock.log.queue import Queue
from penstock.log.write.result import Pushed, PushResult
from tests.log.logs import PATIENCE, QUEUE, ask, by_key, data, drain, eventually, letters, opened, pop, push

Answer = list[tuple[str, int, str | None, bool]]


def answer(result: PushResult) -> Answer:
    return [(pushed.partition, pushed.offset, pushed.id, pushed.duplicate) for pushed in result]


# What a push answers


async def test_a_push_says_where_each_event_went(log: Log) -> None:
    await log.configure(QUEUE)
    keys = ["ada", "bob", "ada", "cyd", "bob", "ada"]
    (result,) = await log.push([Batch(QUEUE, [{"data": i, "key": key} for i, key in enumerate(keys)])])
    assert [pushed.index for pushed in result] == list(range(6))
    assert [pushed.partition for pushed in result] == keys
    assert [pushed.offset for pushed in result] == [keys[:i].count(key) for i, key in enumerate(keys)]
    assert (result.accepted, result.duplicates, len(result)) == (6, 0, 6)
    for pushed in result:
        (event,) = await log.fetch(QUEUE, pushed.partition, pushed.offset, 1)
        assert event.data == pushed.index


async def test_large_and_small_requests_share_a_lane_without_a_gap(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    sizes = [1, 5000, 3, 1, 2500, 7]
    results = await asyncio.gather(
        *(push(log if i % 2 else other_log, [(i, n) for n in range(size)], key="ada") for i, size in enumerate(sizes))
    )
    offsets = sorted(pushed.offset for result in results for pushed in result)
    assert offsets == list(range(sum(sizes)))
    stored = [tuple(event.data) for event in await drain(log)]
    for i, (size, result) in enumerate(zip(sizes, results, strict=True)):
        assert [stored[pushed.offset] for pushed in result] == [(i, n) for n in range(size)]


async def test_nothing_is_pushed_by_an_empty_request(log: Log) -> None:
    await log.configure(QUEUE)
    nothing: list[Sequence[Any] | bytes] = [[], b"", b"\n \r\n"]
    for events in nothing:
        (result,) = await log.push([Batch(QUEUE, events)])
        assert len(result) == 0
    assert await log.push([]) == []
    assert (await log.describe(QUEUE)).size.appended == 0


# All or nothing


async def test_a_request_for_several_queues_is_stored_whole(log: Log) -> None:
    names = ["a", "b", "c"]
    for name in names:
        await log.configure(name)
    results = await log.push([Batch(name, [{"data": name}] * 3, key="k") for name in names])
    assert [[pushed.queue for pushed in result] for result in results] == [[name] * 3 for name in names]
    for name in names:
        assert data(await drain(log, name)) == [name] * 3


async def test_one_bad_event_stores_nothing_of_its_request(log: Log) -> None:
    await log.configure("a")
    await log.configure("b")
    with pytest.raises(InvalidEvent) as refusal:
        await log.push([Batch("a", [{"data": 1}]), Batch("b", [{"data": 1}, {"data": float("nan")}])])
    assert (refusal.value.index, refusal.value.field) == (1, "data")
    for name in ("a", "b"):
        assert (await log.describe(name)).size.appended == 0


async def test_a_queue_that_is_gone_takes_the_whole_request_with_it(log: Log, other_log: Log) -> None:
    await log.configure("a")
    await log.configure("b")
    for i in range(2):
        await log.push([Batch(name, [{"data": i}], key="k") for name in ("a", "b")])
    await other_log.delete_queue("b")
    for key in ("k", "another"):
        with pytest.raises(NotFound, match="b"):
            await log.push([Batch(name, [{"data": 2}], key=key) for name in ("a", "b")])
    assert data(await drain(log, "a")) == [0, 1]


async def test_readers_see_all_of_a_request_or_nothing(log: Log, other_log: Log) -> None:
    await log.configure("a")
    await log.configure("b")

    async def produce() -> None:
        for i in range(40):
            await log.push([Batch(name, [{"data": i}], key="k") for name in ("a", "b")])

    producing = asyncio.create_task(produce())
    seen = 0
    while not producing.done() or seen < 40:
        # The second is looked at after the first, so it has at least as many.
        first = (await other_log.describe("a")).size.appended
        seen = (await other_log.describe("b")).size.appended
        assert seen >= first
    await producing


# Once


async def test_an_idempotency_key_answers_again_what_it_answered(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    await log.configure("second", partitioning="hash", partitions=3)
    batches = [
        Batch(QUEUE, [{"data": i, "key": f"key {i % 3}", "id": f"id {i}"} for i in range(7)]),
        Batch("second", b'{"n": 1}\n{"n": 2}', key="ada"),
    ]
    first = await log.push(batches, idempotency_key="request 1")
    for mine in (log, other_log):
        again = await mine.push(batches, idempotency_key="request 1")
        assert all(result.replayed for result in again)
        assert [answer(result) for result in again] == [answer(result) for result in first]
    assert len(await drain(log)) == 7
    assert len(await drain(log, "second")) == 2


OTHERS: dict[str, dict[str, Any]] = {
    "data": {"data": 2},
    "key": {"key": "bob"},
    "no key": {"key": None},
    "id": {"id": "other"},
    "time": {"time": "2026-01-31T12:00:01Z"},
    "headers": {"headers": {"a": "c"}},
}


@pytest.mark.parametrize("partitions", [None, 3])
@pytest.mark.parametrize("what", OTHERS)
async def test_an_idempotency_key_is_for_one_content(log: Log, what: str, partitions: int | None) -> None:
    await log.configure(QUEUE, partitioning="hash" if partitions else "key", partitions=partitions)
    event = {"data": 1, "key": "ada", "id": "a", "time": "2026-01-31T12:00:00Z", "headers": {"a": "b"}}
    await log.push([Batch(QUEUE, [event])], idempotency_key="request 1")
    with pytest.raises(IdempotencyConflict, match="request 1"):
        await log.push([Batch(QUEUE, [event | OTHERS[what]])], idempotency_key="request 1")
    assert (await log.describe(QUEUE)).size.appended == 1


async def test_an_idempotency_key_is_for_one_queue(log: Log) -> None:
    await log.configure("a")
    await log.configure("b")
    await log.push([Batch("a", [{"data": 1}])], idempotency_key="request 1")
    with pytest.raises(IdempotencyConflict):
        await log.push([Batch("b", [{"data": 1}])], idempotency_key="request 1")


async def test_the_same_request_has_the_same_content_wherever_its_events_land(log: Log) -> None:
    await log.configure(QUEUE, partitioning="hash", partitions=5)
    events: list[dict[str, Any]] = [{"data": 0, "key": "ada"}, {"data": 1}, {"data": 2, "key": "bob"}, {"data": 3}]
    for i in range(10):
        first, again = [(await log.push([Batch(QUEUE, events)], idempotency_key=f"request {i}"))[0] for _ in range(2)]
        assert again.replayed
        assert answer(again) == answer(first)


async def test_a_request_is_known_again_after_the_queue_was_repartitioned(log: Log) -> None:
    await log.configure(QUEUE)
    batch = Batch(QUEUE, [{"data": i, "key": f"key {i}"} for i in range(5)])
    (first,) = await log.push([batch], idempotency_key="request 1")
    await log.repartition(QUEUE, "hash", 2)
    (again,) = await log.push([batch], idempotency_key="request 1")
    assert again.replayed
    assert answer(again) == answer(first)


async def test_the_same_request_at_the_same_time_is_stored_once(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    for i in range(5):
        results = await asyncio.gather(
            *(push(mine, [i, i], idempotency_key=f"request {i}") for mine in [log, other_log] * 4)
        )
        assert sum(not result.replayed for result in results) == 1
        assert len({str(answer(result)) for result in results}) == 1
    assert data(await drain(log)) == [i for i in range(5) for _ in range(2)]


async def test_other_requests_under_one_key_at_the_same_time_conflict(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    outcomes = await asyncio.gather(
        *(push([log, other_log][i % 2], [i], idempotency_key="request 1") for i in range(8)), return_exceptions=True
    )
    stored = [outcome for outcome in outcomes if isinstance(outcome, PushResult)]
    assert len(stored) == 1
    assert sum(isinstance(outcome, IdempotencyConflict) for outcome in outcomes) == 7
    assert len(await drain(log)) == 1


async def test_a_request_that_was_refused_can_be_repeated_under_its_key(log: Log) -> None:
    await log.configure(QUEUE)
    with pytest.raises(InvalidEvent):
        await push(log, [1, float("inf")], idempotency_key="request 1")
    assert not (await push(log, [1, 2], idempotency_key="request 1")).replayed


async def test_an_id_is_stored_once_within_the_window(log: Log, other_log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"dedup_window_seconds": 60})
    assert answer(await push(log, ["a", "b"], key="k", ids=["1", "2"])) == [("k", 0, "1", False), ("k", 1, "2", False)]
    clock.advance(50)
    again = await push(other_log, ["c", "b", "a"], key="k", ids=["3", "2", "1"])
    assert answer(again) == [("k", 2, "3", False), ("k", 1, "2", True), ("k", 0, "1", True)]
    assert (again.accepted, again.duplicates) == (1, 2)
    clock.advance(20)
    assert answer(await push(log, ["a", "c"], key="k", ids=["1", "3"])) == [("k", 3, "1", False), ("k", 2, "3", True)]
    assert data(await drain(log)) == ["a", "b", "c", "a"]


async def test_an_id_is_stored_once_within_a_request(log: Log) -> None:
    await log.configure(QUEUE)
    result = await push(log, range(5), key="k", ids=["1", "2", "1", None, "2"])
    assert answer(result) == [
        ("k", 0, "1", False),
        ("k", 1, "2", False),
        ("k", 0, "1", True),
        ("k", 2, None, False),
        ("k", 1, "2", True),
    ]
    assert data(await drain(log)) == [0, 1, 3]


async def test_ids_of_other_keys_are_other_ids(log: Log) -> None:
    await log.configure(QUEUE)
    for key in ("ada", "bob"):
        assert (await push(log, [key], key=key, ids=["1"])).accepted == 1


async def test_the_same_id_under_two_keys_of_one_partition_is_two_events(log: Log) -> None:
    await log.configure(QUEUE, {"dedup_window_seconds": 60}, partitioning="hash", partitions=1)
    events = [{"data": key, "key": key, "id": "a"} for key in ("ada", "bob", "ada")]
    (result,) = await log.push([Batch(QUEUE, events)])
    assert [(pushed.offset, pushed.duplicate) for pushed in result] == [(0, False), (1, False), (0, True)]


@pytest.mark.parametrize(
    ("before", "after"), [(None, 3), (3, None), (2, 5), (1, 1)], ids=["to hash", "to keys", "more", "the same"]
)
async def test_an_id_is_known_when_the_queue_was_repartitioned(
    log: Log, other_log: Log, clock: Clock, before: int | None, after: int | None
) -> None:
    def kind(partitions: int | None) -> str:
        return "key" if partitions is None else "hash"

    window = {"dedup_window_seconds": 600}
    await log.configure(QUEUE, window, partitioning=kind(before), partitions=before)
    events = [{"data": n, "id": f"id {n}"} | ({"key": f"key {n % 4}"} if n % 5 else {}) for n in range(20)]
    (first,) = await log.push([Batch(QUEUE, events)])
    await other_log.repartition(QUEUE, kind(after), after)
    new = [{"data": "new", "key": "key 0", "id": "new"}, {"data": "new", "key": "key 0", "id": "new"}]
    (again,) = await log.push([Batch(QUEUE, [*events, *new])])
    assert (again.accepted, again.duplicates) == (1, 21)

    def where(result: Sequence[Pushed]) -> list[tuple[str, int, int]]:
        return [(pushed.partition, pushed.partition_id, pushed.offset) for pushed in result]

    assert where(again[:20]) == where(first)
    assert where(again[20:21]) == where(again[21:])
    clock.advance(601)
    (late,) = await log.push([Batch(QUEUE, events)])
    assert late.duplicates == 0


async def test_an_id_is_remembered_across_segments(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"dedup_window_seconds": 1000})
    for i in range(4):
        assert (await push(log, [i], key="k", ids=[f"id {i}"])).accepted == 1
        clock.advance(100)
        await log.segments.roll(await log.catalog.refresh(QUEUE))
        await log.upkeep()
        for known in range(i + 1):
            (again,) = await push(log, ["again"], key="k", ids=[f"id {known}"])
            assert (again.offset, again.duplicate) == (known, True)


async def test_the_same_id_at_the_same_time_is_stored_once(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    for i in range(5):
        results = await asyncio.gather(
            *(push(mine, [n], key="k", ids=[f"id {i}"]) for n, mine in enumerate([log, other_log] * 4))
        )
        assert sum(result.accepted for result in results) == 1
        assert {result[0].offset for result in results} == {i}
    assert len(await drain(log)) == 5


async def test_ids_are_not_looked_at_where_the_window_is_closed(log: Log) -> None:
    await log.configure(QUEUE, {"dedup_window_seconds": 0})
    for _ in range(2):
        assert (await push(log, [1], ids=["1"])).accepted == 1


# Many at once


def flushes_and_chunks(url: str, queue: Queue) -> tuple[int, int]:
    table = f"penstock.chunks_{queue.id}_{queue.segment}"
    flushes, chunks = ask(url, f"SELECT ARRAY[count(DISTINCT flush_id), count(*)] FROM {table}")  # noqa: S608
    return flushes, chunks


async def test_many_small_pushes_share_connections_and_commits(database_url: str) -> None:
    watch = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    async with opened(database_url, pool_size=4) as log:
        queue = await log.configure(QUEUE, partitioning="hash", partitions=2)
        most = 0

        async def produce(task: int) -> None:
            nonlocal most
            for i in range(20):
                await push(log, [(task, i)], key=f"key {task % 5}")
                if task == 0:
                    most = max(most, await asyncio.to_thread(ask, database_url, watch))

        await asyncio.gather(*(produce(task) for task in range(50)))
        # The pool, and the one connection that listens, if somebody waits.
        assert most <= 5
        flushes, chunks = flushes_and_chunks(database_url, queue)
        assert flushes < 500
        assert chunks < 1000
        events = await drain(log)
        assert sorted(tuple(event.data) for event in events) == [(t, i) for t in range(50) for i in range(20)]
        for numbers in by_key(events).values():
            for task in range(50):
                mine = [i for t, i in numbers if t == task]
                assert mine == sorted(mine)


async def test_a_lone_push_waits_for_nobody(log: Log, database_url: str) -> None:
    queue = await log.configure(QUEUE)
    for i in range(3):
        await push(log, [i])
    assert flushes_and_chunks(database_url, queue) == (3, 3)


async def test_one_refused_request_does_not_take_its_neighbours_with_it(log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, ["first"], idempotency_key="taken")
    outcomes = await asyncio.gather(
        *(push(log, [i], idempotency_key="taken" if i == 5 else None) for i in range(10)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [PushResult] * 5 + [IdempotencyConflict] + [PushResult] * 4
    assert sorted(map(str, data(await drain(log)))) == sorted(["first", *"012346789"])


# Full queues


async def test_a_full_queue_refuses_and_accepts_again(log: Log) -> None:
    await log.configure(QUEUE, {"max_depth_events": 100})
    await log.subscribe(QUEUE, "workers")
    await push(log, range(60))
    with pytest.raises(QueueFull) as refusal:
        await push(log, range(60))
    assert (refusal.value.queue, refusal.value.limit) == (QUEUE, 100)
    assert refusal.value.depth >= 60
    assert refusal.value.retry_after > 0
    assert (await log.describe(QUEUE)).size.appended == 60
    await drain(log)

    async def accepted() -> object:
        try:
            return await push(log, range(60))
        except QueueFull:
            return None

    await eventually(accepted)
    assert len(await drain(log)) == 60


async def test_the_slowest_group_says_when_a_queue_is_full(log: Log) -> None:
    await log.configure(QUEUE, {"max_depth_events": 100})
    for group in ("quick", "slow"):
        await log.subscribe(QUEUE, group)
    await push(log, range(60))
    await drain(log, group="quick")
    with pytest.raises(QueueFull):
        await push(log, range(60))


async def test_many_who_push_to_a_full_queue_do_not_fill_it_over(log: Log) -> None:
    await log.configure(QUEUE, {"max_depth_events": 100})
    await log.subscribe(QUEUE, "workers")
    outcomes = await asyncio.gather(*(push(log, range(10)) for _ in range(50)), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {PushResult, QueueFull}
    assert (await log.describe(QUEUE)).size.appended <= 100


# Queues that come and go


async def test_a_queue_is_made_once(log: Log, other_log: Log) -> None:
    made = await asyncio.gather(*(mine.configure(QUEUE) for mine in [log, other_log] * 4))
    assert len({queue.id for queue in made}) == 1
    with pytest.raises(Conflict):
        await log.configure(QUEUE, only_new=True)


@pytest.mark.parametrize("new_lanes", [False, True])
async def test_deleting_a_queue_while_others_push_is_no_crash(log: Log, other_log: Log, new_lanes: bool) -> None:
    for round_ in range(5):
        await log.configure(QUEUE)
        await push(other_log, ["first"], key="k")
        refused = 0

        async def produce(mine: Log, name: str) -> None:
            nonlocal refused
            for i in range(100):
                try:
                    await push(mine, [i], key=f"{name} {i}" if new_lanes else name)
                except NotFound:
                    refused += 1
                    return

        producing = [asyncio.create_task(produce([log, other_log][i % 2], f"key {i}")) for i in range(4)]
        for _ in range(round_ * 5):
            await asyncio.sleep(0)
        assert await log.delete_queue(QUEUE)
        await asyncio.gather(*producing)
        assert refused == 4
        assert not await other_log.delete_queue(QUEUE)


async def test_deleting_a_queue_while_others_consume_is_no_crash(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE, {"retry_delay_ms": 0})
    for i in range(50):
        await push(log, [i], key=f"key {i}")

    async def consume(status: object) -> None:
        while True:
            await other_log.ack(await pop(other_log, batch=1, wait_seconds=0.1), status)

    consuming = [asyncio.create_task(consume(status)) for status in (True, False, "retry", "dead_letter")]
    await push(log, ["last"], key="last")
    assert await log.delete_queue(QUEUE)
    async with asyncio.timeout(PATIENCE):
        ends = await asyncio.gather(*consuming, return_exceptions=True)
    assert [type(end) for end in ends] == [NotFound] * 4


async def test_a_queue_that_is_made_again_starts_anew(log: Log, other_log: Log, database_url: str) -> None:
    for i in range(3):
        await log.configure(QUEUE)
        assert (await push(other_log, [i], key="k"))[0].offset == 0
        assert (await push(log, [i], key="k", ids=["1"]))[0].duplicate is False
        assert data(await pop(other_log)) == [i, i]
        await log.delete_queue(QUEUE)
        with pytest.raises(NotFound):
            await push(log, [i])
    left = "SELECT count(*) FROM pg_class WHERE relname ~ '^(chunks|ids)_' AND relkind = 'r'"
    assert ask(database_url, left) == 0
    for table in ("partitions", "cursors", "positions", "groups", "segments"):
        assert ask(database_url, f"SELECT count(*) FROM penstock.{table}") == 0  # noqa: S608


async def test_very_many_lanes_are_warned_of_once(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    await log.configure(QUEUE)
    await log.configure("hashed", partitioning="hash", partitions=8)
    with caplog.at_level(logging.WARNING, logger="penstock"):
        for part in range(4):
            keys = [f"key {i}" for i in range(part * 3500, (part + 1) * 3500)]
            for queue in (QUEUE, "hashed"):
                await log.push([Batch(queue, [{"data": 1, "key": key} for key in keys])])
    (warning,) = [record.getMessage() for record in caplog.records]
    assert QUEUE in warning
    assert "10,000" in warning
    assert "repartition" in warning


@pytest.mark.parametrize("as_text", [False, True])
async def test_a_key_that_is_called_like_the_lane_without_one_is_a_key(log: Log, as_text: bool) -> None:
    await log.configure(QUEUE)
    asked: list[str | None] = ["Default", None, "ada", "Default", None]
    datas = [{"key": key} for key in asked]
    if as_text:
        await log.push([Batch(QUEUE, "\n".join(map(json.dumps, datas)).encode(), key_field="key")])
    else:
        await log.push([Batch(QUEUE, [{"data": data, "key": data["key"]} for data in datas])])
    await push(log, [{"key": "Default"}], key="Default")
    await push(log, [{"key": None}])
    events = await pop(log)
    assert len(events) == 7
    assert all(event.key == event.data["key"] for event in events)
    assert {event.partition for event in events} == {"Default", "ada"}
    await log.ack(events, "dead_letter")
    assert all(letter.key == letter.data["key"] for letter in await letters(log))
    await log.redrive(Filter(queue=QUEUE))
    await log.repartition(QUEUE, "hash", 3)
    await log.repartition(QUEUE, "key")
    await push(log, [{"key": "Default"}], key="Default")
    assert all(event.key == event.data["key"] for event in await drain(log))

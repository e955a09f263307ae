from __future__ import annotations

from datetime import UTC, datetime

import pytest

import penstock
from penstock import Conflict, IdempotencyConflict, InvalidEvent, InvalidRequest, NotFound, Penstock
from penstock.core.clock import Clock
from tests.client.conditions import numbered_events, sequence_numbers


@pytest.fixture(autouse=True)
async def jobs(q: Penstock) -> None:
    await q.queue("jobs").create()


async def test_setters_return_a_new_handle(q: Penstock) -> None:
    plain = q.queue("jobs")
    before = plain.settings

    chosen = (
        plain.config(lease_time=5)
        .partition("a")
        .group("g")
        .batch(10)
        .partitions(3)
        .wait()
        .timeout_millis(5)
        .lease_seconds(7)
        .auto_ack()
        .subscription_mode("new")
        .each()
    )

    assert plain.settings is before
    assert before == q.queue("jobs").settings
    assert chosen.settings != before
    with pytest.raises(AttributeError):
        plain.name = "other"  # type: ignore[misc]  # the error under test


async def test_a_handle_can_be_shared(q: Penstock) -> None:
    base = q.queue("jobs").batch(10)
    await base.push(numbered_events(3))

    assert sequence_numbers(await base.group("a").pop()) == sequence_numbers(await base.group("b").pop()) == [0, 1, 2]


async def test_key_is_an_alias_of_partition(q: Penstock) -> None:
    assert q.queue("jobs").key("a") == q.queue("jobs").partition("a")


async def test_push_returns_partition_and_offset_of_each_event(q: Penstock) -> None:
    first = await q.queue("jobs").key("a").push({"data": 1})
    second = await q.queue("jobs").push([{"data": 2, "key": "a"}, {"data": 3, "key": "b", "id": "x"}])

    assert [(p.partition, p.offset) for p in (*first, *second)] == [("a", 0), ("a", 1), ("b", 0)]
    assert second[1].id == "x"


async def test_push_takes_any_iterable_of_events(q: Penstock) -> None:
    result = await q.queue("jobs").push({"data": n} for n in range(3))

    assert result.accepted == 3


async def test_push_of_an_empty_list(q: Penstock) -> None:
    assert (await q.queue("jobs").push([])).accepted == 0


async def test_a_repeated_push_with_an_idempotency_key_stores_nothing_again(q: Penstock) -> None:
    first = await q.queue("jobs").push(numbered_events(2), idempotency_key="once")
    again = await q.queue("jobs").push(numbered_events(2), idempotency_key="once")

    assert list(again) == list(first)
    assert again.replayed
    assert len(await q.queue("jobs").batch(10).pop()) == 2
    with pytest.raises(IdempotencyConflict, match="once"):
        await q.queue("jobs").push(numbered_events(3), idempotency_key="once")


async def test_ndjson_is_partitioned_by_key_field(q: Penstock) -> None:
    lines = b'{"t":"a","n":1,"at":"2026-01-01T00:00:00Z"}\n{"t":"b","n":2,"at":"2026-01-02T00:00:00Z"}\n'

    result = await q.queue("jobs").push_ndjson(lines, key_field="t", time_field="at")

    assert result.accepted == 2
    (event,) = await q.queue("jobs").partition("b").pop()
    assert (event.key, event.data["n"], event.time) == ("b", 2, datetime(2026, 1, 2, tzinfo=UTC))


async def test_ndjson_with_an_invalid_line_is_refused(q: Penstock) -> None:
    with pytest.raises(InvalidEvent, match="event 1"):
        await q.queue("jobs").push_ndjson(b'{"n":1}\n{"n":\n')

    assert await q.queue("jobs").pop() == []


async def test_a_push_to_several_queues_is_atomic(q: Penstock) -> None:
    await q.queue("audit").create()

    results = await q.push({"jobs": numbered_events(2), "audit": {"data": "seen"}})

    assert {name: result.accepted for name, result in results.items()} == {"jobs": 2, "audit": 1}
    with pytest.raises(NotFound, match="`penstock queue create nowhere`"):
        await q.push({"jobs": numbered_events(1), "nowhere": numbered_events(1)})
    assert (await q.queue("jobs").describe()).size.events == 2


async def test_pop_is_limited_by_batch_and_partitions(q: Penstock) -> None:
    for key in "abc":
        await q.queue("jobs").key(key).push(numbered_events(4))

    one = await q.queue("jobs").group("one").batch(10).pop()
    two = await q.queue("jobs").group("two").batch(6).partitions(2).pop()

    assert len(one) == 4
    assert len(two) == 6
    assert len({event.partition for event in two}) == 2


async def test_popped_events_are_leased(q: Penstock, clock: Clock) -> None:
    await q.queue("jobs").push(numbered_events(1))
    reader = q.queue("jobs").group("g").lease_seconds(5)

    (event,) = await reader.pop()

    assert await reader.pop() == []
    assert await q.renew(event, 60) is not None
    clock.advance(30)
    assert await reader.pop() == []
    clock.advance(31)
    assert sequence_numbers(await reader.pop()) == [0]
    assert await q.renew(event, 60) is None


async def test_auto_ack_completes_delivered_events(q: Penstock) -> None:
    await q.queue("jobs").push(numbered_events(2))

    assert sequence_numbers(await q.queue("jobs").batch(10).auto_ack().pop()) == [0, 1]
    assert await q.queue("jobs").lag() == 0


@pytest.mark.parametrize("how", ["mode", "from"])
async def test_a_new_group_can_begin_with_new_events(q: Penstock, how: str) -> None:
    reader = q.queue("jobs").group("late").batch(10)
    reader = reader.subscription_mode("new") if how == "mode" else reader.subscription_from("now")
    await q.queue("jobs").push(numbered_events(2))

    assert await reader.pop() == []
    await q.queue("jobs").push(numbered_events(1, start=2))

    assert sequence_numbers(await reader.pop()) == [2]


async def test_a_new_group_can_begin_at_a_time(q: Penstock, clock: Clock) -> None:
    await q.queue("jobs").push(numbered_events(1))
    clock.advance(3600)
    (pushed,) = await q.queue("jobs").push(numbered_events(1, start=1))
    (event,) = await q.queue("jobs").fetch(pushed.partition, pushed.offset)

    reader = q.queue("jobs").batch(10)

    assert sequence_numbers(await reader.group("a").subscription_from(event.appended_at).pop()) == [1]
    assert sequence_numbers(await reader.group("b").subscription_from(event.appended_at.isoformat()).pop()) == [1]


async def test_seek_moves_the_group_in_all_or_one_partition(q: Penstock) -> None:
    for key in "ab":
        await q.queue("jobs").key(key).push(numbered_events(2))
    reader = q.queue("jobs").group("g").batch(10).partitions(10)
    await q.ack(await reader.pop())

    assert await reader.partition("a").seek(1) == 1
    assert await reader.lag() == 1
    assert await reader.seek("beginning") == 2
    assert await reader.lag() == 4
    assert {position.partition: position.lag for position in await reader.positions()} == {"a": 2, "b": 2}


async def test_a_deleted_group_starts_again(q: Penstock) -> None:
    await q.queue("jobs").push(numbered_events(1))
    reader = q.queue("jobs").group("g")
    await q.ack(await reader.pop())

    assert await reader.delete_group()
    assert not await reader.delete_group()
    with pytest.raises(NotFound, match="no group 'g'"):
        await reader.lag()
    assert sequence_numbers(await reader.pop()) == [0]


async def test_fetch_browse_and_find_do_not_consume(q: Penstock) -> None:
    await q.queue("jobs").key("a").push([{"data": {"seq": n}, "id": f"id-{n}"} for n in range(5)])
    partition = q.queue("jobs").partition("a")

    assert sequence_numbers(await partition.fetch(offset=3)) == [3, 4]
    assert sequence_numbers(await q.queue("jobs").fetch("a", -2, 1)) == [3]
    assert sequence_numbers(await partition.browse(limit=2)) == [4, 3]
    assert sequence_numbers(await q.queue("jobs").browse(key="a", matching=lambda e: e.data["seq"] < 2)) == [1, 0]
    found = await q.queue("jobs").find("id-2")
    assert found is not None
    assert found.offset == 2
    assert await q.queue("jobs").find("id-9") is None
    assert len(await q.queue("jobs").batch(10).pop()) == 5


async def test_queues_and_groups_are_listed(q: Penstock) -> None:
    await q.queue("measurements").create("hash", 4)
    await q.queue("jobs").push(numbered_events(3))
    await q.queue("jobs").group("g").pop()

    assert [(x.name, x.partitioning, x.partition_count) for x in await q.queues()] == [
        ("jobs", "key", None),
        ("measurements", "hash", 4),
    ]
    assert [(x.queue, x.group, x.lag) for x in await q.groups()] == [("jobs", "g", 3)]
    assert await q.groups("measurements") == []


async def test_repartition_and_delete(q: Penstock) -> None:
    handle = q.queue("jobs")
    await handle.push(numbered_events(2))

    changed = await handle.repartition("hash", 2)

    assert (changed.partitioning, changed.partition_count) == ("hash", 2)
    assert len(await handle.batch(10).pop()) == 2
    with pytest.raises(Conflict, match="exists already"):
        await handle.create(only_new=True)
    assert await handle.delete()
    assert not await handle.delete()


async def test_delete_refuses_a_handle_with_a_partition(q: Penstock) -> None:
    with pytest.raises(InvalidRequest, match="would remove all of queue 'jobs'"):
        await q.queue("jobs").partition("a").delete()


async def test_upkeep(q: Penstock) -> None:
    assert (await q.upkeep()).dropped == 0


def test_handle_classes_are_exported() -> None:
    handle: penstock.QueueHandle = Penstock(data_dir="/nowhere").queue("orders")
    transaction: penstock.Transaction = Penstock(data_dir="/nowhere").transaction()
    letters: penstock.DeadLetterHandle = handle.dlq()

    assert isinstance(handle, penstock.QueueHandle)
    assert isinstance(transaction, penstock.Transaction)
    assert isinstance(letters, penstock.DeadLetterHandle)
    assert {"QueueHandle", "Transaction", "DeadLetterHandle"} <= set(dir(penstock))

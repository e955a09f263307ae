from __future__ import annotations

from datetime import UTC, datetime

import pytest

import penstock
from penstock import Conflict, IdempotencyConflict, InvalidEvent, InvalidRequest, NotFound, Penstock
from penstock.core.clock import Clock
from tests.client.conditions import numbered, seqs


@pytest.fixture(autouse=True)
async def jobs(q: Penstock) -> None:
    await q.queue("jobs").create()


async def test_each_choice_makes_a_new_handle_and_leaves_the_old_one(q: Penstock) -> None:
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
        plain.name = "other"  # type: ignore[misc]  # what the test is about


async def test_a_handle_can_be_shared_by_consumers_that_choose_differently(q: Penstock) -> None:
    base = q.queue("jobs").batch(10)
    await base.push(numbered(3))

    assert seqs(await base.group("a").pop()) == seqs(await base.group("b").pop()) == [0, 1, 2]


async def test_key_is_another_word_for_partition(q: Penstock) -> None:
    assert q.queue("jobs").key("a") == q.queue("jobs").partition("a")


async def test_push_answers_where_each_event_went(q: Penstock) -> None:
    first = await q.queue("jobs").key("a").push({"data": 1})
    second = await q.queue("jobs").push([{"data": 2, "key": "a"}, {"data": 3, "key": "b", "id": "x"}])

    assert [(p.partition, p.offset) for p in (*first, *second)] == [("a", 0), ("a", 1), ("b", 0)]
    assert second[1].id == "x"


async def test_push_takes_any_iterable_of_events(q: Penstock) -> None:
    result = await q.queue("jobs").push({"data": n} for n in range(3))

    assert result.accepted == 3


async def test_push_of_an_empty_list_is_fine(q: Penstock) -> None:
    assert (await q.queue("jobs").push([])).accepted == 0


async def test_a_repeated_push_with_an_idempotency_key_stores_nothing_again(q: Penstock) -> None:
    first = await q.queue("jobs").push(numbered(2), idempotency_key="once")
    again = await q.queue("jobs").push(numbered(2), idempotency_key="once")

    assert list(again) == list(first)
    assert again.replayed
    assert len(await q.queue("jobs").batch(10).pop()) == 2
    with pytest.raises(IdempotencyConflict, match="once"):
        await q.queue("jobs").push(numbered(3), idempotency_key="once")


async def test_ndjson_is_placed_by_the_fields_that_are_named(q: Penstock) -> None:
    lines = b'{"t":"a","n":1,"at":"2026-01-01T00:00:00Z"}\n{"t":"b","n":2,"at":"2026-01-02T00:00:00Z"}\n'

    result = await q.queue("jobs").push_ndjson(lines, key_field="t", time_field="at")

    assert result.accepted == 2
    (event,) = await q.queue("jobs").partition("b").pop()
    assert (event.key, event.data["n"], event.time) == ("b", 2, datetime(2026, 1, 2, tzinfo=UTC))


async def test_ndjson_with_a_bad_line_is_refused_whole(q: Penstock) -> None:
    with pytest.raises(InvalidEvent, match="event 1"):
        await q.queue("jobs").push_ndjson(b'{"n":1}\n{"n":\n')

    assert await q.queue("jobs").pop() == []


async def test_a_push_to_several_queues_happens_in_all_or_in_none(q: Penstock) -> None:
    await q.queue("audit").create()

    results = await q.push({"jobs": numbered(2), "audit": {"data": "seen"}})

    assert {name: result.accepted for name, result in results.items()} == {"jobs": 2, "audit": 1}
    with pytest.raises(NotFound, match="`penstock queue create nowhere`"):
        await q.push({"jobs": numbered(1), "nowhere": numbered(1)})
    assert (await q.queue("jobs").describe()).size.events == 2


async def test_pop_delivers_at_most_a_batch_from_at_most_so_many_partitions(q: Penstock) -> None:
    for key in "abc":
        await q.queue("jobs").key(key).push(numbered(4))

    one = await q.queue("jobs").group("one").batch(10).pop()
    two = await q.queue("jobs").group("two").batch(6).partitions(2).pop()

    assert len(one) == 4
    assert len(two) == 6
    assert len({event.partition for event in two}) == 2


async def test_what_is_popped_belongs_to_the_consumer_until_its_lease_ends(q: Penstock, clock: Clock) -> None:
    await q.queue("jobs").push(numbered(1))
    reader = q.queue("jobs").group("g").lease_seconds(5)

    (event,) = await reader.pop()

    assert await reader.pop() == []
    assert await q.renew(event, 60) is not None
    clock.advance(30)
    assert await reader.pop() == []
    clock.advance(31)
    assert seqs(await reader.pop()) == [0]
    assert await q.renew(event, 60) is None


async def test_auto_ack_completes_what_it_delivers(q: Penstock) -> None:
    await q.queue("jobs").push(numbered(2))

    assert seqs(await q.queue("jobs").batch(10).auto_ack().pop()) == [0, 1]
    assert await q.queue("jobs").lag() == 0


@pytest.mark.parametrize("how", ["mode", "from"])
async def test_a_new_group_may_begin_with_what_comes_next(q: Penstock, how: str) -> None:
    reader = q.queue("jobs").group("late").batch(10)
    reader = reader.subscription_mode("new") if how == "mode" else reader.subscription_from("now")
    await q.queue("jobs").push(numbered(2))

    assert await reader.pop() == []
    await q.queue("jobs").push(numbered(1, start=2))

    assert seqs(await reader.pop()) == [2]


async def test_a_new_group_may_begin_at_a_time(q: Penstock, clock: Clock) -> None:
    await q.queue("jobs").push(numbered(1))
    clock.advance(3600)
    (pushed,) = await q.queue("jobs").push(numbered(1, start=1))
    (event,) = await q.queue("jobs").fetch(pushed.partition, pushed.offset)

    reader = q.queue("jobs").batch(10)

    assert seqs(await reader.group("a").subscription_from(event.appended_at).pop()) == [1]
    assert seqs(await reader.group("b").subscription_from(event.appended_at.isoformat()).pop()) == [1]


async def test_seeking_moves_the_group_everywhere_or_in_the_partition_that_is_chosen(q: Penstock) -> None:
    for key in "ab":
        await q.queue("jobs").key(key).push(numbered(2))
    reader = q.queue("jobs").group("g").batch(10).partitions(10)
    await q.ack(await reader.pop())

    assert await reader.partition("a").seek(1) == 1
    assert await reader.lag() == 1
    assert await reader.seek("beginning") == 2
    assert await reader.lag() == 4
    assert {lane.partition: lane.lag for lane in await reader.lanes()} == {"a": 2, "b": 2}


async def test_a_deleted_group_begins_anew(q: Penstock) -> None:
    await q.queue("jobs").push(numbered(1))
    reader = q.queue("jobs").group("g")
    await q.ack(await reader.pop())

    assert await reader.delete_group()
    assert not await reader.delete_group()
    with pytest.raises(NotFound, match="no group 'g'"):
        await reader.lag()
    assert seqs(await reader.pop()) == [0]


async def test_events_can_be_looked_at_without_consuming_them(q: Penstock) -> None:
    await q.queue("jobs").key("a").push([{"data": {"seq": n}, "id": f"id-{n}"} for n in range(5)])
    lane = q.queue("jobs").partition("a")

    assert seqs(await lane.fetch(offset=3)) == [3, 4]
    assert seqs(await q.queue("jobs").fetch("a", -2, 1)) == [3]
    assert seqs(await lane.browse(limit=2)) == [4, 3]
    assert seqs(await q.queue("jobs").browse(key="a", matching=lambda e: e.data["seq"] < 2)) == [1, 0]
    found = await q.queue("jobs").find("id-2")
    assert found is not None
    assert found.offset == 2
    assert await q.queue("jobs").find("id-9") is None
    assert len(await q.queue("jobs").batch(10).pop()) == 5


async def test_queues_and_groups_can_be_listed(q: Penstock) -> None:
    await q.queue("measurements").create("hash", 4)
    await q.queue("jobs").push(numbered(3))
    await q.queue("jobs").group("g").pop()

    assert [(x.name, x.partitioning, x.partition_count) for x in await q.queues()] == [
        ("jobs", "key", None),
        ("measurements", "hash", 4),
    ]
    assert [(x.queue, x.group, x.lag) for x in await q.groups()] == [("jobs", "g", 3)]
    assert await q.groups("measurements") == []


async def test_a_queue_can_be_partitioned_differently_and_deleted(q: Penstock) -> None:
    handle = q.queue("jobs")
    await handle.push(numbered(2))

    changed = await handle.repartition("hash", 2)

    assert (changed.partitioning, changed.partition_count) == ("hash", 2)
    assert len(await handle.batch(10).pop()) == 2
    with pytest.raises(Conflict, match="exists already"):
        await handle.create(only_new=True)
    assert await handle.delete()
    assert not await handle.delete()


async def test_delete_refuses_a_handle_that_names_a_partition(q: Penstock) -> None:
    with pytest.raises(InvalidRequest, match="would remove all of queue 'jobs'"):
        await q.queue("jobs").partition("a").delete()


async def test_upkeep_can_be_asked_for(q: Penstock) -> None:
    assert (await q.upkeep()).dropped == 0


def test_what_a_client_hands_out_can_be_named_in_annotations() -> None:
    handle: penstock.QueueHandle = Penstock(data_dir="/nowhere").queue("orders")
    transaction: penstock.Transaction = Penstock(data_dir="/nowhere").transaction()
    letters: penstock.DeadLetterHandle = handle.dlq()

    assert isinstance(handle, penstock.QueueHandle)
    assert isinstance(transaction, penstock.Transaction)
    assert isinstance(letters, penstock.DeadLetterHandle)
    assert {"QueueHandle", "Transaction", "DeadLetterHandle"} <= set(dir(penstock))

"""Backpressure: full queues refuse or shed pushes."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest

from penstock.core.clock import Clock
from penstock.core.errors import IdempotencyConflict, InvalidOption, NotFound, QueueFull
from penstock.engine import query_commands
from penstock.engine.query_registry import Registry
from penstock.log.log import Log
from penstock.log.queue_info import GroupInfo, find_holding_group
from penstock.log.read.ack_request import TransactionAck
from penstock.log.write.encode.batch import Batch
from penstock.log.write.push_result import PushResult
from tests.conditions import eventually_async
from tests.log.logs import GROUP, QUEUE, drain, pop, push

DAY = 86_400


async def full_queue(log: Log, **options: object) -> None:
    """Create a full queue with two groups that have read nothing."""
    await log.configure(QUEUE, {"max_depth_events": 100, **options})
    for group in ("quick", "slow"):
        await log.subscribe(QUEUE, group)
    await push(log, range(100))


async def takes_more(log: Log) -> bool:
    try:
        return bool((await push(log, [1])).accepted)
    except QueueFull:
        return False


async def test_a_queue_has_a_depth_limit_by_default(log: Log) -> None:
    assert (await log.configure(QUEUE)).max_depth_events == 100_000
    assert (await log.configure(QUEUE, {"max_depth_events": None})).max_depth_events is None


async def test_a_queue_without_groups_refuses_what_exceeds_its_depth(log: Log) -> None:
    assert (await log.configure(QUEUE, {"max_depth_events": 100})).max_unread_events == 100
    await push(log, range(100))
    await eventually_async(lambda: _refused(log))
    with pytest.raises(QueueFull, match="no group reads it, it holds 100 events") as full:
        await push(log, [1])
    assert (full.value.depth, full.value.limit, full.value.group) == (100, 100, None)
    await log.subscribe(QUEUE, GROUP)
    await drain(log)
    await eventually_async(lambda: takes_more(log))


async def test_a_new_group_that_does_not_count_makes_room_at_once(log: Log) -> None:
    await log.configure(QUEUE, {"max_depth_events": 10})
    await push(log, range(10))
    await log.subscribe(QUEUE, GROUP)
    await log.configure_group(QUEUE, GROUP, counts=False)
    assert await takes_more(log)


async def test_an_archive_without_groups_has_no_limit_unless_it_is_asked_for(log: Log) -> None:
    assert (await log.configure(QUEUE)).max_unread_events is None
    assert (await log.configure(QUEUE, {"max_depth_events": 10, "max_unread_events": None})).max_unread_events is None
    assert (await log.configure(QUEUE, {"max_depth_events": 10})).max_unread_events is None, "nothing has changed"
    for _ in range(3):
        await push(log, range(10))
    assert (await log.configure(QUEUE, {"max_unread_events": 35})).max_depth_events == 10
    await push(log, range(5))
    await eventually_async(lambda: _refused(log))


async def test_a_group_can_be_excluded_from_the_depth(log: Log) -> None:
    await full_queue(log)
    assert not await takes_more(log)
    await drain(log, group="quick")
    await log.configure_group(QUEUE, "slow", counts=False)
    await eventually_async(lambda: takes_more(log))
    assert {group.group: group.counts for group in await log.groups(QUEUE)} == {"quick": True, "slow": False}
    await log.configure_group(QUEUE, "slow", counts=True)
    await eventually_async(lambda: _refused(log))
    with pytest.raises(NotFound):
        await log.configure_group(QUEUE, "nobody", counts=False)


async def _refused(log: Log) -> bool:
    return not await takes_more(log)


async def test_an_inactive_group_does_not_count_until_it_pops_again(
    log: Log, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    await full_queue(log)
    await drain(log, group="quick")
    clock.advance(DAY - 60)
    await pop(log, group="quick")
    assert not await takes_more(log)
    clock.advance(120)
    with caplog.at_level(logging.WARNING, "penstock.log"):
        await eventually_async(lambda: takes_more(log))
        await eventually_async(lambda: takes_more(log))
    assert [record.getMessage()[:60] for record in caplog.records if "no consumer" in record.getMessage()] == [
        f"queue '{QUEUE}': no consumer of group 'slow' has popped since"[:60]
    ]
    assert {group.group: group.away for group in await log.groups(QUEUE)} == {"quick": False, "slow": True}
    await pop(log, group="slow", batch=1)
    await eventually_async(lambda: _refused(log))
    assert not any(group.away for group in (await log.describe(QUEUE)).groups)


async def test_a_group_that_pops_without_result_is_active(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"max_depth_events": 100})
    await log.subscribe(QUEUE, GROUP)
    for _ in range(3):
        clock.advance(DAY - 60)
        assert await pop(log) == []
    assert not any(group.away for group in await log.groups(QUEUE))


async def test_away_seconds_sets_when_a_group_is_inactive(log: Log, clock: Clock) -> None:
    await full_queue(log, away_seconds=600)
    clock.advance(700)
    await eventually_async(lambda: takes_more(log))
    await log.configure(QUEUE, {"away_seconds": None})
    clock.advance(365 * DAY)
    assert not any(group.away for group in await log.groups(QUEUE))
    with pytest.raises(InvalidOption, match="away_seconds"):
        await log.configure(QUEUE, {"away_seconds": 1})


async def test_a_shedding_queue_drops_and_counts_the_excess(log: Log) -> None:
    await full_queue(log, overflow="shed")
    outcomes = await asyncio.gather(*(push(log, range(7)) for _ in range(20)))
    assert {(outcome.accepted, outcome.shed) for outcome in outcomes} == {(0, 7)}
    size = (await log.describe(QUEUE)).size
    assert (size.appended, size.shed) == (100, 140)
    await log.upkeep()
    for _ in range(150):
        await push(log, [1])
    await log.upkeep()
    assert (await log.describe(QUEUE)).size.shed == 290


async def test_a_push_to_several_queues_sheds_only_the_full_one(log: Log) -> None:
    await full_queue(log, overflow="shed")
    await log.configure("other")
    shed, kept = await log.push([Batch(QUEUE, [{"data": 1}]), Batch("other", [{"data": 2}])])
    assert (shed.accepted, shed.shed, kept.accepted, kept.shed) == (0, 1, 1, 0)


@pytest.mark.parametrize("overflow", ["shed", "refuse"])
async def test_a_repeated_push_is_answered_although_its_queue_is_full(log: Log, overflow: str) -> None:
    await log.configure(QUEUE, {"max_depth_events": 100, "overflow": overflow})
    await log.subscribe(QUEUE, GROUP)
    events = [Batch(QUEUE, [{"data": n} for n in range(60)])]
    [first] = await log.push(events, idempotency_key="a")
    await push(log, range(40))
    assert not await takes_more(log)

    [again] = await log.push(events, idempotency_key="a")

    assert (again.accepted, again.shed, again.replayed) == (first.accepted, 0, True)
    assert (await log.describe(QUEUE)).size.appended == 100


async def test_a_repeated_push_that_was_shed_stays_shed(log: Log) -> None:
    await full_queue(log, overflow="shed")
    await log.configure("other")
    mixed = [Batch(QUEUE, [{"data": 1}, {"data": 2}]), Batch("other", [{"data": 3}])]
    whole = [Batch(QUEUE, [{"data": n} for n in range(5)])]

    async def answers() -> list[tuple[int, int, bool]]:
        results = [*await log.push(mixed, idempotency_key="mixed"), *await log.push(whole, idempotency_key="whole")]
        return [(result.accepted, result.shed, result.replayed) for result in results]

    assert await answers() == [(0, 2, False), (1, 0, False), (0, 5, False)]
    assert await answers() == [(0, 2, True), (1, 0, True), (0, 5, True)]
    assert (await log.describe(QUEUE)).size.shed == 7
    for group in ("quick", "slow"):
        await drain(log, group=group)
    await eventually_async(lambda: takes_more(log))
    assert await answers() == [(0, 2, True), (1, 0, True), (0, 5, True)]
    # Only the admitted push is stored.
    assert (await log.describe(QUEUE)).size.appended == 101
    with pytest.raises(IdempotencyConflict):
        await log.push(mixed, idempotency_key="whole")


@pytest.mark.parametrize("acks", [0, 1])
async def test_a_repeated_transaction_reports_its_shed_events(log: Log, acks: int) -> None:
    await full_queue(log, overflow="shed")
    await log.configure("jobs")
    await push(log, [1], queue="jobs")
    (event,) = await pop(log, "jobs", batch=1)
    delivery = event.delivery
    assert delivery.lease_id is not None
    ack = TransactionAck(delivery.partition_id, event.offset, delivery.lease_id, queue="jobs", group=GROUP)
    statuses = [ack] * acks
    for replayed in (False, True):
        done = await log.transact_leased(statuses, [Batch(QUEUE, [{"data": 1}])], idempotency_key="once")
        assert [(each.accepted, each.shed, each.replayed) for each in done.pushes] == [(0, 1, replayed)]
    size = (await log.describe(QUEUE)).size
    assert (size.appended, size.shed) == (100, 1)


async def test_a_push_above_the_limit_is_accepted_by_a_nearly_empty_queue(log: Log) -> None:
    await log.configure(QUEUE, {"max_depth_events": 100})
    await log.subscribe(QUEUE, GROUP)
    await push(log, range(11))
    with pytest.raises(QueueFull):
        await push(log, range(95))
    await drain(log)
    await push(log, range(2))

    async def let_in() -> bool:
        try:
            return bool(await push(log, range(200)))
        except QueueFull:
            return False

    await eventually_async(let_in)


async def test_several_processes_exceed_the_limit_only_slightly(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE, {"max_depth_events": 10_000})
    await log.subscribe(QUEUE, GROUP)

    async def fill(one: Log) -> None:
        while True:
            try:
                await push(one, range(200))
            except QueueFull:
                return

    await asyncio.gather(fill(log), fill(other_log))
    # Each process admits at most the capacity that it has measured.
    assert 10_000 - 200 <= (await log.describe(QUEUE)).size.appended < 20_000


async def test_a_full_queue_refuses_until_it_has_drained(log: Log) -> None:
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

    await eventually_async(accepted)
    assert len(await drain(log)) == 60


async def test_the_slowest_group_determines_the_depth(log: Log) -> None:
    await log.configure(QUEUE, {"max_depth_events": 100})
    for group in ("quick", "slow"):
        await log.subscribe(QUEUE, group)
    await push(log, range(60))
    await drain(log, group="quick")
    with pytest.raises(QueueFull):
        await push(log, range(60))


async def test_a_refused_push_names_the_group_and_how_to_pass_it(log: Log) -> None:
    await full_queue(log)
    await drain(log, group="quick")

    async def refusal() -> QueueFull:
        with pytest.raises(QueueFull) as refused:
            await push(log, [1])
        return refused.value

    async def names_the_slow_group() -> bool:
        return (await refusal()).group == "slow"

    await eventually_async(names_the_slow_group)  # the depth is measured a few times per second
    text = str(await refusal())
    assert "group 'slow' is 100 events behind and 100 are allowed" in text
    assert "`penstock group configure orders slow --no-count`" in text


async def test_pushes_wait_for_a_query_that_runs_or_failed_and_not_for_one_that_was_stopped(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    await log.configure(QUEUE, {"max_depth_events": 10})
    registry = Registry(log)

    async def start() -> tuple[int, int]:
        query = await registry.register("sales", ["a"], "a", sink=None, history_seconds=60)
        fence = await registry.acquire_lease(query, "tests", 60)
        assert fence is not None
        return query.id, fence

    async def group() -> GroupInfo:
        (group,) = await log.groups(QUEUE)
        return group

    query, fence = await start()
    await log.consumer_groups.subscribe(await log.catalog.refresh(QUEUE), "sales", query_id="sales")
    await push(log, range(10))
    with pytest.raises(QueueFull, match="full: query 'sales' is 10 events behind"):
        await push(log, [1])
    await registry.release_lease(query, fence, stopped=False)
    await registry.release_lease(query, fence)  # it is not held any more, so nothing changes

    async def says_failed() -> bool:
        with pytest.raises(QueueFull) as refused:
            await push(log, [1])
        return (
            "full: failed query 'sales' is" in str(refused.value)
            and "start it, or let pushes pass it: `penstock query stop sales`" in str(refused.value)
            and re.search(r"they wait for it until \d{4}-\d\d-\d\d \d\d:\d\d UTC", str(refused.value)) is not None
        )

    await eventually_async(says_failed)
    assert ((await group()).query_state, find_holding_group(await log.queue(QUEUE), [await group()])) == (
        "failed",
        await group(),
    )
    await query_commands.stop(log.database, "sales")

    await eventually_async(lambda: takes_more(log))
    assert ((await group()).query_state, (await group()).away) == ("stopped", True)
    assert "query 'sales' was stopped, and it is" in caplog.text
    async with log.database.connection() as conn:
        away = await (await conn.execute("SELECT away FROM penstock.lag WHERE group_name = 'sales'")).fetchone()
    assert away == (True,)
    await start()
    await eventually_async(lambda: _refused(log))


async def test_concurrent_pushes_do_not_overfill_a_queue(log: Log) -> None:
    await log.configure(QUEUE, {"max_depth_events": 100})
    await log.subscribe(QUEUE, "workers")
    outcomes = await asyncio.gather(*(push(log, range(10)) for _ in range(50)), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {PushResult, QueueFull}
    assert (await log.describe(QUEUE)).size.appended <= 100

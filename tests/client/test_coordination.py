"""Entries, locks and timers, against the database and through a server."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from penstock import InvalidRequest, LockNotHeld, Penstock, PreconditionFailed, SyncPenstock
from penstock.core.clock import Clock
from tests.conditions import eventually_async


async def test_entries_are_stored_compared_and_deleted(q: Penstock, clock: Clock) -> None:
    orders = q.kv("orders")
    change = await orders.put("7", {"state": "held"}, ttl_seconds=60, expect=0)
    assert change
    assert change.entry is not None
    assert not await orders.put("7", {"state": "paid"}, expect=0)
    entry = await orders.get("7")
    assert entry is not None
    assert (entry.value, entry.version) == ({"state": "held"}, change.entry.version)
    assert await orders.put("7", {"state": "paid"}, ttl_seconds=60, expect=entry.version)
    stale = await orders.delete("7", expect=entry.version)
    assert (stale.applied, stale.reason) == (False, "version")
    assert [each.key for each in await orders.list("7")] == ["7"]
    assert list(await orders.get_many(["7", "8"])) == ["7"]
    clock.advance(61)
    assert await orders.get("7") is None


async def test_an_increment_is_refused_at_its_limit(q: Penstock) -> None:
    quota = q.kv("quota")
    changes = [await quota.increment("ada", maximum=2, ttl_seconds=60) for _ in range(3)]
    assert [change.applied for change in changes] == [True, True, False]
    assert changes[2].reason == "limit"
    assert changes[2].entry is not None
    assert changes[2].entry.value == 2


async def test_a_transaction_changes_entries_with_acks_and_pushes(q: Penstock) -> None:
    for name in ("orders", "shipments"):
        await q.queue(name).create()
    await q.queue("orders").push([{"data": 1}, {"data": 2}])
    for expected in (True, False):
        events = await q.queue("orders").group("dispatch").pop()
        tx = q.transaction().ack(events).queue("shipments").push({"data": "sent"})
        tx.kv("sent").put("order", True, ttl_seconds=60, expect=0, required=True)
        tx.kv("sent").increment("count").timer("shipments", "remind").schedule("late", delay_seconds=3600)
        if expected:
            result = await tx.commit()
            assert [change.applied for change in result.kv] == [True, True]
        else:
            with pytest.raises(PreconditionFailed) as raised:
                await tx.commit()
            assert (raised.value.index, raised.value.result.reason) == (0, "exists")
    assert (await q.queue("shipments").describe()).size.events == 1
    count = await q.kv("sent").get("count")
    assert count is not None
    assert count.value == 1
    assert (await q.timer("shipments", "remind").cancel()).status == "cancelled"


async def test_a_timer_pushes_its_event(q: Penstock) -> None:
    orders = q.queue("orders")
    await orders.create()
    timer = q.timer("orders", "7:expire")
    assert (await timer.schedule({"order": 7}, delay_seconds=3600, key="ada")).status == "scheduled"
    result = await timer.schedule({"order": 7}, delay_seconds=0.05, key="ada", id="expire-7")
    assert (result.status, result.event_id) == ("rescheduled", "expire-7")
    (event,) = await orders.group("expiry").wait().pop()
    assert (event.data, event.key, event.id) == ({"order": 7}, "ada", "expire-7")
    assert (await timer.cancel()).status == "absent"


async def test_a_lock_excludes_other_handles_and_guards_a_transaction(q: Penstock, clock: Clock) -> None:
    await q.queue("reports").create()
    old, new = (q.lock("daily-report", ttl_seconds=60) for _ in range(2))
    assert await old.acquire()
    assert not await new.acquire()
    assert [holder.token for holder in await new.holders()] == [old.token]
    await q.transaction().guard(old).queue("reports").push({"data": 1}).commit()
    clock.advance(61)
    assert await new.acquire()
    assert old.token is not None, "it cannot know that it was replaced"
    assert new.token is not None
    assert new.token > old.token
    with pytest.raises(PreconditionFailed):
        await q.transaction().guard(old).queue("reports").push({"data": 2}).commit()
    await q.transaction().guard(new).queue("reports").push({"data": 3}).commit()
    assert not await old.release()
    assert await new.release()
    with pytest.raises(LockNotHeld):
        await q.transaction().guard(new).queue("reports").push({"data": 4}).commit()
    assert [event.data for event in await q.queue("reports").batch(9).pop()] == [1, 3]


async def test_a_lock_is_renewed_while_it_is_held(q: Penstock) -> None:
    await q.queue("reports").create()
    async with q.lock("daily-report", ttl_seconds=0.6) as lock:
        first = lock.token
        other = q.lock("daily-report", ttl_seconds=0.6)
        with pytest.raises(LockNotHeld):
            await other.__aenter__()

        async def is_renewed() -> bool:
            await q.transaction().guard(lock).queue("reports").push({"data": 1}).commit()
            return lock.token is not None and first is not None and lock.token > first

        await eventually_async(is_renewed)
        waiting = asyncio.create_task(other.acquire(wait_seconds=20))
    assert await waiting
    await other.release()


async def test_transactions_guard_the_same_locks_in_any_order(q: Penstock) -> None:
    await q.queue("reports").create()
    async with q.lock("a", ttl_seconds=60) as a, q.lock("b", ttl_seconds=60) as b:
        transactions = [
            q.transaction().guard(first).guard(second).guard(first).queue("reports").push({"data": 1})
            for first, second in ((a, b), (b, a)) * 5
        ]
        await asyncio.wait_for(asyncio.gather(*(each.commit() for each in transactions)), 20)
    assert (await q.queue("reports").describe()).size.events == 10


async def test_a_release_waits_for_a_renewal(q: Penstock) -> None:
    lock = q.lock("daily-report", ttl_seconds=60)
    for _ in range(5):
        assert await lock.acquire()
        renewal = asyncio.create_task(lock.renew())
        await asyncio.sleep(0)
        assert await lock.release()
        assert await renewal
        assert await lock.holders() == []


async def test_a_semaphore_has_as_many_permits_as_its_limit(q: Penstock) -> None:
    permits = [q.lock("workers", ttl_seconds=60, limit=2) for _ in range(4)]
    assert sorted([await permit.acquire() for permit in permits]) == [False, False, True, True]
    for permit in permits:
        await permit.release()


async def test_invalid_arguments_are_refused(q: Penstock) -> None:
    for refused in (
        lambda: q.kv("a name"),
        lambda: q.lock("a#b", ttl_seconds=1),
        lambda: q.lock("a", ttl_seconds=0),
        lambda: q.timer("orders", ""),
    ):
        with pytest.raises(InvalidRequest):
            refused()
    with pytest.raises(InvalidRequest):
        await q.kv("orders").put("a", {1, 2})
    with pytest.raises(InvalidRequest):
        await q.kv("orders").put("a", "x" * (1 << 20))


async def test_entries_are_part_of_a_users_transaction(database_url: str) -> None:
    async with Penstock(database_url) as q, await psycopg.AsyncConnection.connect(database_url) as conn:
        async with q.transaction(conn) as tx:
            tx.kv("orders").put("7", 1)
        assert await q.kv("orders").get("7") is None
        await conn.commit()
        assert await q.kv("orders").get("7") is not None


def test_the_synchronous_client(sync_q: SyncPenstock) -> None:
    sync_q.queue("orders").create()
    with sync_q.lock("daily-report", ttl_seconds=60) as lock:
        with sync_q.transaction() as tx:
            tx.guard(lock)
            tx.kv("orders").put("7", {"state": "held"}, ttl_seconds=60)
            tx.timer("orders", "7").schedule(7, delay_seconds=-1)
        assert lock.token is not None
    entry = sync_q.kv("orders").get("7")
    assert entry is not None
    assert entry.value == {"state": "held"}
    assert [event.data for event in sync_q.queue("orders").group("g").wait().pop()] == [7]

"""Acks by id: an event is found where it was delivered, whichever log delivered it and wherever it lies."""

from __future__ import annotations

from typing import Any

from penstock.core.clock import Clock
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.log.read.ack_by_id import Answer, SaidById
from penstock.log.read.lease_id import group_of, new_lease_id
from penstock.log.read.position import Status
from tests.log.logs import GROUP, QUEUE, pop, push


async def say(log: Log, event: Event, status: Status = "completed", **more: Any) -> Answer:
    told: dict[str, Any] = {"lease_id": event.delivery.lease_id, "id": event.id, **more}
    (answer,) = await log.ack_by_id([SaidById(GROUP, event.partition_id, status=status, **told)])
    return answer


async def test_an_id_is_found_under_its_lease_by_any_log(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, range(6), key="ada", ids=[f"id{n}" for n in range(6)])
    events = await pop(log, batch=4)
    assert (await say(other_log, events[1])).released is False
    assert (await say(other_log, events[3])).released is True
    assert (await say(other_log, events[0])).noop is True
    assert "committed" in (await say(other_log, events[0], "failed")).problem
    assert [event.id for event in await pop(log, batch=9)] == ["id4", "id5"]


async def test_an_id_is_found_when_its_segment_was_closed(log: Log, other_log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"retention_seconds": 86_400.0 * 30})
    await push(log, ["old"], key="ada", ids=["old"])
    (old,) = await pop(log)
    clock.advance(86_400 * 2)
    await log.upkeep()
    await push(log, ["new"], key="ada", ids=["new"])
    # The lease has ended long ago: nobody claims it.
    assert (await say(other_log, old, lease_id=None)).problem == ""
    (new,) = await pop(other_log)
    assert new.id == "new"
    assert (await say(log, new)).problem == ""


async def test_an_id_is_found_where_none_is_remembered(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE, partitions=2)
    await push(log, range(3), key="ada", ids=["a", "b", "c"])
    events = await pop(log, batch=2)
    assert (await say(other_log, events[1])).released is True
    assert (await say(other_log, events[0])).noop is True
    assert "not delivered" in (await say(other_log, events[0], id="c", lease_id=None)).problem
    assert "unresolved" in (await say(other_log, events[0], id="z")).problem


async def test_an_event_without_an_id_has_one_that_is_understood(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, range(3), key="ada")
    events = await pop(log, batch=3)
    assert (await say(other_log, events[2])).problem == ""
    assert (await say(other_log, events[1])).noop is True


async def test_a_lease_is_extended_by_its_id_alone_and_only_while_it_holds(
    log: Log, other_log: Log, clock: Clock
) -> None:
    await log.configure(QUEUE, {"lease_seconds": 60.0})
    for key in ("ada", "bob"):
        await push(log, [1], key=key)
    events = await pop(log, batch=2, partitions=2)
    lease = events[0].delivery.lease_id
    assert lease is not None
    assert group_of(lease) == events[0].delivery.group_id
    assert (await other_log.extend_lease(lease, 120))[0] == 2
    clock.advance(100)
    assert (await other_log.extend_lease(lease, 60))[0] == 2
    assert await other_log.extend_lease(new_lease_id(events[0].delivery.group_id), 60) == (0, None)
    clock.advance(61)
    assert await other_log.extend_lease(lease, 60) == (0, None)


async def test_a_partition_is_read_when_it_is_quiet(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"quiet_seconds": 10})
    await push(log, ["a"], key="ada")
    clock.advance(6)
    await push(log, ["b"], key="ada")
    await push(log, ["c"], key="bob")
    clock.advance(6)
    assert await pop(log, batch=9, partitions=9) == []
    await push(log, ["d"], key="bob")
    clock.advance(5)
    assert [event.data for event in await pop(log, batch=9, partitions=9)] == ["a", "b"]
    clock.advance(6)
    assert [event.data for event in await pop(log, batch=9, partitions=9)] == ["c", "d"]

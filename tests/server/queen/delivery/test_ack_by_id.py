"""Acks by id through a process that did not deliver the events, so that each id is looked up in the log."""

from __future__ import annotations

from typing import Any

from penstock.core.clock import Clock
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.log.read.ack_rules import Status
from penstock.log.read.lease import group_of_lease, new_lease_id
from penstock.server.queen.delivery.ack_by_id import AckById, AckByIdResult, AcksById
from tests.log.logs import GROUP, QUEUE, pop, push


async def ack(log: Log, event: Event, status: Status = "completed", **fields: Any) -> AckByIdResult:
    fields = {"lease_id": event.delivery.lease_id, "id": event.id, **fields}
    (result,) = await AcksById(log).ack([AckById(GROUP, event.partition_id, status=status, **fields)])
    return result


async def test_id_is_found_in_the_leased_range(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, range(6), key="ada", ids=[f"id{n}" for n in range(6)])
    events = await pop(log, batch=4)
    assert (await ack(other_log, events[1])).released is False
    assert (await ack(other_log, events[3])).released is True
    assert (await ack(other_log, events[0])).noop is True
    assert "committed" in (await ack(other_log, events[0], "failed")).problem
    assert [event.id for event in await pop(log, batch=9)] == ["id4", "id5"]


async def test_id_is_found_in_a_sealed_segment(log: Log, other_log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"retention_seconds": 86_400.0 * 30})
    await push(log, ["old"], key="ada", ids=["old"])
    (old,) = await pop(log)
    clock.advance(86_400 * 2)
    await log.upkeep()
    await push(log, ["new"], key="ada", ids=["new"])
    # The lease has expired, so the ack names none.
    assert (await ack(other_log, old, lease_id=None)).problem == ""
    (new,) = await pop(other_log)
    assert new.id == "new"
    assert (await ack(log, new)).problem == ""


async def test_id_is_found_in_a_queue_without_deduplication(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE, partitions=2)
    await push(log, range(3), key="ada", ids=["a", "b", "c"])
    events = await pop(log, batch=2)
    assert (await ack(other_log, events[1])).released is True
    assert (await ack(other_log, events[0])).noop is True
    assert "not delivered" in (await ack(other_log, events[0], id="c", lease_id=None)).problem
    assert "unresolved" in (await ack(other_log, events[0], id="z")).problem


async def test_generated_id_is_resolved(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, range(3), key="ada")
    events = await pop(log, batch=3)
    assert (await ack(other_log, events[2])).problem == ""
    assert (await ack(other_log, events[1])).noop is True


async def test_lease_is_extended_by_its_id_until_it_expires(log: Log, other_log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"lease_seconds": 60.0})
    for key in ("ada", "bob"):
        await push(log, [1], key=key)
    events = await pop(log, batch=2, partitions=2)
    lease = events[0].delivery.lease_id
    assert lease is not None
    assert group_of_lease(lease) == events[0].delivery.group_id
    acks = AcksById(other_log)
    assert (await acks.extend_lease(lease, 120)).partitions == 2
    clock.advance(100)
    assert (await acks.extend_lease(lease, 60)).partitions == 2
    assert await acks.extend_lease(new_lease_id(events[0].delivery.group_id), 60) == (0, None)
    clock.advance(61)
    assert await acks.extend_lease(lease, 60) == (0, None)


async def test_ack_for_the_group_of_a_query_is_refused(log: Log) -> None:
    queue = await log.configure(QUEUE)
    await log.consumer_groups.subscribe(queue, "sums", query_id="sums")
    await push(log, [1], key="ada", ids=["one"])
    (event,) = await pop(log)
    (result,) = await AcksById(log).ack([AckById("sums", event.partition_id, "one")])
    assert "belongs to the query" in result.problem
    assert [position.next_offset for position in await log.group_positions(QUEUE, "sums")] == [0]

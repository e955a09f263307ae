"""Acknowledging, and making leases last longer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from penstock.log.read.ack import STATUSES
from penstock.log.read.ack_by_id import UNRESOLVED, Answer, SaidById
from penstock.server.http.endpoint import Call, Endpoint, Role
from penstock.server.http.errors import Problem
from penstock.server.queen.identifiers import Kind, as_uuid, moment, unpack
from penstock.server.queen.pop import QUEUE_MODE
from penstock.server.queen.queues import TAG

BAD_LEASE = "Invalid or expired lease"


class AckItem(msgspec.Struct, rename="camel"):
    """What became of a message."""

    transaction_id: str
    partition_id: str
    status: str | None = None
    error: str | None = None
    lease_id: str | None = None


class Ack(AckItem, rename="camel"):
    """The same, and in which group."""

    consumer_group: str | None = None


class AckBatch(msgspec.Struct, rename="camel"):
    """What became of several messages of one group."""

    acknowledgments: list[AckItem]
    consumer_group: str | None = None


class Acked(msgspec.Struct, rename="camel"):
    """What became of an acknowledgement; one that is refused has no success and an error."""

    index: int
    transaction_id: str
    success: bool
    error: str | None
    queue_name: str | None
    partition_name: str | None
    lease_released: bool
    dlq: bool
    noop: bool = False


class Extend(msgspec.Struct):
    """How long a lease is to last from now."""

    seconds: float = 60.0


class Extended(msgspec.Struct):
    """Until when a lease lasts now; the names of several generations of clients for the same."""

    leaseId: str
    success: bool
    error: str | None
    renewed: int
    expiresAt: datetime | None
    newExpiresAt: datetime | None
    lease_expires_at: datetime | None


def said_of(item: AckItem, group: str | None) -> SaidById | str:
    """What is said of a message, or what is wrong with that."""
    partition_id = unpack(Kind.PARTITION, item.partition_id)
    if partition_id is None or "\x00" in f"{item.transaction_id}{group or ''}":
        return UNRESOLVED
    status = STATUSES.get(item.status or "completed")
    if status is None:
        return f"{item.status!r} cannot be said of a message: say completed, failed, retry or dlq"
    lease_id = as_uuid(item.lease_id) if item.lease_id else None
    if item.lease_id and lease_id is None:
        return BAD_LEASE
    return SaidById(group or QUEUE_MODE, partition_id, item.transaction_id, status, item.error or "", lease_id)


async def permit_partitions(call: Call, said: Sequence[SaidById | str], *roles: Role) -> None:
    """Ask whether the caller may use the queues of these partitions; what does not exist concerns nobody."""
    call.permit(())
    for partition_id in {each.partition_id for each in said if isinstance(each, SaidById)}:
        lane = await call.services.log.by_id.lane(partition_id)
        if lane is not None:
            call.permit_found(lane.queue, *roles)


async def ack_one(call: Call) -> list[Acked]:
    """Say what became of a message."""
    body: Ack = call.body
    return await _ack(call, [body], body.consumer_group)


async def ack_batch(call: Call) -> list[Acked]:
    """Say what became of several messages."""
    body: AckBatch = call.body
    return await _ack(call, body.acknowledgments, body.consumer_group)


async def _ack(call: Call, items: Sequence[AckItem], group: str | None) -> list[Acked]:
    said = [said_of(item, group) for item in items]
    await permit_partitions(call, said)
    taken = iter(await call.services.log.ack_by_id([each for each in said if isinstance(each, SaidById)]))
    answers = [Answer(each) if isinstance(each, str) else next(taken) for each in said]
    for each, answer in zip(said, answers, strict=True):
        if isinstance(each, SaidById) and answer.lane is not None and not answer.problem:
            call.services.metrics.acked(answer.lane.queue, each.status, 1)
    return [_acked(i, item, answer) for i, (item, answer) in enumerate(zip(items, answers, strict=True))]


def _acked(index: int, item: AckItem, answer: Answer) -> Acked:
    lane = answer.lane
    return Acked(
        index,
        item.transaction_id,
        not answer.problem,
        answer.problem or None,
        None if lane is None else lane.queue,
        None if lane is None else lane.partition,
        answer.released,
        answer.dead,
        answer.noop,
    )


async def extend(call: Call) -> Extended:
    """Make a lease last longer, in all its partitions."""
    body: Extend = call.body
    text = call.path["lease"]
    lease_id = as_uuid(text)
    log = call.services.log
    if not body.seconds > 0:
        raise Problem("invalid-request", "seconds must be a number above 0")
    call.permit_found(() if lease_id is None else await log.by_id.queues_of(lease_id))
    renewed, until = (0, None) if lease_id is None else await log.extend_lease(lease_id, body.seconds)
    told = None if until is None else moment(until)
    error = None if renewed else "Lease not found, or expired already"
    return Extended(text, renewed > 0, error, renewed, told, told, told)


_CONSUMER = frozenset({Role.CONSUME})

ENDPOINTS = (
    Endpoint(
        "POST",
        "/api/v1/ack",
        ack_one,
        "Acknowledge a message",
        TAG,
        roles=_CONSUMER,
        asks=True,
        body=Ack,
        answer=list[Acked],
        plane=True,
    ),
    Endpoint(
        "POST",
        "/api/v1/ack/batch",
        ack_batch,
        "Acknowledge several messages",
        TAG,
        roles=_CONSUMER,
        asks=True,
        body=AckBatch,
        answer=list[Acked],
        plane=True,
    ),
    Endpoint(
        "POST",
        "/api/v1/lease/{lease}/extend",
        extend,
        "Make a lease last longer",
        TAG,
        roles=_CONSUMER,
        asks=True,
        body=Extend,
        body_required=False,
        answer=Extended,
        plane=True,
    ),
)

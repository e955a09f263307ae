"""The endpoints that acknowledge messages and extend leases."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from penstock.log.read.ack import STATUSES
from penstock.log.read.lease import LeaseExtension
from penstock.server.auth.identity import Role
from penstock.server.http.errors import Problem
from penstock.server.queen.delivery.ack_by_id import UNRESOLVED, AckById, AckByIdResult, AcksById
from penstock.server.queen.endpoint import ListBody, NullableList, queen_routes
from penstock.server.queen.identifiers import QUEUE_MODE, IdKind, decode_id, parse_uuid
from penstock.server.routing.call import ApiCall

routes = queen_routes()

INVALID_LEASE = "Invalid or expired lease"


class MessageAck(msgspec.Struct, rename="camel"):
    transaction_id: str
    partition_id: str
    status: str | None = None
    error: str | None = None
    lease_id: str | None = None


class GroupMessageAck(MessageAck, rename="camel"):
    """The status of one message in a consumer group."""

    consumer_group: str | None = None


class MessageAckBatch(ListBody, rename="camel"):
    """The statuses of several messages in one consumer group."""

    acknowledgments: NullableList[MessageAck]
    consumer_group: str | None = None


class MessageAckResult(msgspec.Struct, rename="camel"):
    """The result of one acknowledgement. A refused one has ``success`` false and an ``error``."""

    index: int
    transaction_id: str
    success: bool
    error: str | None
    queue_name: str | None
    partition_name: str | None
    lease_released: bool
    dlq: bool
    noop: bool = False


class LeaseExtensionRequest(msgspec.Struct):
    """How many seconds from now a lease is to last."""

    seconds: float = 60.0


class LeaseExtensionResult(msgspec.Struct):
    """When the lease ends. Generations of clients read it under different names."""

    leaseId: str
    success: bool
    error: str | None
    renewed: int
    expiresAt: datetime | None
    newExpiresAt: datetime | None
    lease_expires_at: datetime | None


def parse_ack(ack: MessageAck, group: str | None) -> AckById | str:
    """Convert an acknowledgement of a request, or return why it is invalid."""
    partition_id = decode_id(IdKind.PARTITION, ack.partition_id)
    if partition_id is None or "\x00" in f"{ack.transaction_id}{group or ''}":
        return UNRESOLVED
    status = STATUSES.get(ack.status or "completed")
    if status is None:
        return f"{ack.status!r} is not a status of a message: use completed, failed, retry or dlq"
    lease_id = parse_uuid(ack.lease_id) if ack.lease_id else None
    if ack.lease_id and lease_id is None:
        return INVALID_LEASE
    return AckById(group or QUEUE_MODE, partition_id, ack.transaction_id, status, ack.error or "", lease_id)


async def permit_partitions(call: ApiCall, acks: Sequence[AckById | str], *roles: Role) -> None:
    """Refuse the call unless the caller may use the queues of these partitions. Unknown partitions are skipped."""
    call.require_access(())
    lookup = call.services.component(AcksById).lookup
    for partition_id in {ack.partition_id for ack in acks if isinstance(ack, AckById)}:
        partition = await lookup.find_partition(partition_id)
        if partition is not None:
            call.require_access_silently(partition.queue, *roles)


@routes.post("/api/v1/ack", "Acknowledge a message", Role.CONSUME, checks_queues=True)
async def ack_message(call: ApiCall, body: GroupMessageAck) -> list[MessageAckResult]:
    return await _ack(call, [body], body.consumer_group)


@routes.post("/api/v1/ack/batch", "Acknowledge several messages", Role.CONSUME, checks_queues=True)
async def ack_batch(call: ApiCall, body: MessageAckBatch) -> list[MessageAckResult]:
    return await _ack(call, body.acknowledgments, body.consumer_group)


async def _ack(call: ApiCall, items: Sequence[MessageAck], group: str | None) -> list[MessageAckResult]:
    parsed = [parse_ack(item, group) for item in items]
    await permit_partitions(call, parsed)
    valid = [ack for ack in parsed if isinstance(ack, AckById)]
    applied = iter(await call.services.component(AcksById).ack(valid))
    results: list[MessageAckResult] = []
    for item, ack in zip(items, parsed, strict=True):
        result = AckByIdResult(ack) if isinstance(ack, str) else next(applied)
        partition = result.partition
        if isinstance(ack, AckById) and partition is not None and not result.problem:
            call.services.metrics.acked.add(1, partition.queue, ack.status)
        results.append(
            MessageAckResult(
                len(results),
                item.transaction_id,
                not result.problem,
                result.problem or None,
                None if partition is None else partition.queue,
                None if partition is None else partition.partition,
                result.released,
                result.dead,
                result.noop,
            )
        )
    return results


@routes.post("/api/v1/lease/{lease}/extend", "Extend a lease", Role.CONSUME, checks_queues=True, body_required=False)
async def extend_lease(call: ApiCall, body: LeaseExtensionRequest) -> LeaseExtensionResult:
    """Extend a lease in all its partitions."""
    text = call.path["lease"]
    lease_id = parse_uuid(text)
    acks = call.services.component(AcksById)
    if not body.seconds > 0:
        raise Problem("invalid-request", "seconds must be a number above 0")
    call.require_access_silently(() if lease_id is None else await acks.queues_of_lease(lease_id))
    extension = LeaseExtension(0, None) if lease_id is None else await acks.extend_lease(lease_id, body.seconds)
    renewed, expires_at = extension.partitions, extension.until
    error = None if renewed else "Lease not found, or expired already"
    return LeaseExtensionResult(text, renewed > 0, error, renewed, expires_at, expires_at, expires_at)

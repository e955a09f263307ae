"""Acks by partition, offset and lease, from callers without an event object. They are JSON types of the HTTP API."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from penstock.log.event import Event
from penstock.log.groups import Group
from penstock.log.read.ack import AckResult, Acks, PartitionAck
from penstock.log.read.ack_rules import AckEffect, EventAck, Status

NonNegativeInt = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Ack(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The status of one event, from the holder of its lease."""

    partition_id: NonNegativeInt
    offset: NonNegativeInt
    lease_id: UUID
    status: Status = "completed"
    error: str = ""
    stage: str = "consumer"
    traceback: str | None = None


class TransactionAck(Ack, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """An ack with its queue and group."""

    queue: str
    group: str


class AckReply(Struct, frozen=True, omit_defaults=True):
    """The result of one ack."""

    success: bool
    error: str | None = None
    noop: bool = False
    dead_letter: bool = False

    def result(self, event: Event) -> AckResult:
        return AckResult(event.id, self.success, self.error, self.noop, self.dead_letter)


def group_acks(queue: str, group: Group, acks: Sequence[Ack]) -> list[PartitionAck]:
    """Group the acks of a group by partition and lease, each in order."""
    by_lease: dict[tuple[int, UUID], list[EventAck]] = {}
    for ack in acks:
        event_ack = EventAck(ack.offset, ack.status, ack.error, ack.stage, ack.traceback)
        by_lease.setdefault((ack.partition_id, ack.lease_id), []).append(event_ack)
    return [
        PartitionAck(queue, group.name, group.id, partition_id, lease_id, tuple(event_acks))
        for (partition_id, lease_id), event_acks in by_lease.items()
    ]


async def apply_leased(service: Acks, queue: str, group: Group, acks: Sequence[Ack]) -> list[AckReply]:
    """Apply acks of one group and return their results in order.

    A partition of another queue has no position of this group, so its acks are refused.
    """
    outcomes: dict[tuple[int, UUID | None], deque[AckEffect]] = {}
    for partition_ack in group_acks(queue, group, acks):
        applied = await service.apply(partition_ack)
        outcomes[partition_ack.partition_id, partition_ack.lease_id] = deque(applied)
    replies = [outcomes[ack.partition_id, ack.lease_id].popleft() for ack in acks]
    return [AckReply(not reply.problem, reply.problem or None, reply.noop, reply.dead) for reply in replies]

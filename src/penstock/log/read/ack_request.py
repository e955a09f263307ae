"""An acknowledgement by partition, offset and lease, from a caller that holds no event object."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from penstock.log.event import Event
from penstock.log.read.ack import AckResult
from penstock.log.read.position import Status

Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Ack(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What became of one event, by whoever holds its lease."""

    partition_id: Number
    offset: Number
    lease_id: UUID
    status: Status = "completed"
    error: str = ""
    stage: str = "consumer"
    traceback: str | None = None


class TransactionAck(Ack, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """An ack with the queue and the group that it belongs to."""

    queue: str
    group: str


class Acked(Struct, frozen=True, omit_defaults=True):
    """What became of one ack."""

    success: bool
    error: str | None = None
    noop: bool = False
    dead_letter: bool = False

    def result(self, event: Event) -> AckResult:
        """The result, as the log itself would give it."""
        return AckResult(event.id, self.success, self.error, self.noop, self.dead_letter)

"""The parameters of a pop."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from penstock.core.errors import InvalidRequest, short_repr
from penstock.core.names import check_name, check_text
from penstock.log.groups import DEFAULT_GROUP
from penstock.log.queue_options import check_integer, check_lease_seconds
from penstock.log.start_position import StartPosition, parse_start_position

#: The most bytes that a pop returns, unless one event alone has more.
MAX_POP_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class PopRequest:
    """The parameters of a pop."""

    queue: str
    group: str = DEFAULT_GROUP
    batch: int = 1
    partitions: int = 1
    partition: str | None = None
    wait_seconds: float = 0.0
    lease_seconds: float | None = None
    auto_ack: bool = False
    subscribe_from: StartPosition = "beginning"
    #: The id of the new lease, if the caller has to know it even when the response is lost.
    lease_id: uuid.UUID | None = None
    #: The lease of a response that was lost. It is released first.
    instead_of: uuid.UUID | None = None
    #: The most bytes to return, unless one event alone has more. The rest is released.
    max_bytes: int = MAX_POP_BYTES

    def __post_init__(self) -> None:
        check_name(self.queue, "queue")
        check_name(self.group, "group")
        check_integer("batch", self.batch, 1, 100_000)
        check_integer("partitions", self.partitions, 1, 100_000)
        check_integer("max_bytes", self.max_bytes, 1, MAX_POP_BYTES)
        wait: object = self.wait_seconds
        if not isinstance(wait, int | float) or isinstance(wait, bool) or not wait >= 0:
            raise InvalidRequest(f"the time to wait must be a number of seconds, 0 or more, not {short_repr(wait)}")
        if self.lease_seconds is not None:
            check_lease_seconds(self.lease_seconds)
        if self.partition is not None:
            check_text(self.partition, "the partition")
        parse_start_position(self.subscribe_from)

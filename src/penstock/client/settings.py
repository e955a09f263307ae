"""The settings that a chain of calls on a queue handle has made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.log.groups import DEFAULT_GROUP
from penstock.log.read.pop_request import PopRequest
from penstock.log.start_position import StartPosition

#: How long a pop with ``wait()`` waits by default.
DEFAULT_TIMEOUT_MILLIS = 30_000


@dataclass(frozen=True, slots=True)
class HandleSettings:
    """The settings of a queue handle; None where the default applies."""

    options: Mapping[str, Any] = field(default_factory=dict)
    partition: str | None = None
    group: str | None = None
    batch: int = 1
    partitions: int = 1
    wait: bool = False
    timeout_millis: float = DEFAULT_TIMEOUT_MILLIS
    lease_seconds: float | None = None
    auto_ack: bool = False
    subscribe_from: StartPosition = "beginning"
    each: bool = False

    @property
    def group_name(self) -> str:
        """The consumer group, or the default group."""
        return DEFAULT_GROUP if self.group is None else self.group

    def request(self, queue: str) -> PopRequest:
        """Return the pop request for these settings."""
        return PopRequest(
            queue,
            group=self.group_name,
            batch=self.batch,
            partitions=self.partitions,
            partition=self.partition,
            wait_seconds=self.timeout_millis / 1000 if self.wait else 0.0,
            lease_seconds=self.lease_seconds,
            auto_ack=self.auto_ack,
            subscribe_from=self.subscribe_from,
        )

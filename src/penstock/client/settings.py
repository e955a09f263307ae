"""What a queue handle has been told so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.log.groups import DEFAULT_GROUP, Place
from penstock.log.read.lease import PopRequest

#: How long a pop that waits does so unless it is told.
DEFAULT_TIMEOUT_MILLIS = 30_000


@dataclass(frozen=True, slots=True)
class HandleSettings:
    """The choices that a chain of calls on a handle has made; ``None`` where it has made none."""

    options: Mapping[str, Any] = field(default_factory=dict)
    partition: str | None = None
    group: str | None = None
    batch: int = 1
    partitions: int = 1
    wait: bool = False
    timeout_millis: float = DEFAULT_TIMEOUT_MILLIS
    lease_seconds: float | None = None
    auto_ack: bool = False
    subscribe_from: Place = "beginning"
    each: bool = False

    @property
    def group_name(self) -> str:
        """The group to act for."""
        return DEFAULT_GROUP if self.group is None else self.group

    def request(self, queue: str) -> PopRequest:
        """The pop that these settings ask for."""
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

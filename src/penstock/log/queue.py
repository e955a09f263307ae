"""What a queue is, as the catalog knows it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

#: The lane of events that come without a key.
DEFAULT_KEY = "Default"


def place_key(key: str, partition_count: int) -> str:
    """The name of the one of so many hash partitions that a key belongs to."""
    return str(zlib.crc32(key.encode()) % partition_count)


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue: how it is partitioned and what it was told."""

    id: int
    name: str
    partitioning: str
    partition_count: int | None
    epoch: int
    segment: int
    lease_seconds: float
    retry_limit: int
    retry_delay_ms: int
    delay_seconds: float
    retention_seconds: float | None
    retention_drops_unread: bool
    dedup_window_seconds: float
    max_depth_events: int | None
    max_event_bytes: int | None
    max_redrives: int
    lanes_warned_at: datetime | None
    created_at: datetime
    expiry_limit: int | None
    #: What becomes of pushes that the queue is too full for: ``refuse`` or ``shed``.
    overflow: str
    #: How long a group may not have been seen before it no longer counts for ``max_depth_events``; None: for ever.
    away_seconds: float | None
    #: The fields of NDJSON events that hold their key, id and time, where a push does not name them.
    key_field: str | None
    id_field: str | None
    time_field: str | None
    #: A partition is read when nothing was pushed to it for so long.
    quiet_seconds: float
    #: Segments whose ids may still lie in the deduplication window, newest first.
    id_segments: list[int]

    def place(self, key: str) -> str:
        """The name of the partition that a key belongs to."""
        if self.partition_count is None:
            return key
        return place_key(key, self.partition_count)

    def place_event(self, key: str | None, event_id: str | None) -> str:
        """The name of the partition that an event belongs to; one with neither key nor id may go anywhere."""
        if key is not None:
            return self.place(key)
        if self.partition_count is None:
            return DEFAULT_KEY
        return "0" if event_id is None or self.dedup_window_seconds <= 0 else self.place(event_id)

    def kept_keys(self, partition: str, keys: Sequence[str | None] | None) -> Sequence[str | None] | None:
        """Of the keys of a partition's events, those that its name does not tell."""
        if keys is None or (self.partition_count is None and partition != DEFAULT_KEY):
            return None
        return keys if any(key is not None for key in keys) else None

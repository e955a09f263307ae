"""A queue: its partitioning and its options, and which partition an event belongs to."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

#: The partition of events without a key, in a queue that is partitioned by key.
DEFAULT_KEY = "Default"


def hash_partition(key: str, partition_count: int) -> str:
    return str(zlib.crc32(key.encode()) % partition_count)


@dataclass(frozen=True, slots=True, repr=False)
class Queue:
    """A queue: its partitioning, its open segment and its options."""

    id: int
    name: str
    #: ``key`` (one partition for each key) or ``hash`` (``partition_count`` partitions).
    partitioning: str
    partition_count: int | None
    #: Counts how often the queue was repartitioned.
    epoch: int
    #: The segment that events are appended to.
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
    partitions_warned_at: datetime | None
    created_at: datetime
    expiry_limit: int | None
    #: How a full queue treats a push: ``refuse`` or ``shed``.
    overflow: str
    #: A group that has not popped for this long does not count towards ``max_depth_events``. None: it always counts.
    away_seconds: float | None
    #: The fields of NDJSON events that hold key, id and time, unless a push names others.
    key_field: str | None
    id_field: str | None
    time_field: str | None
    #: Whether the events are stored encrypted.
    encrypted: bool
    #: A partition becomes readable when nothing was appended to it for this long.
    quiet_seconds: float
    #: The same as ``max_depth_events`` for a queue that no group reads: the most events that it may hold.
    max_unread_events: int | None
    #: How a push over HTTP with invalid events is treated: ``auto``, ``refuse`` or ``dead_letter``.
    invalid_events: str
    #: Whether the chunks are stored so that SQL can read them.
    readable_from_sql: bool
    #: Segments that may hold ids within the deduplication window, newest first.
    id_segments: list[int]

    @property
    def is_limited(self) -> bool:
        """Whether pushes can meet a full queue."""
        return self.max_depth_events is not None or self.max_unread_events is not None

    def __repr__(self) -> str:
        # A prompt prints the result of create(): more than 20 options would hide what matters.
        count = "" if self.partition_count is None else f", partition_count={self.partition_count}"
        return f"Queue({self.name!r}, partitioning={self.partitioning!r}{count})"

    def partition_for_key(self, key: str) -> str:
        if self.partition_count is None:
            return key
        return hash_partition(key, self.partition_count)

    def partition_for_event(self, key: str | None, event_id: str | None) -> str:
        """Return the name of the partition that an event belongs to. An event without key and id fits any of them."""
        if key is not None:
            return self.partition_for_key(key)
        if self.partition_count is None:
            return DEFAULT_KEY
        return "0" if event_id is None or self.dedup_window_seconds <= 0 else self.partition_for_key(event_id)

    def stored_keys(self, partition: str, keys: Sequence[str | None] | None) -> Sequence[str | None] | None:
        """Return the keys to store with a partition's events: None if its name is the key, or if there are none."""
        if keys is None or (self.partition_count is None and partition != DEFAULT_KEY):
            return None
        return keys if any(key is not None for key in keys) else None

"""Which watermark closes the windows of a query."""

from __future__ import annotations

from enum import Enum


class WatermarkScope(Enum):
    """Which partitions advance the watermark that closes a window."""

    #: Only the partition that the window's key is in.
    PARTITION = "partition"
    #: Like PARTITION, but all partitions for windows of events without a key, which are in all partitions.
    KEYLESS_GLOBAL = "keyless global"
    #: All partitions: the window's key is not the queue's.
    GLOBAL = "global"

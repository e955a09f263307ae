"""The ids of recently delivered events, by lease and partition."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from penstock.log.event import Event
from penstock.log.read.position_store import PositionKey

#: The cache holds about this many ids.
_MAX_IDS = 200_000


class OffsetsById:
    """The offsets of event ids. An id that occurs several times has several, which are taken in order."""

    def __init__(self, offsets: dict[str, list[int]]) -> None:
        self._offsets = offsets
        self._taken: dict[str, int] = {}

    def __contains__(self, event_id: str) -> bool:
        return event_id in self._offsets

    def add(self, event_id: str, offset: int) -> None:
        """Set the only offset of an id."""
        self._offsets[event_id] = [offset]

    def take(self, event_id: str) -> int | None:
        """Return the next offset of an id, the last one again after all are taken, or None if the id is unknown."""
        offsets = self._offsets.get(event_id)
        if not offsets:
            return None
        taken = self._taken.get(event_id, 0)
        self._taken[event_id] = taken + 1
        return offsets[min(taken, len(offsets) - 1)]


@dataclass(frozen=True, slots=True)
class DeliveredPartition:
    """The ids and offsets that a lease delivered of one partition."""

    group_id: int
    offsets: dict[str, list[int]]


class RecentDeliveries:
    """Caches what this process has delivered, so that most acks need no lookup. The oldest leases go first."""

    def __init__(self) -> None:
        self._leases: OrderedDict[UUID, dict[int, DeliveredPartition]] = OrderedDict()
        self._size = 0

    def add(self, events: Sequence[Event]) -> None:
        """Cache the ids of delivered events."""
        for event in events:
            delivery = event.delivery
            if delivery.lease_id is None:
                continue
            partitions = self._leases.setdefault(delivery.lease_id, {})
            partition = partitions.get(delivery.partition_id)
            if partition is None:
                partition = partitions[delivery.partition_id] = DeliveredPartition(delivery.group_id, {})
            partition.offsets.setdefault(event.id, []).append(event.offset)
            self._size += 1
        while self._size > _MAX_IDS and len(self._leases) > 1:
            _, removed = self._leases.popitem(last=False)
            self._size -= sum(len(offsets) for partition in removed.values() for offsets in partition.offsets.values())

    def get(self, lease_id: UUID, partition_id: int) -> DeliveredPartition | None:
        """Return what a lease delivered of a partition, if it is cached."""
        return self._leases.get(lease_id, {}).get(partition_id)

    def partitions_of(self, lease_id: UUID) -> list[PositionKey]:
        """Return the group and the partitions of a lease; empty if the lease is not cached."""
        partitions = self._leases.get(lease_id, {})
        return [PositionKey(delivered.group_id, partition_id) for partition_id, delivered in partitions.items()]

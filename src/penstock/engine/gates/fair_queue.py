"""The order in which partitions that share a gate are served, if there are too many for one release."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Mapping

from penstock.engine.gates.allocation import Allocation


class FairQueue:
    """Selects batches of partitions, round robin in the order of their ids.

    While a gate is reserved for one partition, partitions that are known to need this gate are blocked. All of them
    become ready at the moment the reservation ends. So their number does not delay the use of the refilled budget,
    and none of them is skipped.
    """

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._ready: list[int] = []
        self._blocked: set[int] = set()
        self._reserved_until: Mapping[int, int] = {}
        #: When the first reservation ends, and when blocked partitions become ready if no other partition is.
        self._unblock_us = 0
        self._retry_us = 0
        #: The shared gates that the next event of a partition needs, where that is known.
        self._needed_gates: dict[int, tuple[int, ...]] = {}
        self._next_partition = 0
        self._reserved_for: tuple[int, ...] = ()

    @property
    def has_more(self) -> bool:
        """Whether partitions are left over from the last batch."""
        return bool(self._ready or self._blocked)

    @property
    def reserved_until(self) -> Mapping[int, int]:
        """The reserved gates, and until when."""
        return self._reserved_until

    @property
    def reserved_for(self) -> Container[int]:
        """The partitions that gates are reserved for."""
        return self._reserved_for

    @property
    def next_us(self) -> int | None:
        """When blocked partitions become ready; None if there are none."""
        return self._retry_us if self._blocked else None

    def take_batch(self, due: set[int], buffered: Container[int], now_us: int) -> list[int]:
        """Take the next partitions of those that are due or left over, and those that a gate is reserved for."""
        if (self._unblock_us if self._ready or due else self._retry_us) <= now_us:
            self._ready += self._blocked
            self._blocked = set()
        ready = sorted({partition for partition in (*due, *self._ready) if partition in buffered})
        first = bisect_left(ready, self._next_partition)
        batch = (ready[first:] + ready[:first])[: self._batch_size]
        self._ready = sorted(set(ready) - set(batch))
        if len(self._needed_gates) > 2 * (len(ready) + len(self._blocked) + self._batch_size):
            self._needed_gates = {
                partition: gates for partition, gates in self._needed_gates.items() if partition in buffered
            }
        reserved_for = [partition for partition in self._reserved_for if partition in buffered] if batch else []
        taken = dict.fromkeys(batch + reserved_for)
        self._blocked.difference_update(taken)
        return list(taken)

    def discard(self, partitions: Iterable[int]) -> None:
        """Drop partitions that are no longer buffered. They are due again when they are."""
        self._blocked.difference_update(partitions)

    def apply(self, allocation: Allocation, not_before_us: int) -> None:
        """Continue the round robin after an allocation; blocked partitions do not become ready before a time."""
        self._next_partition, self._reserved_for = allocation.next_partition, allocation.reserved_for
        for partition, allocated in allocation.partitions.items():
            if allocated.blocked_by:
                self._needed_gates[partition] = allocated.blocked_by
                self._blocked.add(partition)
            else:
                self._needed_gates.pop(partition, None)
        before, self._reserved_until = self._reserved_until, allocation.reserved_until
        self._unblock_us = min(allocation.reserved_until.values(), default=0)
        self._retry_us = max(self._unblock_us, not_before_us)
        if allocation.reserved_until:
            self._blocked.update(partition for partition in self._ready if self._needs_reserved_gate(partition))
            self._ready = [partition for partition in self._ready if partition not in self._blocked]
        if before.keys() - allocation.reserved_until.keys():
            # The partition of an earlier reservation was served or may not be served now, so nothing waits for it.
            free = {partition for partition in self._blocked if not self._needs_reserved_gate(partition)}
            self._blocked -= free
            self._ready += free

    def _needs_reserved_gate(self, partition: int) -> bool:
        return any(gate in self._reserved_until for gate in self._needed_gates.get(partition, ()))

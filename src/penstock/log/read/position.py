"""The position of a group in a partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import UUID

#: ``available_at`` of a position that is readable now. It does not depend on the clock, which may be set back.
AT_ONCE = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Position:
    """One version of a group's position in a partition."""

    group_id: int
    partition_id: int
    version: int
    next_offset: int
    lease_id: UUID | None
    lease_end: int
    #: When the lease expires, or when the partition becomes readable if there is no lease.
    available_at: datetime
    #: The number of leases that expired without an ack since ``next_offset`` last moved.
    expiries: int
    #: Events before this offset are delivered one at a time, to find the one that makes consumers fail.
    suspect_end: int
    #: Events before this offset were also delivered under an earlier lease.
    redelivered_end: int
    #: The number of failed attempts of each event from ``next_offset`` on that has failed, by its offset.
    failures: Mapping[int, int]
    #: Offsets from ``next_offset`` on that went to the dead letters.
    skipped: tuple[int, ...]

    @property
    def attempts(self) -> int:
        """The largest number of failed attempts of an event."""
        return max(self.failures.values(), default=0)

    def moved_to(self, next_offset: int) -> Position:
        """Return the position at a later offset, without the failures and dead letters before it."""
        return replace(
            self,
            next_offset=next_offset,
            failures={offset: count for offset, count in self.failures.items() if offset >= next_offset},
            skipped=tuple(offset for offset in self.skipped if offset >= next_offset),
        )


def failures_by_offset(next_offset: int, attempts: int, failures: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return the number of failed attempts of each event from the columns of a position.

    Versions before 0.2 stored ``attempts`` alone. They count for the event at ``next_offset``.
    """
    if attempts and not failures:
        return {next_offset: attempts}
    return {offset: count for offset, count in failures}

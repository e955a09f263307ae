"""Round-robin order of the partitions that the pops of a group lease."""

from __future__ import annotations

from typing import NamedTuple

#: Greater than any partition id.
MAX_PARTITION_ID = 2**63 - 1
#: How many searches rely on an earlier one that found nothing at the end.
_TRUSTED_SEARCHES = 8


class PartitionSpan(NamedTuple):
    """The partition ids greater than ``after`` and up to ``upto``."""

    after: int
    upto: int


ALL_PARTITIONS = PartitionSpan(0, MAX_PARTITION_ID)


class RoundRobin:
    """Continues after the last partition that was leased, and wraps around at the end."""

    __slots__ = ("_empty_after", "_last", "_trusted")

    def __init__(self) -> None:
        self._last = 0
        # No partition after this one was readable, which the next searches rely on.
        self._empty_after = 0
        self._trusted = 0

    def spans(self, waiting: int) -> list[PartitionSpan]:
        """Return the spans to search, in order, for so many waiting pops.

        Several pops together may rely on the last search of the end, and skip a partition there that has become
        readable since. A single pop must not: it would be served from the first partitions only.
        """
        if waiting > 1 and self._last >= self._empty_after and self._trusted:
            self._trusted -= 1
            return [ALL_PARTITIONS]
        if not self._last:
            return [ALL_PARTITIONS]
        return [PartitionSpan(self._last, MAX_PARTITION_ID), PartitionSpan(0, self._last)]

    def record(self, span: PartitionSpan, last: int | None) -> None:
        """Record the last partition that a search of the span has leased, or None."""
        if last is not None:
            # The search came full circle, so the next one starts at the beginning.
            self._last = 0 if last == span.upto else last
        elif span.upto == MAX_PARTITION_ID and span.after:
            self._empty_after, self._trusted = span.after, _TRUSTED_SEARCHES

    def start_at(self, partition_id: int) -> None:
        """Start the next search at this partition."""
        self._last = partition_id - 1
        self._trusted = 0

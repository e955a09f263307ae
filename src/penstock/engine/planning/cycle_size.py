"""Adapts the number of events per cycle to the time that cycles take."""

from __future__ import annotations

#: While there is a backlog, cycles grow until one takes this long.
_TARGET_SECONDS = 2.0
#: Cycles faster than this grow four times, those faster than half of it eight times.
_FAST_SECONDS = 0.7
#: A cycle with this share of the limit counts as full: partitions do not divide evenly.
_FULL = 0.9


class CycleSize:
    """The largest number of events that the next cycle may read."""

    def __init__(self, small: int, maximum: int, first: int, grow_after: int = 1) -> None:
        self.limit = max(small, first)
        self._small = small
        self._maximum = maximum
        #: Grow only after so many full cycles in a row.
        self._grow_after = grow_after
        self._full_cycles = 0
        self._events: int | None = None
        self._began = 0.0
        self._rate = 0.0

    def is_full(self, events: int) -> bool:
        return events >= self.limit * _FULL

    def begin_cycle(self, events: int, now: float) -> None:
        self._events, self._began = events, now

    def adapt(self, now: float) -> None:
        """Change the limit, given that the last cycle ends now."""
        if self._events is None:
            return
        events, self._events = self._events, None
        if not self.is_full(events):
            self._full_cycles = 0
            return
        self._full_cycles += 1
        if self._full_cycles < self._grow_after:
            return
        seconds = max(now - self._began, 0.001)
        rate = events / seconds
        if seconds < _FAST_SECONDS / 2:
            self.limit *= 8
        elif seconds < _FAST_SECONDS:
            self.limit *= 4
        elif seconds < _TARGET_SECONDS or rate > 1.2 * self._rate:
            self.limit *= 2
        elif seconds > 3 * _TARGET_SECONDS:
            self.limit //= 2
        self._rate = rate
        self.limit = min(max(self.limit, self._small), self._maximum)


def divide_evenly(available: list[int], limit: int) -> list[int]:
    """Divide the limit over partitions: equal shares, except where a partition has less."""
    shares = [0] * len(available)
    left = limit
    ascending = sorted(range(len(available)), key=lambda i: available[i])
    for rank, index in enumerate(ascending):
        shares[index] = min(available[index], -(-left // (len(ascending) - rank)))
        left -= shares[index]
    return shares

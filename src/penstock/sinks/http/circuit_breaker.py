"""A circuit breaker: what does not answer is left alone for a while, then tried with one request."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from penstock.core.errors import SinkBusy
from penstock.sinks.backoff import Backoff


class Breaker:
    """Opens after ``failures`` in a row; then one attempt is let through after each pause, until one succeeds."""

    def __init__(self, failures: int, pauses: Backoff, clock: Callable[[], float] = monotonic) -> None:
        self._limit = failures
        self._pauses = pauses
        self._clock = clock
        self._failures = 0
        self._open_until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the other side is being left alone."""
        return self._failures >= self._limit

    def check(self) -> None:
        """Raise SinkBusy if it is too early for an attempt; the one that is let through holds back the others."""
        if not self.is_open:
            return
        left = self._open_until - self._clock()
        if left > 0:
            raise SinkBusy(f"it failed {self._failures} times in a row and is left alone", retry_after=left)
        self._open_until = self._clock() + self._pauses.longest

    def succeeded(self) -> None:
        """Close it."""
        self._failures = 0

    def failed(self, retry_after: float | None = None) -> None:
        """Count a failure; ``retry_after`` is when the other side wants to be asked again."""
        self._failures += 1
        if self.is_open:
            pause = self._pauses.pause(self._failures - self._limit + 1)
            self._open_until = self._clock() + max(pause, retry_after or 0.0)

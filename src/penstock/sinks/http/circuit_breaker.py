"""A circuit breaker: after repeated failures it lets single attempts through, with a backoff between them."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from penstock.core.backoff import Backoff
from penstock.core.errors import SinkBusy


class CircuitBreaker:
    """Opens after ``failures`` consecutive failures; then allows one attempt after each pause until one succeeds."""

    def __init__(self, failures: int, backoff: Backoff, clock: Callable[[], float] = monotonic) -> None:
        self._limit = failures
        self._backoff = backoff
        self._clock = clock
        self._failures = 0
        self._open_until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether attempts are restricted."""
        return self._failures >= self._limit

    def check(self) -> None:
        """Raise SinkBusy if the pause is not over. An attempt that is allowed starts a new pause for the others."""
        if not self.is_open:
            return
        remaining = self._open_until - self._clock()
        if remaining > 0:
            raise SinkBusy(f"the receiver failed {self._failures} times in a row", retry_after=remaining, is_sent=False)
        self._open_until = self._clock() + self._backoff.longest

    def record_success(self) -> None:
        """Close the breaker."""
        self._failures = 0

    def record_failure(self, retry_after: float | None = None) -> None:
        """Count a failure; the next pause lasts at least ``retry_after`` seconds."""
        self._failures += 1
        if self.is_open:
            pause = self._backoff.pause(self._failures - self._limit + 1)
            self._open_until = self._clock() + max(pause, retry_after or 0.0)

"""A circuit breaker: after repeated failures it lets single attempts through, with a backoff between them."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from penstock.core.backoff import Backoff
from penstock.core.errors import SinkBusy
from penstock.core.formatting import counted


class CircuitBreaker:
    """Opens after ``failures`` consecutive failures; then allows one attempt after each pause until one succeeds."""

    def __init__(self, failures: int, backoff: Backoff, clock: Callable[[], float] = monotonic) -> None:
        self._limit = failures
        self._backoff = backoff
        self._clock = clock
        self._failures = 0
        self._open_until = 0.0
        #: Whether an attempt that was allowed while the breaker is open has not ended.
        self._is_probing = False

    @property
    def is_open(self) -> bool:
        """Whether attempts are restricted."""
        return self._failures >= self._limit

    def check(self) -> None:
        """Raise SinkBusy if the pause is not over, or if an attempt that was allowed has not ended."""
        if not self.is_open:
            return
        remaining = self._open_until - self._clock()
        if remaining > 0:
            # The others need not wait for long: the attempt may succeed.
            pause = min(remaining, self._backoff.first) if self._is_probing else remaining
            failures = counted(self._failures, "time")
            raise SinkBusy(f"the receiver failed {failures} in a row", retry_after=pause, is_sent=False)
        self._open_until = self._clock() + self._backoff.longest
        self._is_probing = True

    def record_success(self) -> None:
        """Close the breaker."""
        self._failures = 0
        self._is_probing = False

    def record_failure(self, retry_after: float | None = None) -> None:
        """Count a failure; the next pause lasts at least ``retry_after`` seconds."""
        if self.is_open and not self._is_probing:
            # A request that was sent before the breaker opened. Each of them would double the pause.
            self._open_until = max(self._open_until, self._clock() + (retry_after or 0.0))
            return
        self._is_probing = False
        self._failures += 1
        if self.is_open:
            pause = self._backoff.pause(self._failures - self._limit + 1)
            self._open_until = self._clock() + max(pause, retry_after or 0.0)

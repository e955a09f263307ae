"""Reports why an operation waits, if the wait is long."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from penstock.core.formatting import duration

_FIRST_SECONDS = 2.0
_INTERVAL_SECONDS = 10.0


class WaitNotice:
    """Reports the wait of one operation as soon as it takes two seconds, and then every ten seconds.

    Call it before each pause with the reason. ``report`` gets the text.
    """

    def __init__(self, report: Callable[[str], None], clock: Callable[[], float] = monotonic) -> None:
        self._report = report
        self._clock = clock
        self._started: float | None = None
        self._next_report = _FIRST_SECONDS

    def waits(self, reason: object, pause: float) -> None:
        """Report the reason if the wait lasts long enough at the end of this pause."""
        now = self._clock()
        if self._started is None:
            self._started = now
        waited = now - self._started
        if waited + pause < self._next_report:
            return
        self._next_report = waited + pause + _INTERVAL_SECONDS
        since = f" for {duration(waited)}" if waited >= 1 else ""
        self._report(f"waiting{since}: {reason}")

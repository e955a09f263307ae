"""Exponential backoff with jitter: the pauses of every retry loop."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from penstock.core.errors import InvalidOption, short_repr


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from ``first`` to ``longest`` seconds, with jitter.

    The jitter shortens each pause by up to half, so that clients that failed together do not retry together.

    Args:
        first: upper bound of the first pause, in seconds.
        longest: upper bound of every later pause, in seconds.
    """

    first: float = 0.5
    longest: float = 30.0

    def __post_init__(self) -> None:
        for name in ("first", "longest"):
            value: object = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 86_400:
                raise InvalidOption(
                    f"{name} must be a number of seconds, up to a day, not {short_repr(value)}", option=name
                )

    def pause(self, failures: int) -> float:
        """Return the pause after ``failures`` consecutive failures, in seconds."""
        bound = min(self.first * 2.0 ** min(max(failures, 1) - 1, 60), self.longest)
        return bound * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


class RetryTimer:
    """Counts the consecutive failures of one operation and returns the pause after each.

    ::

        retries = RetryTimer(Backoff(0.05, 1.0), seconds=30)
        while True:
            try:
                return connect()
            except OSError:
                pause = retries.next_pause()
                if pause is None:
                    raise
                time.sleep(pause)
    """

    def __init__(self, backoff: Backoff, seconds: float | None = None, clock: Callable[[], float] = monotonic) -> None:
        """``seconds`` is the time for all attempts together; None sets no limit."""
        self._backoff = backoff
        self._clock = clock
        self._deadline = None if seconds is None else clock() + seconds
        self.failures = 0

    def next_pause(self, retry_after: float | None = None) -> float | None:
        """Count a failure. Return the pause before the next attempt, or None if it would start after the deadline.

        ``retry_after`` is the pause that the other side asked for. The result is at least that long.
        """
        self.failures += 1
        pause = self._backoff.pause(self.failures) if retry_after is None else _lengthen(retry_after)
        if self._deadline is not None and self._clock() + pause > self._deadline:
            return None
        return pause

    def reset(self) -> None:
        """Start over with the first pause, after a success. The deadline stays."""
        self.failures = 0


def _lengthen(pause: float) -> float:
    return pause * random.uniform(1.0, 1.25)  # noqa: S311 - no secret

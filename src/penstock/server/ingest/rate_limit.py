"""How fast one producer may push: a bucket of tokens for each, in this process.

An event is a token. A bucket holds what flows in within a second and may be overdrawn by one push, because how many
events a push has is known only when it has been read; until it is filled again, that producer is refused.
"""

from __future__ import annotations

import time

from penstock.server.http.errors import Problem, retry_after

_MOST_KNOWN = 10_000


class Producers:
    """The buckets of the producers that were here lately."""

    def __init__(self, events_per_second: float | None) -> None:
        #: What each may push, in this process; None: anything.
        self.rate = events_per_second
        self._levels: dict[str, tuple[float, float]] = {}

    def check(self, producer: str) -> None:
        """Refuse a producer whose bucket is overdrawn."""
        if self.rate is None:
            return
        level = self._level(producer)
        if level < 0:
            wait = -level / self.rate
            raise Problem(
                "rate-limited",
                f"no producer may push more than {self.rate:g} events a second here; push again in {wait:.1f} s",
                {"limit": self.rate, "retry_after": round(wait, 3)},
                {**retry_after(wait), **self.headers(producer)},
            )

    def take(self, producer: str, events: int) -> None:
        """Take so many tokens."""
        if self.rate is None:
            return
        level = self._level(producer) - events
        if len(self._levels) >= _MOST_KNOWN:
            # Those who have not pushed for longest have full buckets by now, as somebody new has.
            del self._levels[next(iter(self._levels))]
        self._levels.pop(producer, None)
        self._levels[producer] = (time.monotonic(), level)

    def headers(self, producer: str) -> dict[str, str]:
        """The same for those who like to slow down before they must."""
        if self.rate is None:
            return {}
        level = self._level(producer)
        wait = max(0.0, -level / self.rate)
        return {
            "RateLimit-Policy": f'"producer";q={max(1, int(self.rate))};w=1',
            "RateLimit": f'"producer";r={max(0, int(level))};t={int(wait) + 1}',
        }

    def _level(self, producer: str) -> float:
        rate = self.rate or 0.0
        at, level = self._levels.get(producer, (0.0, rate))
        return min(rate, level + (time.monotonic() - at) * rate)

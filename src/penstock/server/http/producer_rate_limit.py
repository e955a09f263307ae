"""Rate limit per producer: one token bucket each, in this process; and the RateLimit headers (IETF draft).

One event costs one token, and a bucket holds the tokens of one second. The number of events in a push is known only
after it was read, so a push may overdraw its bucket; until the bucket is filled again, the producer is refused.
"""

from __future__ import annotations

import math
import time

from penstock.log.write.backpressure import QueueCapacity
from penstock.server.http.errors import Problem, retry_after

_MAX_BUCKETS = 10_000


class ProducerRateLimiter:
    """The token buckets of recent producers."""

    def __init__(self, events_per_second: float | None) -> None:
        #: Events per second and producer in this process; None for no limit.
        self.rate = events_per_second
        #: By producer: when the bucket was last changed, and its tokens at that time.
        self._buckets: dict[str, tuple[float, float]] = {}

    def check(self, producer: str) -> None:
        """Raise a problem if the bucket of a producer is overdrawn."""
        if self.rate is None:
            return
        tokens = self._tokens(producer)
        if tokens < 0:
            wait = -tokens / self.rate
            raise Problem(
                "rate-limited",
                f"a producer may push at most {self.rate:g} events per second; retry in {wait:.1f} s",
                {"limit": self.rate, "retry_after": round(wait, 3)},
                {**retry_after(wait), **self.headers(producer)},
            )

    def consume(self, producer: str, events: int) -> None:
        if self.rate is None:
            return
        tokens = self._tokens(producer) - events
        if len(self._buckets) >= _MAX_BUCKETS:
            # The bucket that was not used for longest is full by now, like that of a new producer.
            del self._buckets[next(iter(self._buckets))]
        self._buckets.pop(producer, None)
        self._buckets[producer] = (time.monotonic(), tokens)

    def headers(self, producer: str) -> dict[str, str]:
        """Return the RateLimit headers, so that a producer can slow down before it is refused."""
        if self.rate is None:
            return {}
        tokens = self._tokens(producer)
        wait = max(0.0, -tokens / self.rate)
        return {
            "RateLimit-Policy": f'"producer";q={max(1, int(self.rate))};w=1',
            "RateLimit": f'"producer";r={max(0, int(tokens))};t={int(wait) + 1}',
        }

    def _tokens(self, producer: str) -> float:
        rate = self.rate or 0.0
        at, tokens = self._buckets.get(producer, (0.0, rate))
        return min(rate, tokens + (time.monotonic() - at) * rate)


def depth_headers(capacity: QueueCapacity | None) -> dict[str, str]:
    """Return the remaining events of a queue with a depth limit, and the time until it is empty."""
    if capacity is None:
        return {}
    return {
        "RateLimit-Policy": f'"depth";q={capacity.limit}',
        "RateLimit": f'"depth";r={capacity.remaining};t={math.ceil(capacity.empty_in)}',
    }


def merge_headers(*headers: dict[str, str]) -> dict[str, str]:
    """Merge headers; values under the same name become a list."""
    names = {name for each in headers for name in each}
    return {name: ", ".join(each[name] for each in headers if name in each) for name in sorted(names)}

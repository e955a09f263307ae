"""RateLimit headers (IETF draft) that tell a producer how many more events a queue accepts."""

from __future__ import annotations

import math

from penstock.log.write.backpressure import QueueCapacity


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

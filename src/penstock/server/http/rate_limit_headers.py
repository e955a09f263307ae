"""RateLimit headers (IETF draft) that tell a producer how many more events a queue accepts."""

from __future__ import annotations

import math

from penstock.core.errors import QueueFull
from penstock.log.write.backpressure import QueueCapacity
from penstock.server.http.errors import retry_after


def depth_headers(capacity: QueueCapacity | None) -> dict[str, str]:
    """Return the remaining events of a queue with a depth limit, and the time until it is empty."""
    if capacity is None:
        return {}
    return {
        "RateLimit-Policy": f'"depth";q={capacity.limit}',
        "RateLimit": f'"depth";r={capacity.remaining};t={math.ceil(capacity.empty_in)}',
    }


def queue_full_headers(full: QueueFull) -> dict[str, str]:
    """Return the headers of a refusal by a full queue."""
    retry = retry_after(full.retry_after)
    return {
        **retry,
        "RateLimit-Policy": f'"depth";q={full.limit}',
        "RateLimit": f'"depth";r=0;t={retry["Retry-After"]}',
    }


def merge_headers(*headers: dict[str, str]) -> dict[str, str]:
    """Merge headers; values under the same name become a list."""
    names = {name for each in headers for name in each}
    return {name: ", ".join(each[name] for each in headers if name in each) for name in sorted(names)}

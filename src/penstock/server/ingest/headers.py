"""What a producer is told of the room that is left, in the headers of the IETF's draft on rate limits."""

from __future__ import annotations

import math

from penstock.core.errors import QueueFull
from penstock.log.storage.depth import Room
from penstock.server.http.errors import retry_after


def depth_headers(room: Room | None) -> dict[str, str]:
    """How many events more the queue takes, and when it would be empty."""
    if room is None:
        return {}
    return {
        "RateLimit-Policy": f'"depth";q={room.limit}',
        "RateLimit": f'"depth";r={room.remaining};t={math.ceil(room.empty_in)}',
    }


def full_headers(full: QueueFull) -> dict[str, str]:
    """The same for a queue that takes none for now, and when to come again."""
    said = retry_after(full.retry_after)
    return {
        **said,
        "RateLimit-Policy": f'"depth";q={full.limit}',
        "RateLimit": f'"depth";r=0;t={said["Retry-After"]}',
    }


def merged(*headers: dict[str, str]) -> dict[str, str]:
    """Several policies in one header."""
    names = {name for some in headers for name in some}
    return {name: ", ".join(some[name] for some in headers if name in some) for name in sorted(names)}

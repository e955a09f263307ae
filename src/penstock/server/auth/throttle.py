"""Who has tried too many wrong keys."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

_SECONDS = 60.0
_MOST_ADDRESSES = 10_000


class Attempts:
    """Counts failed attempts by address for a minute, in memory that does not grow.

    An address of IPv6 counts with its whole /64: whoever has one of them has all.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._failures: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def wait_seconds(self, address: str) -> float:
        """How long the address has to wait before it may try again; 0 if it may now."""
        since, count = self._failures.get(_block(address), (0.0, 0))
        return max(0.0, since + _SECONDS - self._clock()) if count >= self._limit else 0.0

    def failed(self, address: str) -> None:
        """Count a failed attempt."""
        now, block = self._clock(), _block(address)
        since, count = self._failures.pop(block, (now, 0))
        if since + _SECONDS <= now:
            since, count = now, 0
        self._failures[block] = (since, count + 1)
        if len(self._failures) > _MOST_ADDRESSES:
            self._failures.popitem(last=False)


def _block(address: str) -> str:
    if ":" not in address:
        return address
    try:
        return str(ipaddress.IPv6Network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address

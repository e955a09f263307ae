"""Throttle of failed sign-ins: counts them per client address, or per network of IPv6 addresses."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

_WINDOW_SECONDS = 60.0
_MAX_ADDRESSES = 10_000


class FailureThrottle:
    """Counts failed attempts per client address for a minute, in bounded memory.

    An IPv6 address counts as its /64 network: one client usually owns all of it.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._failures: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failures)

    def wait_seconds(self, address: str) -> float:
        """Return how long the address must wait before its next attempt."""
        since, count = self._failures.get(_network(address), (0.0, 0))
        return max(0.0, since + _WINDOW_SECONDS - self._clock()) if count >= self._limit else 0.0

    def record_failure(self, address: str) -> None:
        now, network = self._clock(), _network(address)
        since, count = self._failures.pop(network, (now, 0))
        if since + _WINDOW_SECONDS <= now:
            since, count = now, 0
        self._failures[network] = (since, count + 1)
        if len(self._failures) > _MAX_ADDRESSES:
            self._failures.popitem(last=False)


def _network(address: str) -> str:
    if ":" not in address:
        return address
    try:
        return str(ipaddress.IPv6Network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address

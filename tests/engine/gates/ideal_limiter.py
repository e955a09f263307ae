"""Ideal limiters in a few lines of exact arithmetic, as an oracle for the gates."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

#: The time of a release in microseconds, and its cost.
Grant = tuple[int, int]


def bucket_tokens(grants: Sequence[Grant], capacity: int, rate: int, at: int) -> Fraction:
    """The tokens in a bucket at a time after all grants. The bucket is full before the first grant."""
    level, last = Fraction(capacity), None
    for time, cost in grants:
        if last is not None:
            level = min(Fraction(capacity), level + Fraction(rate * (time - last), 1_000_000))
        level, last = level - cost, time
    return level if last is None else min(Fraction(capacity), level + Fraction(rate * (at - last), 1_000_000))


def bucket_free_at(grants: Sequence[Grant], capacity: int, rate: int, cost: int, since: int) -> int:
    """The first time from ``since`` on at which a bucket has enough tokens."""
    missing = cost - bucket_tokens(grants, capacity, rate, since)
    return since if missing <= 0 else since + -(-missing * 1_000_000 // rate)


def respects_bucket(grants: Sequence[Grant], capacity: int, rate: int) -> bool:
    """Whether no interval has more grants than the capacity and the refill within it."""
    level, last = Fraction(capacity), None
    for time, cost in grants:
        if last is not None:
            level = min(Fraction(capacity), level + Fraction(rate * (time - last), 1_000_000))
        level, last = level - cost, time
        if level < 0:
            return False
    return True


def window_used(grants: Sequence[Grant], window: int, at: int) -> int:
    """The cost of all grants in the window that ends at a time, both ends included."""
    return sum(cost for time, cost in grants if at - window <= time <= at)


def window_free_at(grants: Sequence[Grant], limit: int, window: int, cost: int, since: int) -> int:
    """The first time from ``since`` on at which a window has room."""
    times = [since, *(time + window + 1 for time, _ in grants if time + window + 1 > since)]
    return next(at for at in sorted(times) if window_used(grants, window, at) + cost <= limit)


def respects_window(grants: Sequence[Grant], limit: int, window: int) -> bool:
    """Whether no window, wherever it ends, has more grants than the limit."""
    return all(window_used(grants, window, time) <= limit for time, _ in grants)

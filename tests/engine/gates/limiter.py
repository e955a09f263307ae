"""Ideal limiters, in a few lines of exact arithmetic, to hold the gates against."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

#: When something was let through (microseconds) and what it cost.
Passed = tuple[int, int]


def bucket_tokens(passed: Sequence[Passed], capacity: int, rate: int, at: int) -> Fraction:
    """What a bucket holds at a time, after all that has passed; it was full before the first."""
    level, last = Fraction(capacity), None
    for time, cost in passed:
        if last is not None:
            level = min(Fraction(capacity), level + Fraction(rate * (time - last), 1_000_000))
        level, last = level - cost, time
    return level if last is None else min(Fraction(capacity), level + Fraction(rate * (at - last), 1_000_000))


def bucket_free_at(passed: Sequence[Passed], capacity: int, rate: int, cost: int, since: int) -> int:
    """When a bucket first has enough."""
    missing = cost - bucket_tokens(passed, capacity, rate, since)
    return since if missing <= 0 else since + -(-missing * 1_000_000 // rate)


def bucket_is_kept(passed: Sequence[Passed], capacity: int, rate: int) -> bool:
    """Whether no stretch of time has seen more than the capacity and what was refilled in it."""
    level, last = Fraction(capacity), None
    for time, cost in passed:
        if last is not None:
            level = min(Fraction(capacity), level + Fraction(rate * (time - last), 1_000_000))
        level, last = level - cost, time
        if level < 0:
            return False
    return True


def window_used(passed: Sequence[Passed], window: int, at: int) -> int:
    """What was let through in the window that ends then, its ends included."""
    return sum(cost for time, cost in passed if at - window <= time <= at)


def window_free_at(passed: Sequence[Passed], limit: int, window: int, cost: int, since: int) -> int:
    """When a window first has room."""
    times = [since, *(time + window + 1 for time, _ in passed if time + window + 1 > since)]
    return next(at for at in sorted(times) if window_used(passed, window, at) + cost <= limit)


def window_is_kept(passed: Sequence[Passed], limit: int, window: int) -> bool:
    """Whether no window, wherever it is placed, has seen more than the limit."""
    return all(window_used(passed, window, time) <= limit for time, _ in passed)

"""The budget of a gate at a moment: what is left, what an event takes, when the next one fits.

Whole numbers only: costs are billionths of a token, the level of a bucket is in millionths of those (a rate in
billionths a second, over a microsecond, gives just that), times are microseconds. No clock and no database here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

#: The level of a bucket is counted in this part of a billionth.
FINE = 1_000_000
#: What a window lets through within this part of it is remembered as one, with the time of the last.
_SLOTS = 1_000

Kind: TypeAlias = Literal["token_bucket", "sliding_window", "concurrency"]


@dataclass(frozen=True, slots=True)
class Limit:
    """What a gate allows a lane, as it is now in force."""

    kind: Kind
    #: Capacity or limit, in billionths.
    amount: int
    #: Of a bucket: billionths a second.
    rate: int = 0
    #: Of a window: microseconds.
    window_us: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """What is remembered of a gate and a lane from one decision to the next."""

    at_us: int
    #: Of a bucket.
    level: int = 0
    #: Of a window: when something was let through, and how much.
    times: tuple[int, ...] = ()
    costs: tuple[int, ...] = ()


class Meter(Protocol):
    """The budget of one gate at one moment."""

    @property
    def budget(self) -> int:
        """What may be spent now, in billionths."""

    def charge(self, cost: int) -> None:
        """Spend it."""

    def free_at(self, cost: int) -> int | None:
        """From when on so much may be spent; None: when something happens that no clock knows."""

    def state(self) -> State | None:
        """What is to be remembered; None: nothing."""


class BucketMeter:
    """Tokens that come at a steady rate, up to the capacity; full, when it is looked at for the first time."""

    def __init__(self, limit: Limit, before: State | None, now_us: int, held_us: int = 0) -> None:
        self._limit = limit
        level, at = (limit.amount * FINE, now_us) if before is None else (before.level, before.at_us)
        if held_us > at or (held_us and before is None):
            # Whoever asked for a pause gets no burst after it.
            level, at = 0, held_us
        # Time never goes back: what was let through at a moment stays let through then.
        self._now = max(now_us, at)
        self._level = min(limit.amount * FINE, level + limit.rate * (self._now - at))

    @property
    def budget(self) -> int:
        """Whole billionths of tokens."""
        return self._level // FINE

    def charge(self, cost: int) -> None:
        """Take tokens."""
        self._level -= cost * FINE

    def free_at(self, cost: int) -> int:
        """When there will be so many tokens."""
        missing = cost * FINE - self._level
        return self._now + max(0, -(-missing // self._limit.rate))

    def state(self) -> State:
        """The level, and when it was that."""
        return State(self._now, level=self._level)


class WindowMeter:
    """What was let through in the window that ends now; both its ends belong to it."""

    def __init__(self, limit: Limit, before: State | None, now_us: int, held_us: int = 0) -> None:
        self._limit = limit
        self._now = max(now_us, before.at_us) if before is not None else now_us
        self._held = held_us
        first = self._now - limit.window_us
        pairs = zip(before.times, before.costs, strict=True) if before is not None else ()
        self._grants = [(at, cost) for at, cost in pairs if at >= first]
        self._used = sum(cost for _, cost in self._grants)

    @property
    def budget(self) -> int:
        """What the window has room for."""
        return max(0, self._limit.amount - self._used) if self._held <= self._now else 0

    def charge(self, cost: int) -> None:
        """Remember that so much was let through now."""
        if not cost:
            return
        slot = max(1, self._limit.window_us // _SLOTS)
        if self._grants and self._grants[-1][0] // slot == self._now // slot:
            cost_before = self._grants.pop()[1]
            self._grants.append((self._now, cost_before + cost))
        else:
            self._grants.append((self._now, cost))
        self._used += cost

    def free_at(self, cost: int) -> int:
        """When enough of what was let through lies before the window."""
        at, room = self._now, self._limit.amount - self._used
        for granted, spent in self._grants:
            if room >= cost:
                break
            room += spent
            at = granted + self._limit.window_us + 1
        return max(at, self._held)

    def state(self) -> State:
        """What was let through, and when."""
        return State(self._now, times=tuple(t for t, _ in self._grants), costs=tuple(c for _, c in self._grants))


class FlightMeter:
    """What has been let through and not been acknowledged."""

    def __init__(self, limit: Limit, in_flight: int, now_us: int, held_us: int = 0) -> None:
        self._left = limit.amount - in_flight
        self._now = now_us
        self._held = held_us

    @property
    def budget(self) -> int:
        """How many more may be in flight."""
        return max(0, self._left) if self._held <= self._now else 0

    def charge(self, cost: int) -> None:
        """One more is in flight."""
        self._left -= cost

    def free_at(self, cost: int) -> int | None:
        """Nobody knows, unless it is the clock that it waits for."""
        return self._held if self._left >= cost else None

    def state(self) -> None:
        """Nothing: it is counted anew each time."""

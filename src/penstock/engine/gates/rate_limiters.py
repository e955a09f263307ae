"""The budget of a gate at one moment: what is left, what an event takes, when the next event fits.

All arithmetic is exact, in integers. Costs are billionths of a token. The level of a bucket is in millionths of those,
which is the unit of a rate in billionths per second times microseconds. Times are microseconds. This module uses no
clock and no database.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

#: Units of a bucket's level in one billionth of a token.
LEVEL_UNITS = 1_000_000
#: Grants within this fraction of a sliding window are stored as one grant, with the time of the last.
_SLOTS = 1_000

Kind: TypeAlias = Literal["token_bucket", "sliding_window", "concurrency"]


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of a gate that is in force for a partition."""

    kind: Kind
    #: Capacity or limit, in billionths.
    amount: int
    #: Refill of a token bucket, in billionths per second.
    rate: int = 0
    #: Length of a sliding window.
    window_us: int = 0
    #: One budget for all keys.
    shared: bool = False


@dataclass(frozen=True, slots=True)
class MeterState:
    """The stored state of a gate for one partition."""

    at_us: int
    #: Level of a token bucket.
    level: int = 0
    #: Times and costs of the grants in a sliding window.
    times: tuple[int, ...] = ()
    costs: tuple[int, ...] = ()


class Meter(Protocol):
    """The budget of one gate at one moment."""

    @property
    def budget(self) -> int:
        """The amount that may be spent now, in billionths."""

    def charge(self, cost: int) -> None:
        """Spend a part of the budget."""

    def free_at(self, cost: int) -> int | None:
        """Return when ``cost`` may be spent; None if only an ack can free it."""

    def state(self) -> MeterState | None:
        """Return the state to store; None if the meter has none."""


class BucketMeter:
    """A token bucket. Without a stored state it is full."""

    def __init__(self, limit: Limit, before: MeterState | None, now_us: int, held_until_us: int = 0) -> None:
        self._limit = limit
        level, at = (limit.amount * LEVEL_UNITS, now_us) if before is None else (before.level, before.at_us)
        if held_until_us > at or (held_until_us and before is None):
            # A hold ends with an empty bucket, so that no burst follows it.
            level, at = 0, held_until_us
        # The meter's time never goes back, also if the clock does.
        self._now = max(now_us, at)
        self._level = min(limit.amount * LEVEL_UNITS, level + limit.rate * (self._now - at))

    @property
    def budget(self) -> int:
        return self._level // LEVEL_UNITS

    def charge(self, cost: int) -> None:
        self._level -= cost * LEVEL_UNITS

    def free_at(self, cost: int) -> int:
        missing = cost * LEVEL_UNITS - self._level
        return self._now + max(0, -(-missing // self._limit.rate))

    def state(self) -> MeterState:
        return MeterState(self._now, level=self._level)


class WindowMeter:
    """A sliding window that ends now. Both its ends belong to it."""

    def __init__(self, limit: Limit, before: MeterState | None, now_us: int) -> None:
        self._limit = limit
        self._now = max(now_us, before.at_us) if before is not None else now_us
        first = self._now - limit.window_us
        stored = zip(before.times, before.costs, strict=True) if before is not None else ()
        self._grants = [(at, cost) for at, cost in stored if at >= first]
        self._used = sum(cost for _, cost in self._grants)

    @property
    def budget(self) -> int:
        return max(0, self._limit.amount - self._used)

    def charge(self, cost: int) -> None:
        if not cost:
            return
        slot = max(1, self._limit.window_us // _SLOTS)
        granted = cost
        if self._grants:
            last_at, last_cost = self._grants[-1]
            if last_at // slot == self._now // slot:
                self._grants.pop()
                granted += last_cost
        self._grants.append((self._now, granted))
        self._used += cost

    def free_at(self, cost: int) -> int:
        at, room = self._now, self._limit.amount - self._used
        for granted_at, granted in self._grants:
            if room >= cost:
                break
            room += granted
            at = granted_at + self._limit.window_us + 1
        return at

    def state(self) -> MeterState:
        return MeterState(self._now, times=tuple(t for t, _ in self._grants), costs=tuple(c for _, c in self._grants))


class ConcurrencyMeter:
    """A limit on the released events that are not acknowledged yet."""

    def __init__(self, limit: Limit, in_flight: int) -> None:
        self._left = limit.amount - in_flight

    @property
    def budget(self) -> int:
        return max(0, self._left)

    def charge(self, cost: int) -> None:
        self._left -= cost

    def free_at(self, cost: int) -> None:
        """Return None: only an ack frees the budget."""

    def state(self) -> None:
        """Return None: the events in flight are counted for each allocation."""

"""Budgets of deliveries behind a gate. They hold at the receiver.

An event reaches the receiver some time between its reservation and the end of its request; until then it is *in
flight*. A limit holds whenever that is, because

* a token bucket is charged at the reservation, and its level never exceeds the capacity less what is in flight;
* an event counts in a sliding window from its reservation until a whole window after the end of its request.

The units are those of ``rate_limiters``. This module uses no clock and no database.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Protocol

from penstock.engine.gates.rate_limiters import LEVEL_UNITS, BucketMeter, Limit, MeterState, WindowMeter

#: A process that ended has no request in flight for longer.
_MAX_FLIGHT_US = 60_000_000


class DeliveryMeter(Protocol):
    """The budget of a gate for the deliveries of one key."""

    limit: Limit
    #: The cost of reserved events that may or may not have reached the receiver.
    in_flight: int

    @property
    def budget(self) -> int:
        """The amount that may be reserved now, in billionths."""

    def advance(self, limit: Limit, now_us: int, held_until_us: int = 0) -> None:
        """Go on to a time from which on ``limit`` applies."""

    def reserve(self, cost: int) -> None:
        """Spend a part of the budget; it is in flight from now on."""

    def complete(self, cost: int, at_us: int) -> None:
        """End a delivery: the receiver has the events since ``at_us`` at the latest."""

    def cancel(self, cost: int) -> None:
        """Return what was reserved for events that were not sent."""

    def free_at(self, cost: int) -> int:
        """Return when ``cost`` may be reserved, if nothing else is reserved before."""

    def state(self) -> MeterState:
        """Return the state to store, beside what is in flight."""


class BucketDelivery:
    """A token bucket whose level is limited by what is in flight, too."""

    def __init__(self, limit: Limit, before: MeterState | None, now_us: int, held_until_us: int = 0) -> None:
        self.limit = limit
        self._state = before or BucketMeter(limit, None, now_us, held_until_us).state()
        self.in_flight = 0

    @property
    def budget(self) -> int:
        return self._state.level // LEVEL_UNITS

    def advance(self, limit: Limit, now_us: int, held_until_us: int = 0) -> None:
        # Nobody knows when the limit changed, so the lower one counts for the time before.
        before = self.limit
        lower = replace(limit, amount=min(before.amount, limit.amount), rate=min(before.rate, limit.rate))
        self._state = self._meter(lower, now_us, held_until_us).state()
        self.limit = limit

    def reserve(self, cost: int) -> None:
        self._state = replace(self._state, level=self._state.level - cost * LEVEL_UNITS)
        self.in_flight += cost

    def complete(self, cost: int, at_us: int) -> None:
        self.advance(self.limit, at_us)
        self.in_flight -= cost

    def cancel(self, cost: int) -> None:
        self._state = replace(self._state, level=self._state.level + cost * LEVEL_UNITS)
        self.in_flight -= cost

    def free_at(self, cost: int) -> int:
        return self._meter(self.limit, self._state.at_us).free_at(cost)

    def state(self) -> MeterState:
        return self._state

    def _meter(self, limit: Limit, now_us: int, held_until_us: int = 0) -> BucketMeter:
        return BucketMeter(replace(limit, amount=limit.amount - self.in_flight), self._state, now_us, held_until_us)


class WindowDelivery:
    """A sliding window in which events that are in flight count."""

    def __init__(self, limit: Limit, before: MeterState | None, now_us: int) -> None:
        self.limit = limit
        self._sent = WindowMeter(limit, before, now_us)
        self.in_flight = 0

    @property
    def budget(self) -> int:
        return self._sent.budget - self.in_flight

    def advance(self, limit: Limit, now_us: int, held_until_us: int = 0) -> None:
        self._sent = WindowMeter(limit, self._sent.state(), now_us)
        self.limit = limit

    def reserve(self, cost: int) -> None:
        self.in_flight += cost

    def complete(self, cost: int, at_us: int) -> None:
        self.advance(self.limit, at_us)
        self._sent.charge(cost)
        self.in_flight -= cost

    def cancel(self, cost: int) -> None:
        self.in_flight -= cost

    def free_at(self, cost: int) -> int:
        return self._sent.free_at(cost + self.in_flight)

    def state(self) -> MeterState:
        return self._sent.state()


class StoredDelivery(NamedTuple):
    """The stored budget of a key at a gate."""

    state: MeterState
    in_flight: int
    #: The limit that was in force.
    limit: Limit


def build_delivery_meter(
    limit: Limit, stored: StoredDelivery | None, now_us: int, held_until_us: int = 0
) -> DeliveryMeter:
    """Return the budget that another process has stored. Events that it had in flight have arrived by now."""
    meter: DeliveryMeter
    if limit.kind == "sliding_window":
        meter = WindowDelivery(limit, stored.state if stored else None, stored.state.at_us if stored else now_us)
    else:
        meter = BucketDelivery(
            stored.limit if stored else limit, stored.state if stored else None, now_us, held_until_us
        )
    if stored is not None and stored.in_flight:
        meter.in_flight = stored.in_flight
        meter.complete(stored.in_flight, max(stored.state.at_us, min(now_us, stored.state.at_us + _MAX_FLIGHT_US)))
    return meter

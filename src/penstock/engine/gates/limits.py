"""The limits that are in force for a lane: those of its gates, and what was changed while the query runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeAlias

from penstock.core.timestamps import to_micros
from penstock.engine.gates.meters import BucketMeter, FlightMeter, Limit, Meter, State, WindowMeter
from penstock.stream.gates import NANO, Concurrency, Gate, SlidingWindow, TokenBucket

#: Key, gate, amount, rate, window, weight, paused, held until: a row of ``penstock.gate_limits``.
Row: TypeAlias = tuple[str, int, Decimal | None, Decimal | None, int | None, int | None, bool | None, datetime | None]

#: So many seconds of what a lane may use are kept at hand.
AHEAD_SECONDS = 3
#: Of one lane no more than so many events are at hand.
MOST_OF_A_LANE = 10_000


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """What a lane may do."""

    gates: tuple[Limit, ...]
    weight: int = 1
    paused: bool = False
    held_us: int = 0


def defined(gate: Gate) -> Limit:
    """The limit that a stream gives a gate."""
    match gate:
        case TokenBucket():
            return Limit("token_bucket", gate.capacity, rate=gate.rate)
        case SlidingWindow():
            return Limit("sliding_window", gate.limit, window_us=gate.window_us)
        case Concurrency():
            return Limit("concurrency", gate.amount)


class Overrides:
    """Limits that were changed, by key; those of a key count before those of all."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows: dict[tuple[str, int], Row] = {(row[0], row[1]): row for row in rows}

    def of(self, key: str, gates: Sequence[Gate]) -> LaneLimits:
        """What is in force for a key; "" stands for all of them together."""
        held = [row[7] for row in (self._rows.get((key, 0)), self._rows.get(("", 0))) if row is not None]
        return LaneLimits(
            tuple(self._limit(key if not gate.shared else "", place, gate) for place, gate in enumerate(gates, 1)),
            int(self._first(key, 0, 5) or 1),
            bool(self._first(key, 0, 6)),
            max([to_micros(until) for until in held if until is not None], default=0),
        )

    def _limit(self, key: str, place: int, gate: Gate) -> Limit:
        usual = defined(gate)
        amount, rate, window = (self._first(key, place, column) for column in (2, 3, 4))
        return Limit(
            usual.kind,
            usual.amount if amount is None else int(amount * NANO),
            usual.rate if rate is None or usual.kind != "token_bucket" else int(rate * NANO),
            usual.window_us if window is None or usual.kind != "sliding_window" else int(window),
        )

    def _first(self, key: str, place: int, column: int) -> Any:
        for row in (self._rows.get((key, place)), self._rows.get(("", place))):
            if row is not None and row[column] is not None:
                return row[column]
        return None


def meter(limit: Limit, state: State | None, now_us: int, held_us: int, in_flight: int = 0) -> Meter:
    """The budget of a gate now."""
    match limit.kind:
        case "token_bucket":
            return BucketMeter(limit, state, now_us, held_us)
        case "sliding_window":
            return WindowMeter(limit, state, now_us, held_us)
        case "concurrency":
            return FlightMeter(limit, in_flight * NANO, now_us, held_us)


def wanted(limits: Sequence[Limit], costs: Sequence[float]) -> int:
    """How many events of a lane are worth having at hand, if each costs so much: what may pass in a few seconds."""
    most = float(MOST_OF_A_LANE)
    for limit, cost in zip(limits, costs, strict=True):
        if cost > 0:
            most = min(most, (limit.amount + AHEAD_SECONDS * limit.rate) / cost)
    return int(most) + 2

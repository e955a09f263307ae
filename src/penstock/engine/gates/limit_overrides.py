"""The limits in force for a key: those of the stream's gates, and the overrides in ``penstock.gate_limits``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from penstock.core.clock import to_micros
from penstock.engine.gates.rate_limiters import BucketMeter, ConcurrencyMeter, Limit, Meter, MeterState, WindowMeter
from penstock.stream.gates import NANOS_PER_TOKEN, ConcurrencyGate, Gate, SlidingWindowGate, TokenBucketGate

#: The buffer holds what a partition may use in so many seconds.
PREFETCH_SECONDS = 3
#: The buffer holds at most so many events of one partition.
MAX_PARTITION_EVENTS = 10_000


class LimitRow(NamedTuple):
    """A row of ``penstock.gate_limits``. Key "" stands for all keys, gate 0 for the partition as a whole."""

    key: str
    gate: int
    amount: Decimal | None
    rate: Decimal | None
    window_us: int | None
    weight: int | None
    paused: bool | None
    hold_until: datetime | None


@dataclass(frozen=True, slots=True)
class PartitionLimits:
    """The limits in force for a partition, one per gate."""

    gates: tuple[Limit, ...]
    weight: int = 1
    is_paused: bool = False
    held_until_us: int = 0


def default_limit(gate: Gate) -> Limit:
    """Return the limit that the stream defines for a gate."""
    match gate:
        case TokenBucketGate():
            return Limit("token_bucket", gate.capacity, rate=gate.rate, shared=gate.shared)
        case SlidingWindowGate():
            return Limit("sliding_window", gate.limit, window_us=gate.window_us, shared=gate.shared)
        case ConcurrencyGate():
            return Limit("concurrency", gate.limit * NANOS_PER_TOKEN)


class LimitOverrides:
    """Overrides of the limits of a query. The override of a key takes precedence over the one for all keys."""

    def __init__(self, rows: Iterable[LimitRow], defaults: Sequence[Limit]) -> None:
        self._rows = {(row.key, row.gate): row for row in rows}
        self._keys = {key for key, _ in self._rows}
        self._defaults = defaults
        #: The limits of all keys that have no override of their own.
        self.common = self._limits_of("")

    def limits_of(self, key: str) -> PartitionLimits:
        return self._limits_of(key) if key in self._keys else self.common

    def _limits_of(self, key: str) -> PartitionLimits:
        gates = [self._gate_limit("" if limit.shared else key, n, limit) for n, limit in enumerate(self._defaults, 1)]
        partition = self._row_of(key, 0)
        if partition is None:
            return PartitionLimits(tuple(gates))
        rows = (self._rows.get((key, 0)), self._rows.get(("", 0)))
        holds = [to_micros(row.hold_until) for row in rows if row is not None and row.hold_until is not None]
        return PartitionLimits(
            tuple(gates), partition.weight or 1, bool(partition.paused), held_until_us=max(holds, default=0)
        )

    def _gate_limit(self, key: str, number: int, default: Limit) -> Limit:
        row = self._row_of(key, number)
        if row is None:
            return default
        return replace(
            default,
            amount=default.amount if row.amount is None else int(row.amount * NANOS_PER_TOKEN),
            rate=default.rate
            if row.rate is None or default.kind != "token_bucket"
            else int(row.rate * NANOS_PER_TOKEN),
            window_us=default.window_us if row.window_us is None or default.kind != "sliding_window" else row.window_us,
        )

    def _row_of(self, key: str, gate: int) -> LimitRow | None:
        """Return the override of the key, completed by the one for all keys."""
        own, common = self._rows.get((key, gate)), self._rows.get(("", gate))
        if own is None or common is None:
            return own or common
        return LimitRow._make(theirs if ours is None else ours for ours, theirs in zip(own, common, strict=True))


def build_meter(limit: Limit, state: MeterState | None, now_us: int, held_until_us: int, in_flight: int = 0) -> Meter:
    """Return the budget of a gate now."""
    match limit.kind:
        case "token_bucket":
            return BucketMeter(limit, state, now_us, held_until_us)
        case "sliding_window":
            return WindowMeter(limit, state, now_us)
        case "concurrency":
            return ConcurrencyMeter(limit, in_flight * NANOS_PER_TOKEN)


def prefetch_target(limits: Sequence[Limit], costs: Sequence[float]) -> int:
    """Return how many events of a partition to buffer, given their mean cost at each gate."""
    target = float(MAX_PARTITION_EVENTS)
    for limit, cost in zip(limits, costs, strict=True):
        if cost > 0:
            target = min(target, (limit.amount + PREFETCH_SECONDS * limit.rate) / cost)
    return int(target) + 2

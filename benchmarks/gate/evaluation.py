"""Evaluates a run by the release times of the events in the sink queue."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Any

from benchmarks.gate.plan import Model, Size
from penstock import SyncPenstock

#: The steady phase starts this long after the first release, after the burst.
_STEADY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class GateResult:
    """The figures of a run."""

    model: str
    tenants: int
    events: int
    drain_s: float
    ideal_s: float
    rate_error_pct: float
    efficiency_pct: float
    order_violations: int
    lost: int
    twice: int
    limit_exceeded: int

    def document(self) -> dict[str, Any]:
        return asdict(self)


def read(client: SyncPenstock, queue: str) -> dict[str, list[tuple[datetime, dict[str, Any]]]]:
    """Return the events of a queue by key, with their release times."""
    by_key: dict[str, list[tuple[datetime, dict[str, Any]]]] = defaultdict(list)
    reader = client.queue(queue).group("evaluate").batch(20_000).partitions(200).auto_ack()
    while events := reader.pop():
        for event in events:
            by_key[str(event.key)].append((event.appended_at, event.data))
    return by_key


def evaluate(model: Model, size: Size, by_key: dict[str, list[tuple[datetime, dict[str, Any]]]]) -> GateResult:
    first = min(events[0][0] for events in by_key.values())
    last = max(events[-1][0] for events in by_key.values())
    drain = (last - first).total_seconds()
    ideal = max(model.ideal_seconds([model.cost(data) for _, data in events]) for events in by_key.values())
    unordered = lost = twice = exceeded = 0
    errors: list[float] = []
    for events in by_key.values():
        numbers = [int(data["seq"]) for _, data in events]
        unordered += sum(1 for a, b in pairwise(numbers) if b <= a)
        lost += size.each - len(set(numbers))
        twice += len(numbers) - len(set(numbers))
        releases = [((at - first).total_seconds(), model.cost(data)) for at, data in events]
        exceeded += _exceeded(model, releases)
        errors.append(_rate_error(model, releases))
    worst: float = max(errors, key=abs)
    lost += (size.tenants - len(by_key)) * size.each
    return GateResult(
        model.name,
        size.tenants,
        size.tenants * size.each,
        round(drain, 3),
        round(ideal, 3),
        round(worst, 3),
        round(100 * ideal / drain, 2) if drain else 100.0,
        unordered,
        lost,
        twice,
        exceeded,
    )


def _exceeded(model: Model, releases: list[tuple[float, int]]) -> int:
    """Return the number of releases that exceeded the limit."""
    exceeded = 0
    if model.window_seconds is not None:
        sums = [0, *accumulate(cost for _, cost in releases)]
        begin = 0
        for end, (at, _) in enumerate(releases, 1):
            while releases[begin][0] < at - model.window_seconds:
                begin += 1
            exceeded += sums[end] - sums[begin] > model.burst
        return exceeded
    level, before = float(model.burst), releases[0][0]
    for at, cost in releases:
        level = min(model.burst, level + (at - before) * model.rate) - cost
        before = at
        exceeded += level < -1e-3
    return exceeded


def _rate_error(model: Model, releases: list[tuple[float, int]]) -> float:
    """Return the deviation of the rate in the steady phase from the target, in percent."""
    if model.window_seconds is not None:
        first, rest = releases[0][0], [cost for at, cost in releases if at > releases[0][0]]
        span = releases[-1][0] - first
        whole = sum(rest) // model.burst * model.window_seconds
        if not whole or not rest:
            return 0.0
        full = [at for at, total in _sums(releases, first) if total <= sum(rest) // model.burst * model.burst]
        span = full[-1] - first
        return 100 * (whole / span - 1)
    steady = [(at, cost) for at, cost in releases if at >= releases[0][0] + _STEADY_SECONDS]
    # Without the last release: no event waited after it, so the bucket was not empty.
    times = sorted({at for at, _ in steady})[:-1]
    if len(times) < 2:
        return 0.0
    begin, end = times[0], times[-1]
    cost = sum(cost for at, cost in steady if begin < at <= end)
    return 100 * (cost / (end - begin) / model.rate - 1) if end > begin else 0.0


def _sums(releases: list[tuple[float, int]], after: float) -> list[tuple[float, int]]:
    rest = [(at, cost) for at, cost in releases if at > after]
    return list(zip((at for at, _ in rest), accumulate(cost for _, cost in rest), strict=True))

"""Judging a run by the release times that the sink queue's events bear."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Any

from benchmarks.gate.plan import Model, Size
from penstock import SyncPenstock

#: The steady part begins so long after the first release, when the burst is over.
_STEADY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Judgement:
    """A run, as the issue asks for it."""

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
    """Everything in a queue, lane by lane, with the time that it was released."""
    lanes: dict[str, list[tuple[datetime, dict[str, Any]]]] = defaultdict(list)
    reader = client.queue(queue).group("judge").batch(20_000).partitions(200).auto_ack()
    while events := reader.pop():
        for event in events:
            lanes[str(event.key)].append((event.appended_at, event.data))
    return lanes


def judge(model: Model, size: Size, lanes: dict[str, list[tuple[datetime, dict[str, Any]]]]) -> Judgement:
    first = min(events[0][0] for events in lanes.values())
    last = max(events[-1][0] for events in lanes.values())
    drain = (last - first).total_seconds()
    ideal = max(model.ideal_seconds([model.cost(data) for _, data in events]) for events in lanes.values())
    wrong = lost = twice = exceeded = 0
    errors: list[float] = []
    for events in lanes.values():
        numbers = [int(data["seq"]) for _, data in events]
        wrong += sum(1 for a, b in pairwise(numbers) if b <= a)
        lost += size.each - len(set(numbers))
        twice += len(numbers) - len(set(numbers))
        passed = [((at - first).total_seconds(), model.cost(data)) for at, data in events]
        exceeded += _exceeded(model, passed)
        errors.append(_rate_error(model, passed))
    worst: float = max(errors, key=abs)
    lost += (size.tenants - len(lanes)) * size.each
    return Judgement(
        model.name,
        size.tenants,
        size.tenants * size.each,
        round(drain, 3),
        round(ideal, 3),
        round(worst, 3),
        round(100 * ideal / drain, 2) if drain else 100.0,
        wrong,
        lost,
        twice,
        exceeded,
    )


def _exceeded(model: Model, passed: list[tuple[float, int]]) -> int:
    """Return how many releases exceeded the limit, to the microsecond."""
    found = 0
    if model.window_seconds is not None:
        sums = [0, *accumulate(cost for _, cost in passed)]
        begin = 0
        for end, (at, _) in enumerate(passed, 1):
            while passed[begin][0] < at - model.window_seconds:
                begin += 1
            found += sums[end] - sums[begin] > model.burst
        return found
    level, before = float(model.burst), passed[0][0]
    for at, cost in passed:
        level = min(model.burst, level + (at - before) * model.rate) - cost
        before = at
        found += level < -1e-3
    return found


def _rate_error(model: Model, passed: list[tuple[float, int]]) -> float:
    """By how many percent the rate of the steady part differs from the target, from one release to a later one."""
    if model.window_seconds is not None:
        first, rest = passed[0][0], [cost for at, cost in passed if at > passed[0][0]]
        span = passed[-1][0] - first
        whole = sum(rest) // model.burst * model.window_seconds
        if not whole or not rest:
            return 0.0
        full = [at for at, total in _sums(passed, first) if total <= sum(rest) // model.burst * model.burst]
        span = full[-1] - first
        return 100 * (whole / span - 1)
    steady = [(at, cost) for at, cost in passed if at >= passed[0][0] + _STEADY_SECONDS]
    # Without the last release: after it nothing waited, so the bucket was not empty.
    times = sorted({at for at, _ in steady})[:-1]
    if len(times) < 2:
        return 0.0
    begin, end = times[0], times[-1]
    cost = sum(cost for at, cost in steady if begin < at <= end)
    return 100 * (cost / (end - begin) / model.rate - 1) if end > begin else 0.0


def _sums(passed: list[tuple[float, int]], after: float) -> list[tuple[float, int]]:
    rest = [(at, cost) for at, cost in passed if at > after]
    return list(zip((at for at, _ in rest), accumulate(cost for _, cost in rest), strict=True))

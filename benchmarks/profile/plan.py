"""Sizes of the full run, and of the quick run with the same checks."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.drain.events import Workload
from benchmarks.freshness import plan as freshness

PARTITIONS = 8
KEYS = 10_000
#: Events per second of the steady run, at the default setting.
RATE = 1_000
STEADY = freshness.Case("steady", "penstock", RATE, eager=False)


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run."""

    quick: bool
    #: The profiled drain, and the warm-up drains before it.
    events: int
    per_second: int
    warm_ups: int
    #: The steady run: warm-up, measured time without profilers, then with them.
    steady: freshness.Plan
    sampled_seconds: float

    @property
    def workload(self) -> Workload:
        return Workload(KEYS, self.per_second)


FULL = Plan(
    quick=False,
    events=3_000_000,
    per_second=100_000,
    warm_ups=2,
    steady=freshness.Plan(quick=False, warm_up_seconds=40.0, seconds=25.0),
    sampled_seconds=20.0,
)
QUICK = Plan(
    quick=True,
    events=200_000,
    per_second=20_000,
    warm_ups=0,
    steady=freshness.Plan(quick=True, warm_up_seconds=1.0, seconds=2.0),
    sampled_seconds=2.0,
)

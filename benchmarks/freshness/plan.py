"""Durations of the full run, and of the quick run with the same checks."""

from __future__ import annotations

from dataclasses import dataclass

KEYS = 1_000
#: Keys that are watched; what is pushed to them is as good a sample as any.
PROBES = tuple(f"k{number}" for number in range(20))
POLL_MS = 10
#: A push to Penstock holds what is due in so many milliseconds.
PUSH_MS = 10
#: A file for plain Spark does. More and smaller files would cost it more in listing than they would win.
FILE_MS = 50
PARTITIONS = 8
#: What the benchmark's own connections call themselves, so that their processes can be told from the engine's.
PUSHER, OBSERVER = "benchmark pusher", "benchmark observer"


@dataclass(frozen=True, slots=True)
class Case:
    """A rate and a setting that are measured."""

    name: str
    engine: str
    rate: int
    eager: bool = True


CASES = (
    Case("1000", "penstock", 1_000),
    Case("20000", "penstock", 20_000),
    Case("default", "penstock", 1_000, eager=False),
    Case("plain_spark", "plain_spark", 1_000),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The length of a run."""

    quick: bool
    #: From the first row that is seen.
    warm_up_seconds: float
    seconds: float


FULL = Plan(quick=False, warm_up_seconds=40.0, seconds=60.0)
QUICK = Plan(quick=True, warm_up_seconds=2.0, seconds=3.0)

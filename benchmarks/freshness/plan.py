"""Durations of the full run, and of the quick run with the same checks."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.engines.results import VIEW

KEYS = 1_000
#: The keys that the poller reads.
PROBES = tuple(f"k{number}" for number in range(20))
POLL_MS = 10
#: Interval of the pushes to Penstock.
PUSH_MS = 10
#: Interval of the files for plain Spark. With smaller files, listing them costs more than it saves.
FILE_MS = 50
PARTITIONS = 8
#: Application names of the benchmark's own connections, to tell their backends from those of the engine.
PUSHER, OBSERVER = "benchmark pusher", "benchmark observer"


@dataclass(frozen=True, slots=True)
class Case:
    """An engine, a rate and a setting."""

    name: str
    engine: str
    rate: int
    eager: bool = True
    #: Whether the query is a running total per key, a materialized view, instead of windows of a minute.
    is_view: bool = False

    @property
    def results(self) -> str:
        return VIEW if self.is_view else self.engine


CASES = (
    Case("1000", "penstock", 1_000),
    Case("20000", "penstock", 20_000),
    Case("default", "penstock", 1_000, eager=False),
    Case("total", "penstock", 1_000, is_view=True),
    Case("plain_spark", "plain_spark", 1_000),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The duration of a run."""

    quick: bool
    #: From the first visible row.
    warm_up_seconds: float
    seconds: float


FULL = Plan(quick=False, warm_up_seconds=40.0, seconds=60.0)
QUICK = Plan(quick=True, warm_up_seconds=2.0, seconds=3.0)

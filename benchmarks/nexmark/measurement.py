"""Measured runs of a query."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run of a query over all events."""

    events: int
    seconds: float
    engine_cpu: float
    server_cpu: float
    #: Seconds until Flink's job has written its files. None: not Flink.
    job_seconds: float | None = None
    #: Cycles with a commit. None: Flink.
    cycles: int | None = None


def summarize(runs: list[Measurement]) -> dict[str, Any]:
    """Return the medians of the runs."""
    millions = runs[0].events / 1e6
    summary: dict[str, Any] = {
        "seconds": round(median(run.seconds for run in runs), 2),
        "events_per_s": round(median(run.events / run.seconds for run in runs)),
        "engine_cpu_s_per_million": round(median(run.engine_cpu for run in runs) / millions, 2),
        "postgresql_cpu_s_per_million": round(median(run.server_cpu for run in runs) / millions, 2),
        "rounds": [round(run.events / run.seconds) for run in runs],
    }
    jobs = [run.job_seconds for run in runs if run.job_seconds is not None]
    if jobs:
        summary["job_seconds"] = round(median(jobs), 2)
    cycles = [run.cycles for run in runs if run.cycles is not None]
    if cycles:
        summary["cycles"] = round(median(cycles))
    return summary

"""Profiles one cell with cProfile."""

from __future__ import annotations

import pstats

from benchmarks.load.meter import ProfilingMeter
from benchmarks.log.bench import Bench
from benchmarks.log.cells import all_cells
from benchmarks.log.prefilled_queues import PrefilledQueues

_LINES = 45


def names() -> list[str]:
    return [cell.name for cell in all_cells()]


async def profile_cell(bench: Bench, name: str) -> dict[str, object]:
    """Run a cell, print its profile, and return its rate under the profiler."""
    (cell,) = [cell for cell in all_cells() if cell.name == name]
    print(f"{cell.name}: {cell.description}, under cProfile", flush=True)
    meter = ProfilingMeter()
    result = await cell.run(bench, PrefilledQueues(bench), meter)
    pstats.Stats(meter.profile).sort_stats("tottime").print_stats(_LINES)
    return {"profiled": name, "events_per_second_profiled": round(result.rate.per_second)}

"""One cell under cProfile, for tuning."""

from __future__ import annotations

import pstats

from benchmarks.load.meter import ProfilingMeter
from benchmarks.log.bench import Bench
from benchmarks.log.cells import all_cells
from benchmarks.log.stocks import Stocks

_LINES = 45


def names() -> list[str]:
    return [cell.name for cell in all_cells()]


async def profile_cell(bench: Bench, name: str) -> dict[str, object]:
    """Run it, print where the time went, and answer its rate, which the profiler slows down."""
    (cell,) = [cell for cell in all_cells() if cell.name == name]
    print(f"{cell.name}: {cell.does}, under cProfile", flush=True)
    meter = ProfilingMeter()
    outcome = await cell.run(bench, Stocks(bench), meter)
    pstats.Stats(meter.profile).sort_stats("tottime").print_stats(_LINES)
    return {"profiled": name, "events_per_second_profiled": round(outcome.rate.per_second)}

"""The command: a curve, point by point, and one JSON object as the last line."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from benchmarks.all.runs import CURVES
from benchmarks.drain.bench import Bench as DrainBench
from benchmarks.engines.process import keep_logs
from benchmarks.log import plan as log_plan
from benchmarks.log import server
from benchmarks.log.bench import Bench as LogBench
from benchmarks.log.checks import Checks
from benchmarks.measuring import introduce, listed, measured, parser, verdict
from benchmarks.scaling import drains, queues
from benchmarks.scaling.plan import FULL, QUICK, WHAT, Plan
from penstock import Penstock

Points = AsyncIterator[dict[str, float]]
_OF_THE_ENGINE: dict[str, Callable[[DrainBench, Plan], Points]] = {
    "events": drains.events,
    "keys": drains.keys,
    "queries": drains.queries,
    "executors": drains.executors,
}
_OF_THE_LOG: dict[str, Callable[[LogBench, Plan], Points]] = {"lanes": queues.lanes, "groups": queues.groups}


def run(arguments: Sequence[str]) -> int:
    """Measure what the arguments ask for; 0 if every check held."""
    options = parser(
        "scaling", "Measure how the cost of an event changes with how much there is, and check each point."
    )
    some = f"some of {', '.join(CURVES)}"
    options.add_argument("--curve", type=listed(CURVES), default=CURVES, metavar="CURVES", help=some)
    options.add_argument("--logs", type=Path, metavar="DIRECTORY", help="keep what the engine said there")
    return measured("scaling", _measure, options.parse_args(arguments))


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    plan, checks = QUICK if options.quick else FULL, Checks()
    curves: dict[str, dict[str, Any]] = {}
    directory = Path(tempfile.mkdtemp(prefix="penstock-scaling-"))
    try:
        async with AsyncExitStack() as stack:
            running = stack.enter_context(server.running())
            result = introduce(_work(plan, options.curve), running, checks)
            q = await stack.enter_async_context(Penstock(running.url))
            engine = DrainBench(running, q, directory, stack, checks)
            log = LogBench(running, running.url, q, log_plan.QUICK, checks)
            for curve in options.curve:
                points = curves[curve] = {"x": curve, "what": WHAT[curve], "points": []}
                with checks.catching(curve):
                    if curve in _OF_THE_ENGINE:
                        found = _OF_THE_ENGINE[curve](engine, plan)
                    else:
                        found = _OF_THE_LOG[curve](log, plan)
                    async for point in found:
                        points["points"].append(point)
                await engine.renew("penstock")
    finally:
        keep_logs(directory, options.logs)
        shutil.rmtree(directory, ignore_errors=True)
    return result | {"curves": curves} | verdict(checks)


def _work(plan: Plan, curves: Sequence[str]) -> str:
    said = []
    if any(curve in _OF_THE_ENGINE for curve in curves):
        said.append(
            f"Count, sum and maximum per key and window of 5 s into PostgreSQL: {plan.events:,} events and "
            f"{plan.keys:,} keys where these are not what is varied, {plan.per_second:,} events in a second of event "
            f"time; the median of {plan.rounds}, over 10 million events once, in a JVM that did it {plan.warm_ups} "
            "times before. Every row is held against DuckDB's."
        )
    if any(curve in _OF_THE_LOG for curve in curves):
        said.append(
            f"{plan.stock:,} events of 100 bytes in a queue, pushed and popped 1,000 at a time by one client process; "
            "each event must be read once by each group, in order per key."
        )
    return " ".join(said)

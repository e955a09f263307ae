"""``python -m benchmarks scaling``."""

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
from benchmarks.runner import check_results, comma_separated, describe_run, parser, run_benchmark
from benchmarks.scaling import drains, queues
from benchmarks.scaling.plan import DESCRIPTIONS, FULL, QUICK, Plan
from penstock import Penstock

Points = AsyncIterator[dict[str, float]]
_ENGINE_CURVES: dict[str, Callable[[DrainBench, Plan], Points]] = {
    "events": drains.events,
    "keys": drains.keys,
    "queries": drains.queries,
    "executors": drains.executors,
}
_LOG_CURVES: dict[str, Callable[[LogBench, Plan], Points]] = {
    "partitions": queues.key_partitions,
    "groups": queues.groups,
}


def run(arguments: Sequence[str]) -> int:
    """Run the benchmark. Return 0 if every check passed."""
    options = parser("scaling", "Measure throughput and CPU time per event as one dimension of the load grows.")
    choices = f"comma-separated: {', '.join(CURVES)}"
    options.add_argument("--curve", type=comma_separated(CURVES), default=CURVES, metavar="CURVES", help=choices)
    options.add_argument("--logs", type=Path, metavar="DIRECTORY", help="copy the logs of the engine to this directory")
    return run_benchmark("scaling", _measure, options.parse_args(arguments))


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    plan, checks = QUICK if options.quick else FULL, Checks()
    curves: dict[str, dict[str, Any]] = {}
    directory = Path(tempfile.mkdtemp(prefix="penstock-scaling-"))
    try:
        async with AsyncExitStack() as stack:
            running = stack.enter_context(server.running())
            result = describe_run(_describe_workload(plan, options.curve), running, checks)
            q = await stack.enter_async_context(Penstock(running.url))
            engine = DrainBench(running, q, directory, stack, checks)
            log = LogBench(running, running.url, q, log_plan.QUICK, checks)
            for curve in options.curve:
                points = curves[curve] = {"x": curve, "what": DESCRIPTIONS[curve], "points": []}
                with checks.catching(curve):
                    if curve in _ENGINE_CURVES:
                        measured = _ENGINE_CURVES[curve](engine, plan)
                    else:
                        measured = _LOG_CURVES[curve](log, plan)
                    async for point in measured:
                        points["points"].append(point)
                await engine.stop_engine("penstock")
    finally:
        keep_logs(directory, options.logs)
        shutil.rmtree(directory, ignore_errors=True)
    return result | {"curves": curves} | check_results(checks)


def _describe_workload(plan: Plan, curves: Sequence[str]) -> str:
    sentences = []
    if any(curve in _ENGINE_CURVES for curve in curves):
        sentences.append(
            "Count, sum and maximum per key and window of 5 s into PostgreSQL. Unless the curve varies them: "
            f"{plan.events:,} events, {plan.keys:,} keys, {plan.per_second:,} events per second of event time. The "
            f"result is the median of {plan.rounds} runs, or one run above 10 million events, after {plan.warm_ups} "
            "warm-up runs in the same JVM. Every row is compared with DuckDB's."
        )
    if any(curve in _LOG_CURVES for curve in curves):
        sentences.append(
            f"{plan.queue_events:,} events of 100 bytes in a queue, pushed and popped 1,000 at a time by one client "
            "process. Each group must read each event once, in order per key."
        )
    return " ".join(sentences)

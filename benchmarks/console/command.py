"""``python -m benchmarks console``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from benchmarks.console.bench import measure
from benchmarks.console.plan import FULL, FULL_SPEED, IDLE, LOADS, PAGES, QUICK, STEADY, Plan
from benchmarks.ingest.events import body
from benchmarks.ingest.plan import CONNECTIONS, KEYS
from benchmarks.log import server
from benchmarks.log.checks import Checks
from benchmarks.runner import Result, check_results, comma_separated, describe_run, parser, run_benchmark

_NAMES = tuple(load.name for load in LOADS)


def run(arguments: Sequence[str]) -> int:
    """Run the benchmark. Return 0 if every check passed."""
    return run_benchmark("console", _measure, _parse(arguments))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser("console", "Measure the ingestion throughput lost to open browsers.")
    options.add_argument(
        "--only",
        type=comma_separated(_NAMES),
        default=_NAMES,
        metavar="LOADS",
        help=f"comma-separated: {','.join(_NAMES)}",
    )
    return options.parse_args(arguments)


async def _measure(options: argparse.Namespace) -> Result:
    plan, checks = QUICK if options.quick else FULL, Checks()
    with server.running() as running:
        result = describe_run(_describe_workload(plan), running, checks)
        with checks.catching("console"):
            await measure([load for load in LOADS if load.name in options.only], plan, running, checks, result)
        result["cost_pct"] = _cost(result.get(FULL_SPEED.name))
    return result | check_results(checks)


def _cost(measured: dict[str, Any] | None) -> float | None:
    """Return the loss of throughput at full speed with browsers at idle priority, in percent."""
    return None if measured is None else round((1 - measured["ratio"][IDLE]) * 100, 1)


def _describe_workload(plan: Plan) -> str:
    return (
        f"Events of {len(body(1, 1))} bytes over {KEYS:,} keys, over HTTP on {CONNECTIONS} connections to one server "
        f"process: {STEADY.per_second:,} per second in requests of {STEADY.batch} with a running query, and at full "
        f"speed in requests of {FULL_SPEED.batch:,}. The console has its own process. {plan.rounds} round(s) of three "
        f"parts of {plan.seconds:g} s: no browser; {len(PAGES)} Chromium pages with live updates (overview, live "
        "board, queues, queries, dead letters) at idle priority; the same at equal priority. Parts are compared "
        "within a round, and the result is the median."
    )

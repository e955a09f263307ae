"""``python -m benchmarks e2e``."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.e2e.bench import Plan, measure
from benchmarks.engines.jobs import Closing
from benchmarks.engines.process import keep_logs
from benchmarks.log import server
from benchmarks.log.checks import Checks
from benchmarks.runner import check_results, describe_run, parser, run_benchmark

_DAY_EVENTS = 50_000_000
_DAY_SINK = "e2e_day-closed"


def run(arguments: Sequence[str]) -> int:
    """Run the benchmark. Return 0 if every check passed."""
    return run_benchmark("e2e", _measure, _parse(arguments))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser("e2e", "HTTP ingestion, Spark and live rows on one machine.")
    options.add_argument("--day", action="store_true", help=f"{_DAY_EVENTS:,} events at full speed")
    options.add_argument("--rate", type=int, default=90_000, metavar="N", help="offered events per second")
    options.add_argument("--seconds", type=float, default=60.0, help="measured time at the rate")
    options.add_argument(
        "--logs", type=Path, metavar="DIRECTORY", help="copy the logs of the processes to this directory"
    )
    return options.parse_args(arguments)


def _plan(options: argparse.Namespace) -> Plan:
    if options.day and options.quick:
        # At a fixed rate, so that windows close during the run on any machine.
        return Plan("day", 50_000, 0, 0, batch=2000, events=800_000, closing=Closing(_DAY_SINK, 2, 5))
    if options.day:
        return Plan("day", None, 0, 0, batch=2000, events=_DAY_EVENTS, closing=Closing(_DAY_SINK, 60, 30))
    if options.quick:
        return Plan("rate", min(options.rate, 20_000), 3, 5)
    return Plan("rate", options.rate, 30, options.seconds)


def _windows(plan: Plan) -> str:
    if plan.closing is None:
        return "minute as live rows"
    return (
        f"{plan.closing.window_seconds} s window of event time as live rows. Windows close "
        f"{plan.closing.lateness_seconds} s after their end and go to a queue. Each window is compared with the load "
        "generator's journal of accepted requests, and each closed window must be in the queue once"
    )


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    checks, plan = Checks(), _plan(options)
    directory = Path(tempfile.mkdtemp(prefix="penstock-e2e-"))
    work = (
        "Events of about 90 bytes over 1,000 keys as NDJSON over HTTP, "
        f"{plan.batch:,} per request on {plan.connections} connections. The query computes count, total and highest "
        f"number per key and {_windows(plan)}. Load generator, server, PostgreSQL and Spark have their own processes."
    )
    try:
        with server.running() as running:
            result = describe_run(work, running, checks) | {"offered_per_s": plan.rate}
            with checks.catching(plan.name):
                result |= await measure(plan, running, directory, checks)
    finally:
        keep_logs(directory, options.logs)
        shutil.rmtree(directory, ignore_errors=True)
    return result | {"exact": checks.ok} | check_results(checks)

"""``python -m benchmarks freshness``."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.engines.process import keep_logs
from benchmarks.freshness.case import measure
from benchmarks.freshness.plan import CASES, FILE_MS, FULL, KEYS, POLL_MS, PROBES, PUSH_MS, QUICK, Plan
from benchmarks.log import server
from benchmarks.log.checks import Checks
from benchmarks.runner import check_results, describe_run, parser, run_benchmark


def run(arguments: Sequence[str]) -> int:
    """Run the benchmark. Return 0 if every check passed."""
    return run_benchmark("freshness", _measure, _parse(arguments))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser("freshness", "Measure the latency from a push to the row in SQL.")
    options.add_argument(
        "--logs", type=Path, metavar="DIRECTORY", help="copy the logs of the engines to this directory"
    )
    names = [case.name for case in CASES]
    options.add_argument(
        "--only", choices=names, nargs="+", default=names, metavar="CASE", help=f"one or more of {', '.join(names)}"
    )
    return options.parse_args(arguments)


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    plan, checks = QUICK if options.quick else FULL, Checks()
    directory = Path(tempfile.mkdtemp(prefix="penstock-freshness-"))
    try:
        with server.running() as running:
            result = _describe_run(plan, running, checks)
            for case in CASES:
                if case.name in options.only:
                    with checks.catching(case.name):
                        result[case.name] = await measure(case, plan, running, directory, checks)
    finally:
        keep_logs(directory, options.logs)
        shutil.rmtree(directory, ignore_errors=True)
    return result | check_results(checks)


def _describe_run(plan: Plan, running: server.Server, checks: Checks) -> dict[str, Any]:
    work = (
        f"Events over {KEYS:,} keys are pushed at a fixed rate every {PUSH_MS} ms, without waiting for the previous "
        f"push. Plain Spark gets a file every {FILE_MS} ms. The query computes the count and the highest number per "
        "key and minute, and as a running total per key in a materialized view. The latency is from the call of the "
        "push, or from before the file is written, to the first "
        f"poll that shows the event. A separate connection polls {len(PROBES)} keys every {POLL_MS} ms, so the "
        f"latency is overstated by up to {POLL_MS} ms and one SELECT. The warm-up is {plan.warm_up_seconds:.0f} s "
        f"after the first row, the measured time {plan.seconds:.0f} s. Cores are the CPU time of driver, JVM, Python "
        "workers and PostgreSQL without the backend of the poller, per second."
    )
    method = {"poll_ms": POLL_MS, "push_ms": PUSH_MS, "file_ms": FILE_MS, "keys": KEYS, "probe_keys": len(PROBES)}
    return describe_run(work, running, checks) | {"method": method}

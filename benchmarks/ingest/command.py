"""``python -m benchmarks ingest``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from benchmarks.ingest.bench import measure
from benchmarks.ingest.events import body
from benchmarks.ingest.plan import BATCHES, CONNECTIONS, FULL, PARTITIONS, QUICK, Plan
from benchmarks.log import server
from benchmarks.log.checks import Checks
from benchmarks.runner import check_results, describe_run, parser, run_benchmark


def run(arguments: Sequence[str]) -> int:
    """Run the benchmark. Return 0 if every check passed."""
    return run_benchmark("ingest", _measure, _parse(arguments))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser("ingest", "Measure HTTP ingestion.")
    options.add_argument("--only", type=int, choices=BATCHES, nargs="+", default=BATCHES, metavar="BATCH")
    options.add_argument("--workers", type=int, default=1, metavar="N", help="number of server processes")
    return options.parse_args(arguments)


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    plan, checks = QUICK if options.quick else FULL, Checks()
    keys = ("events_per_s", "p50_ms", "p99_ms", "cpu_s_per_million", "rounds")
    with server.running() as running:
        result = _describe_run(plan, running, options.workers, checks)
        result |= {key: {} for key in keys}
        for batch in options.only:
            with checks.catching(f"batches of {batch}"):
                cell = await measure(batch, plan, running, options.workers, checks)
                print(f"{batch:>5} events per request: {cell}", flush=True)
                for key in keys:
                    result[key][str(batch)] = cell[key]
    return result | check_results(checks)


def _describe_run(plan: Plan, running: server.Server, workers: int, checks: Checks) -> dict[str, Any]:
    work = (
        f"{CONNECTIONS} connections to {workers} server process{'' if workers == 1 else 'es'}, each with one request "
        f"in flight. A line has {len(body(1, 1))} bytes, the key is a field, the queue has {PARTITIONS} hash "
        f"partitions. Each batch size runs {plan.rounds} time(s) for {plan.seconds:g} s after a warm-up. The rate is "
        "the median, the percentiles are of all requests."
    )
    method = {"connections": CONNECTIONS, "partitions": PARTITIONS, "line_bytes": len(body(1, 1)), "workers": workers}
    return describe_run(work, running, checks) | {"method": method}

"""The command: each batch size in turn, and one JSON object as the last line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from benchmarks.ingest.bench import measure
from benchmarks.ingest.events import body
from benchmarks.ingest.plan import BATCHES, CONNECTIONS, FULL, PARTITIONS, QUICK, Plan
from benchmarks.log import server
from benchmarks.log.checks import Checks
from benchmarks.measuring import introduce, measured, parser, verdict


def run(arguments: Sequence[str]) -> int:
    """Measure what the arguments ask for; 0 if every check held."""
    return measured("ingest", _measure, _parse(arguments))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser("ingest", "Measure HTTP ingestion.")
    options.add_argument("--only", type=int, choices=BATCHES, nargs="+", default=BATCHES, metavar="BATCH")
    options.add_argument("--workers", type=int, default=1, metavar="N", help="server processes")
    return options.parse_args(arguments)


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    plan, checks = QUICK if options.quick else FULL, Checks()
    keys = ("events_per_s", "p50_ms", "p99_ms", "cpu_s_per_million", "rounds")
    with server.running() as running:
        result = _introduce(plan, running, options.workers, checks)
        result |= {key: {} for key in keys}
        for batch in options.only:
            with checks.catching(f"batches of {batch}"):
                cell = await measure(batch, plan, running, options.workers, checks)
                print(f"{batch:>5} events a request: {cell}", flush=True)
                for key in keys:
                    result[key][str(batch)] = cell[key]
    return result | verdict(checks)


def _introduce(plan: Plan, running: server.Server, workers: int, checks: Checks) -> dict[str, Any]:
    work = (
        f"{CONNECTIONS} connections to {workers} server process{'' if workers == 1 else 'es'}, each with one request "
        f"under way: lines of {len(body(1, 1))} bytes, the key taken from a field, to {PARTITIONS} hash "
        f"partitions. Each batch size for {plan.seconds:g} s, {plan.rounds} time(s), after a warm-up; "
        "the median of the rates, the percentiles of all requests."
    )
    method = {"connections": CONNECTIONS, "partitions": PARTITIONS, "line_bytes": len(body(1, 1)), "workers": workers}
    return introduce(work, running, checks) | {"method": method}

"""The command: each batch size in turn, and one JSON object as the last line."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.ingest.bench import measure
from benchmarks.ingest.events import body
from benchmarks.ingest.plan import BATCHES, CONNECTIONS, FULL, PARTITIONS, QUICK, Plan
from benchmarks.log import machine, server
from benchmarks.log.checks import Checks
from benchmarks.measuring import measured


def run(arguments: Sequence[str]) -> int:
    """Measure what the arguments ask for; 0 if every check held."""
    return measured(_measure, _parse(arguments))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks ingest", description="Measure HTTP ingestion.")
    parser.add_argument("--quick", action="store_true", help="the same checks on less work, in half a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result there")
    parser.add_argument("--only", type=int, choices=BATCHES, nargs="+", default=BATCHES, metavar="BATCH")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="server processes")
    return parser.parse_args(arguments)


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
    plan, checks = QUICK if options.quick else FULL, Checks()
    keys = ("events_per_s", "p50_ms", "p99_ms", "cpu_s_per_million", "rounds")
    with server.running() as running:
        bystanders, cpu_before = machine.Bystanders(), running.cpu_seconds()
        result = _introduce(plan, running, options.workers, checks)
        result |= {key: {} for key in keys}
        for batch in options.only:
            with checks.catching(f"batches of {batch}"):
                cell = await measure(batch, plan, running, options.workers, checks)
                print(f"{batch:>5} events a request: {cell}", flush=True)
                for key in keys:
                    result[key][str(batch)] = cell[key]
        result["cpu_share_of_others"] = round(bystanders.share(running.cpu_seconds() - cpu_before), 3)
    result["seconds"] = round(time.monotonic() - began, 1)
    return result | {"checks": checks.results, "failures": checks.failures, "ok": checks.ok}


def _introduce(plan: Plan, running: server.Server, workers: int, checks: Checks) -> dict[str, Any]:
    settings, environment = running.settings(), machine.describe()
    checks.expect("fsync is on", settings["fsync"] == "on")
    checks.expect("synchronous_commit is on", settings["synchronous_commit"] == "on")
    print(
        f"PostgreSQL {settings['server_version']}, embedded; it says fsync is {settings['fsync']} and "
        f"synchronous_commit {settings['synchronous_commit']}. Load generator, {workers} server process(es) and "
        f"PostgreSQL share {environment['cpus']} CPUs.\n"
        f"{CONNECTIONS} connections, each with one request under way: lines of {len(body(1, 1))} bytes, the key taken "
        f"from a field, to {PARTITIONS} hash partitions. Each batch size for {plan.seconds:g} s, {plan.rounds} "
        "time(s), after a warm-up; the median of the rates, the percentiles of all requests.",
        flush=True,
    )
    method = {"connections": CONNECTIONS, "partitions": PARTITIONS, "line_bytes": len(body(1, 1)), "workers": workers}
    return {"quick": plan.quick, "environment": environment, "settings": settings, "method": method}

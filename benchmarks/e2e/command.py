"""The command: a minute at a rate, or a day's events at once, and one JSON object as the last line."""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.e2e.bench import Plan, measure
from benchmarks.engines.process import keep_logs
from benchmarks.log import machine, server
from benchmarks.log.checks import Checks
from benchmarks.measuring import measured

_DAY_EVENTS = 50_000_000


def run(arguments: Sequence[str]) -> int:
    """Measure what the arguments ask for; 0 if every check held."""
    return measured(_measure, _parse(arguments))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks e2e", description="HTTP in, Spark, live rows out, all on this machine."
    )
    parser.add_argument("--quick", action="store_true", help="the same checks on less work, in under a minute")
    parser.add_argument("--day", action="store_true", help=f"{_DAY_EVENTS:,} events as fast as they are taken")
    parser.add_argument("--rate", type=int, default=90_000, metavar="N", help="events a second that are offered")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the rate is held")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result there")
    parser.add_argument("--logs", type=Path, metavar="DIRECTORY", help="keep what the processes said there")
    return parser.parse_args(arguments)


def _plan(options: argparse.Namespace) -> Plan:
    if options.day:
        return Plan("day", None, 0, 0, batch=2000, events=_DAY_EVENTS)
    if options.quick:
        return Plan("rate", min(options.rate, 20_000), 3, 5)
    return Plan("rate", options.rate, 30, options.seconds)


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    began, checks, plan = time.monotonic(), Checks(), _plan(options)
    directory = Path(tempfile.mkdtemp(prefix="penstock-e2e-"))
    result: dict[str, Any] = {"quick": options.quick, "environment": machine.describe(), "offered_per_s": plan.rate}
    print(
        "Events of about 90 bytes over 1,000 keys as NDJSON over HTTP, "
        f"{plan.batch:,} in a request on {plan.connections} connections; count, total and highest number per key and "
        "minute as live rows. Pusher, server, PostgreSQL, Spark and poller share "
        f"{result['environment']['cpus']} CPUs.",
        flush=True,
    )
    try:
        with server.running() as running:
            result["settings"] = running.settings()
            checks.expect("fsync is on", result["settings"]["fsync"] == "on")
            checks.expect("synchronous_commit is on", result["settings"]["synchronous_commit"] == "on")
            with checks.catching(plan.name):
                result |= await measure(plan, running, directory, checks)
    finally:
        keep_logs(directory, options.logs)
        shutil.rmtree(directory, ignore_errors=True)
    result["took_seconds"] = round(time.monotonic() - began, 1)
    result["exact"] = checks.ok
    return result | {"checks": checks.results, "failures": checks.failures, "ok": checks.ok}

"""The command: a minute at a rate, or a day's events at once, and one JSON object as the last line."""

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
from benchmarks.measuring import introduce, measured, parser, verdict

_DAY_EVENTS = 50_000_000
_DAY_SINK = "e2e_day-closed"


def run(arguments: Sequence[str]) -> int:
    """Measure what the arguments ask for; 0 if every check held."""
    return measured("e2e", _measure, _parse(arguments))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser("e2e", "HTTP in, Spark, live rows out, all on this machine.")
    options.add_argument("--day", action="store_true", help=f"{_DAY_EVENTS:,} events as fast as they are taken")
    options.add_argument("--rate", type=int, default=90_000, metavar="N", help="events a second that are offered")
    options.add_argument("--seconds", type=float, default=60.0, help="how long the rate is held")
    options.add_argument("--logs", type=Path, metavar="DIRECTORY", help="keep what the processes said there")
    return options.parse_args(arguments)


def _plan(options: argparse.Namespace) -> Plan:
    if options.day and options.quick:
        # At a rate, so that on any machine it takes long enough for windows to close.
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
        f"{plan.closing.window_seconds} s of event time as live rows, which close {plan.closing.lateness_seconds} s "
        "after their end and go to a queue. Each window is held against what the pusher wrote down of the requests "
        "that were answered, and the closed ones must be in the queue once"
    )


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    checks, plan = Checks(), _plan(options)
    directory = Path(tempfile.mkdtemp(prefix="penstock-e2e-"))
    work = (
        "Events of about 90 bytes over 1,000 keys as NDJSON over HTTP, "
        f"{plan.batch:,} in a request on {plan.connections} connections; count, total and highest number per key and "
        f"{_windows(plan)}. Pusher, server, PostgreSQL, Spark and poller each have a process of their own."
    )
    try:
        with server.running() as running:
            result = introduce(work, running, checks) | {"offered_per_s": plan.rate}
            with checks.catching(plan.name):
                result |= await measure(plan, running, directory, checks)
    finally:
        keep_logs(directory, options.logs)
        shutil.rmtree(directory, ignore_errors=True)
    return result | {"exact": checks.ok} | verdict(checks)

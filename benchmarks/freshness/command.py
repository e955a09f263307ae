"""The command: each rate and setting in turn, and one JSON object as the last line."""

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
from benchmarks.measuring import introduce, measured, parser, verdict


def run(arguments: Sequence[str]) -> int:
    """Measure what the arguments ask for; 0 if every check held."""
    return measured("freshness", _measure, _parse(arguments))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser("freshness", "Measure how long from a push to the row in SQL.")
    options.add_argument("--logs", type=Path, metavar="DIRECTORY", help="keep what the engines said there")
    names = [case.name for case in CASES]
    options.add_argument(
        "--only", choices=names, nargs="+", default=names, metavar="CASE", help=f"of {', '.join(names)}"
    )
    return options.parse_args(arguments)


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    plan, checks = QUICK if options.quick else FULL, Checks()
    directory = Path(tempfile.mkdtemp(prefix="penstock-freshness-"))
    try:
        with server.running() as running:
            result = _introduce(plan, running, checks)
            for case in CASES:
                if case.name in options.only:
                    with checks.catching(case.name):
                        result[case.name] = await measure(case, plan, running, directory, checks)
    finally:
        keep_logs(directory, options.logs)
        shutil.rmtree(directory, ignore_errors=True)
    return result | verdict(checks)


def _introduce(plan: Plan, running: server.Server, checks: Checks) -> dict[str, Any]:
    work = (
        f"Events over {KEYS:,} keys at a fixed rate, pushed every {PUSH_MS} ms without waiting for the push before; "
        f"plain Spark gets a file every {FILE_MS} ms. Count and highest number per key and minute, as rows. "
        "Measured from the call of the push (for a file: before it is written) to the answer of a question that shows "
        f"the event counted, asked every {POLL_MS} ms on its own connection, for all events of {len(PROBES)} keys: "
        f"up to {POLL_MS} ms and one question too long. {plan.warm_up_seconds:.0f} s of warm-up from the first row on, "
        f"then {plan.seconds:.0f} s that count. "
        "Cores are CPU time of driver, JVM, Python workers and all of PostgreSQL but the poller's backend, over time."
    )
    method = {"poll_ms": POLL_MS, "push_ms": PUSH_MS, "file_ms": FILE_MS, "keys": KEYS, "probe_keys": len(PROBES)}
    return introduce(work, running, checks) | {"method": method}

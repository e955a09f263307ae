"""The command: each rate and setting in turn, and one JSON object as the last line."""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.engines.process import keep_logs
from benchmarks.freshness.case import measure
from benchmarks.freshness.plan import CASES, FILE_MS, FULL, KEYS, POLL_MS, PROBES, PUSH_MS, QUICK, Plan
from benchmarks.log import machine, server
from benchmarks.log.checks import Checks
from benchmarks.measuring import measured


def run(arguments: Sequence[str]) -> int:
    """Measure what the arguments ask for; 0 if every check held."""
    return measured(_measure, _parse(arguments))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks freshness", description="Measure how long from a push to the row in SQL."
    )
    parser.add_argument("--quick", action="store_true", help="the same checks on less work, in about a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result there")
    parser.add_argument("--logs", type=Path, metavar="DIRECTORY", help="keep what the engines said there")
    names = [case.name for case in CASES]
    parser.add_argument(
        "--only", choices=names, nargs="+", default=names, metavar="CASE", help=f"of {', '.join(names)}"
    )
    return parser.parse_args(arguments)


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
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
    result["seconds"] = round(time.monotonic() - began, 1)
    return result | {"checks": checks.results, "failures": checks.failures, "ok": checks.ok}


def _introduce(plan: Plan, running: server.Server, checks: Checks) -> dict[str, Any]:
    settings, environment = running.settings(), machine.describe()
    checks.expect("fsync is on", settings["fsync"] == "on")
    checks.expect("synchronous_commit is on", settings["synchronous_commit"] == "on")
    print(
        f"PostgreSQL {settings['server_version']}, embedded; it says fsync is {settings['fsync']} and "
        f"synchronous_commit {settings['synchronous_commit']}. Pusher, engine, PostgreSQL and poller share "
        f"{environment['cpus']} CPUs.\n"
        f"Events over {KEYS:,} keys at a fixed rate, pushed every {PUSH_MS} ms without waiting for the push before; "
        f"plain Spark gets a file every {FILE_MS} ms. Count and highest number per key and minute, as rows.\n"
        "Measured from the call of the push (for a file: before it is written) to the answer of a question that shows "
        f"the event counted, asked every {POLL_MS} ms on its own connection, for all events of {len(PROBES)} keys: "
        f"up to {POLL_MS} ms and one question too long. {plan.warm_up_seconds:.0f} s of warm-up from the first row on, "
        f"then {plan.seconds:.0f} s that count.\n"
        "Cores are CPU time of driver, JVM, Python workers and all of PostgreSQL but the poller's backend, over time.",
        flush=True,
    )
    method = {"poll_ms": POLL_MS, "push_ms": PUSH_MS, "file_ms": FILE_MS, "keys": KEYS, "probe_keys": len(PROBES)}
    return {"quick": plan.quick, "environment": environment, "settings": settings, "method": method}

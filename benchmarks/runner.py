"""Shared by all benchmarks: options, the machine and time of the run, and one JSON object as the last line."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.log import machine
from benchmarks.log.checks import Checks
from benchmarks.log.server import Server

Result = dict[str, Any]


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark."""
    result = argparse.ArgumentParser(prog=f"python -m benchmarks {name}", description=description)
    result.add_argument("--quick", action="store_true", help="run the same checks on a smaller workload")
    result.add_argument("--json", type=Path, metavar="FILE", help="also write the result to this file")
    return result


def comma_separated(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Return an argument type: a comma-separated selection of the known names, in their order, or ``none``."""

    def parse(text: str) -> tuple[str, ...]:
        selected = [] if text == "none" else text.split(",")
        if unknown := set(selected) - set(known):
            choices = ", ".join(known)
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))} (choose from {choices})")
        return tuple(name for name in known if name in selected)

    return parse


def describe_run(work: str, running: Server | None = None, checks: Checks | None = None) -> Result:
    """Print and return the description of the workload and the server. Fails a check if durability is off."""
    result: Result = {"work": work}
    if running is not None:
        settings = result["settings"] = running.settings()
        result["work"] = work = (
            f"{work} PostgreSQL {settings['server_version']}, embedded, with fsync {settings['fsync']} and "
            f"synchronous_commit {settings['synchronous_commit']}. All processes share {os.cpu_count()} CPUs."
        )
        if checks is not None:
            checks.expect("fsync is on", settings["fsync"] == "on")
            checks.expect("synchronous_commit is on", settings["synchronous_commit"] == "on")
    print(work, flush=True)
    return result


def run_benchmark(
    name: str, measure: Callable[[argparse.Namespace], Awaitable[Result] | Result], options: argparse.Namespace
) -> int:
    """Run a benchmark and print its result. Return 0 if every check passed."""
    command = " ".join(["python -m benchmarks", name, *_without_output_paths(sys.argv[2:])])
    began, date, environment = time.monotonic(), datetime.now(UTC), machine.describe()
    with machine.OtherProcesses() as other_processes:
        try:
            outcome = measure(options)
            result = outcome if isinstance(outcome, dict) else asyncio.run(_cancel_on_sigterm(outcome))
        except asyncio.CancelledError:
            return 128 + signal.SIGTERM
        shares = other_processes.shares()
    result = {"benchmark": name, "quick": options.quick, **result}
    result.setdefault("seconds", round(time.monotonic() - began, 1))
    # Also at the top level, for readers of older results.
    result["cpu_share_of_others"] = shares["cpu_share_of_others"]
    result["environment"] = {
        "command": command,
        "date": date.isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - began, 1),
        **environment,
        **shares,
    }
    text = json.dumps(result)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    print(text)
    return 0 if result["ok"] else 1


def check_results(checks: Checks) -> Result:
    return {"checks": checks.results, "failures": checks.failures, "ok": checks.ok}


async def _cancel_on_sigterm(run: Awaitable[Result]) -> Result:
    """Handle SIGTERM like Ctrl-C, so that the server is stopped and its directory removed."""
    this = asyncio.current_task()
    if this is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    return await run


def _without_output_paths(arguments: Sequence[str]) -> list[str]:
    """Remove the output paths, which are specific to this machine."""
    kept = list(arguments)
    for option in ("--json", "--logs"):
        if option in kept:
            index = kept.index(option)
            del kept[index : index + 2]
    return [argument for argument in kept if not argument.startswith(("--json=", "--logs="))]

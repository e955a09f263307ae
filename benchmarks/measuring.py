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
    """A parser of the options that every benchmark has."""
    made = argparse.ArgumentParser(prog=f"python -m benchmarks {name}", description=description)
    made.add_argument("--quick", action="store_true", help="the same checks on less work")
    made.add_argument("--json", type=Path, metavar="FILE", help="also write the result there")
    return made


def listed(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """A type of argument: some of the names that there are, with commas between them, in their own order; or none."""

    def read(text: str) -> tuple[str, ...]:
        asked = [] if text == "none" else text.split(",")
        if unknown := set(asked) - set(known):
            there_is = ", ".join(known)
            raise argparse.ArgumentTypeError(f"no such thing: {', '.join(sorted(unknown))} (there is {there_is})")
        return tuple(name for name in known if name in asked)

    return read


def introduce(work: str, running: Server | None = None, checks: Checks | None = None) -> Result:
    """Say what will be done, and by which PostgreSQL; one that does not wait for its disk fails the run."""
    result: Result = {"work": work}
    if running is not None:
        settings = result["settings"] = running.settings()
        result["work"] = work = (
            f"{work} PostgreSQL {settings['server_version']}, embedded, says fsync is {settings['fsync']} and "
            f"synchronous_commit {settings['synchronous_commit']}; everything shares {os.cpu_count()} CPUs."
        )
        if checks is not None:
            checks.expect("fsync is on", settings["fsync"] == "on")
            checks.expect("synchronous_commit is on", settings["synchronous_commit"] == "on")
    print(work, flush=True)
    return result


def measured(
    name: str, measure: Callable[[argparse.Namespace], Awaitable[Result] | Result], options: argparse.Namespace
) -> int:
    """Measure, and print the result; 0 if every check held."""
    command = " ".join(["python -m benchmarks", name, *_without_file(sys.argv[2:])])
    began, date, environment = time.monotonic(), datetime.now(UTC), machine.describe()
    with machine.Bystanders() as bystanders:
        try:
            answer = measure(options)
            result = answer if isinstance(answer, dict) else asyncio.run(_in_order(answer))
        except asyncio.CancelledError:
            return 128 + signal.SIGTERM
        shares = bystanders.shares()
    result = {"benchmark": name, "quick": options.quick, **result}
    result.setdefault("seconds", round(time.monotonic() - began, 1))
    # At the top as well, where it has always been.
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


def verdict(checks: Checks) -> Result:
    return {"checks": checks.results, "failures": checks.failures, "ok": checks.ok}


async def _in_order(answer: Awaitable[Result]) -> Result:
    """Let SIGTERM end the run as Ctrl-C does, so that the server is stopped and its directory removed."""
    this = asyncio.current_task()
    if this is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    return await answer


def _without_file(arguments: Sequence[str]) -> list[str]:
    """Return the command without the output path, which is specific to this machine."""
    kept = list(arguments)
    for option in ("--json", "--logs"):
        if option in kept:
            place = kept.index(option)
            del kept[place : place + 2]
    return [word for word in kept if not word.startswith(("--json=", "--logs="))]

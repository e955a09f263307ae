"""The command: one benchmark after another, each in a process of its own, then the page."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.all.runs import RUNS, Run, named
from benchmarks.page.results import DIRECTORY

_ROOT = Path(__file__).parents[2]
_QUICK = Path(tempfile.gettempdir()) / "penstock-benchmarks"


def run(arguments: Sequence[str]) -> int:
    """Make the runs that the arguments ask for, and the page; 0 if every check of each held."""
    options = _parse(arguments)
    summary = {}
    for number, each in enumerate(options.only, 1):
        command = " ".join(each.command(quick=options.quick))
        print(f"\n{number} of {len(options.only)}: python -m benchmarks {command}", flush=True)
        summary[each.name] = _make(each, options.out, quick=options.quick)
    page = _python("page", "--out", str(options.out)) == 0
    ok = page and all(one["ok"] for one in summary.values())
    print(json.dumps({"runs": summary, "page": page, "ok": ok}))
    return 0 if ok else 1


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks all", description="Run all benchmarks, keep what they measured, and make the page."
    )
    parser.add_argument("--quick", action="store_true", help="each on less work, in about a minute")
    parser.add_argument(
        "--only", type=_runs, default=list(RUNS), metavar="NAMES", help=f"some of {','.join(run.name for run in RUNS)}"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIRECTORY",
        help="where results and page go: docs/benchmarks, but of quick runs, which are not to replace those, "
        "a directory for what is temporary",
    )
    options = parser.parse_args(arguments)
    options.out = (options.out or (_QUICK if options.quick else DIRECTORY)).resolve()
    return options


def _runs(text: str) -> list[Run]:
    asked = text.split(",")
    if unknown := [name for name in asked if not named([name])]:
        raise argparse.ArgumentTypeError(f"no such benchmark: {', '.join(unknown)}")
    return named(asked)


def _make(run: Run, out: Path, *, quick: bool) -> dict[str, object]:
    """Make a run; one that ends without a result leaves the earlier one where it was."""
    began = time.monotonic()
    code = _python(*run.command(quick=quick), "--json", str(out / f"{run.name}.json"))
    return {"ok": code == 0, "exit_code": code, "seconds": round(time.monotonic() - began, 1)}


def _python(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "benchmarks", *arguments], cwd=_ROOT).returncode

"""``python -m benchmarks all``: run each benchmark in its own process, then render the page."""

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
    """Run the selected benchmarks and render the page. Return 0 if every check passed."""
    options = _parse(arguments)
    summary = {}
    for number, benchmark in enumerate(options.only, 1):
        command = " ".join(benchmark.command(quick=options.quick))
        print(f"\n{number} of {len(options.only)}: python -m benchmarks {command}", flush=True)
        summary[benchmark.name] = _run(benchmark, options.out, quick=options.quick)
    page = _python("page", "--out", str(options.out)) == 0
    ok = page and all(result["ok"] for result in summary.values())
    print(json.dumps({"runs": summary, "page": page, "ok": ok}))
    return 0 if ok else 1


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks all", description="Run all benchmarks, store their results, and render the page."
    )
    parser.add_argument("--quick", action="store_true", help="run each on a smaller workload, about a minute each")
    parser.add_argument(
        "--only",
        type=_runs,
        default=list(RUNS),
        metavar="NAMES",
        help=f"comma-separated: {','.join(run.name for run in RUNS)}",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIRECTORY",
        help="directory of the results and the page (default: docs/benchmarks, or a temporary directory with --quick)",
    )
    options = parser.parse_args(arguments)
    options.out = (options.out or (_QUICK if options.quick else DIRECTORY)).resolve()
    return options


def _runs(text: str) -> list[Run]:
    names = text.split(",")
    if unknown := [name for name in names if not named([name])]:
        raise argparse.ArgumentTypeError(f"no such benchmark: {', '.join(unknown)}")
    return named(names)


def _run(run: Run, out: Path, *, quick: bool) -> dict[str, object]:
    """Run one benchmark. A run that ends without a result keeps the previous result file."""
    began = time.monotonic()
    code = _python(*run.command(quick=quick), "--json", str(out / f"{run.name}.json"))
    return {"ok": code == 0, "exit_code": code, "seconds": round(time.monotonic() - began, 1)}


def _python(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "benchmarks", *arguments], cwd=_ROOT).returncode

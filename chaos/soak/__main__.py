"""``python -m chaos.soak --hours 1``: steady load, samples, and a report with plots."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from chaos.checker import check_run
from chaos.health import NotHealthy, wait_until_drained, wait_until_healthy
from chaos.plan import Plan
from chaos.soak.plots import draw
from chaos.soak.samples import Sampler
from chaos.soak.trends import Trend, trend
from chaos.system import System

_START_SECONDS = 600.0
_FEWEST_SAMPLES = 60


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0 if all curves are flat and all results exact."""
    options = _parse(arguments)
    directory = options.directory or Path(tempfile.mkdtemp(prefix="penstock-soak-"))
    report = soak(options.hours * 3600, directory, options.pause, spark=not options.without_spark)
    print(_text(report), flush=True)
    print(f"report.json, report.md and the plots are in {directory}")
    return 0 if report["ok"] else 1


def soak(seconds: float, directory: Path, pause_seconds: float, *, spark: bool = True) -> dict[str, Any]:
    """Run the system without faults; return the report."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    # Retention runs several times.
    retention = max(20.0, min(seconds / 12, 3600.0))
    plan = Plan(0, seconds, (), standby=False, spark=spark, pause_seconds=pause_seconds, retention_seconds=retention)
    system = System(plan, directory)
    sampler = Sampler(system)
    report: dict[str, Any] = {"seconds": seconds, "retention_seconds": retention, "failures": []}
    with system.running():
        try:
            wait_until_healthy(system, _START_SECONDS)
            print(f"everything runs; logs and journals are in {directory}", flush=True)
            _sample(sampler, seconds)
            system.stop_file.touch()
            deadline = time.monotonic() + plan.drain_seconds
            while not system.producers_are_done() and time.monotonic() < deadline:
                time.sleep(0.1)
            report["drained_after_seconds"] = round(wait_until_drained(system, plan.drain_seconds), 1)
            system.stop()
            results = check_run(directory, system.postgres.url, system.sink_file, computed=spark)
            report |= {"checks": results.checks, "facts": results.facts}
            report["failures"] += results.failures
        except NotHealthy as error:
            report["failures"].append(str(error))
    trends = [trend(curve) for curve in sampler.curves.values()]
    report["failures"] += [
        f"{each.name} grows by {each.growth:.1f} {each.unit}" for each in trends if each.kind == "GROWS"
    ]
    report["trends"] = [asdict(each) for each in trends]
    report["curves"] = {name: curve.values for name, curve in sampler.curves.items()}
    report["ok"] = not report["failures"]
    (directory / "report.json").write_text(json.dumps(report, default=str) + "\n")
    draw(sampler.curves, directory)
    (directory / "report.md").write_text(_text(report))
    return report


def _sample(sampler: Sampler, seconds: float) -> None:
    every = max(2.0, min(60.0, seconds / _FEWEST_SAMPLES))
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.monotonic()
        sampler.sample()
        time.sleep(max(0.0, every - (time.monotonic() - began)))


def _text(report: dict[str, Any]) -> str:
    outcome = "flat and exact" if report["ok"] else "NOT AS IT SHOULD BE"
    lines = [f"# Soak of {report['seconds'] / 60:.0f} minutes: {outcome}", ""]
    lines += [f"Events are kept for {report['retention_seconds']:.0f} s.", ""]
    lines += ["| curve | mean | growth | noise | |", "| --- | --- | --- | --- | --- |"]
    for each in sorted(report["trends"], key=lambda each: str(each["name"])):
        shown = Trend(**each)
        unit = f" {shown.unit}" if shown.unit else ""
        lines.append(
            f"| {shown.name} | {shown.mean:.1f}{unit} | {shown.growth:+.1f} | {shown.noise:.1f} | {shown.kind} |"
        )
    lines += ["", *(f"- {check}: {result}" for check, result in report.get("checks", {}).items())]
    lines += [f"- {name}: {value}" for name, value in report.get("facts", {}).items()]
    lines += [f"- FAILED: {failure}" for failure in report["failures"]]
    return "\n".join(lines) + "\n"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos.soak", description="The whole system under steady load.")
    parser.add_argument("--hours", type=float, default=1.0, help="how long the load goes on")
    parser.add_argument("--without-spark", action="store_true", help="queues, server, sinks and consumers only")
    parser.add_argument("--pause", type=float, default=0.12, help="seconds between two batches of a producer")
    parser.add_argument("--directory", type=Path, help="where the report goes; a new one, if not given")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

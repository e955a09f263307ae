"""One run: start the system, inject faults, wait for recovery, stop, check, report."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaos.checker import check_run
from chaos.health import NotHealthy, wait_until_drained, wait_until_healthy
from chaos.plan import Plan
from chaos.schedule import Schedule
from chaos.system import System

_START_SECONDS = 900.0


def run(plan: Plan, directory: Path, log: Callable[[str], None] = print) -> dict[str, Any]:
    """Run a plan; return the report, with ``ok`` if all checks hold."""
    # Journals of an earlier run with this seed would be read as those of this run.
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    report: dict[str, Any] = {"seed": plan.seed, "plan": plan.document(), "failures": []}
    log(f"seed {plan.seed}: {len(plan.faults)} faults in {plan.seconds:.0f} s; logs and journals are in {directory}")
    system = System(plan, directory)
    began = time.monotonic()
    with system.running():
        try:
            _inject_faults(plan, system, report, log)
            report["stopped_cleanly"] = clean = system.stop()
            report["failures"] += [f"{name} did not end cleanly on SIGTERM" for name, was in clean.items() if not was]
            results = check_run(directory, system.postgres.url, system.sink_file, computed=plan.spark)
            report |= {"checks": results.checks, "facts": results.facts}
            report["failures"] += results.failures
        except NotHealthy as error:
            report["failures"].append(str(error))
        report["starts"] = {name: process.starts for name, process in system.processes.items()}
        report["starts"]["postgres"] = system.postgres.starts
        report["ended_by_themselves"] = {
            name: process.ended for name, process in system.processes.items() if process.ended
        }
    report["seconds"] = round(time.monotonic() - began, 1)
    report["ok"] = not report["failures"]
    (directory / "report.json").write_text(json.dumps(report, indent=2, default=str) + "\n")
    (directory / "report.txt").write_text(format_report(report))
    return report


def _inject_faults(plan: Plan, system: System, report: dict[str, Any], log: Callable[[str], None]) -> None:
    seconds = wait_until_healthy(system, _START_SECONDS)
    report["started_after_seconds"] = round(seconds, 1)
    log(f"everything runs after {seconds:.1f} s")
    schedule, began = Schedule(system, plan.faults, log), time.monotonic()
    schedule.start()
    schedule.join()
    report["faults"] = [done.document() for done in schedule.done]
    for proxy in (system.database, system.web):
        proxy.heal()
    try:
        healthy = wait_until_healthy(system, plan.healthy_seconds)
    except NotHealthy as error:
        raise NotHealthy(f"not healthy {plan.healthy_seconds:g} s after the last fault: {error}") from None
    report["healthy_after_seconds"] = round(healthy, 1)
    log(f"healthy again {healthy:.1f} s after the last fault")
    time.sleep(max(0.0, began + plan.seconds - time.monotonic()))
    system.stop_file.touch()
    deadline = time.monotonic() + plan.healthy_seconds
    while not system.producers_are_done():
        if time.monotonic() > deadline:
            raise NotHealthy("the producers' last requests were not answered in time")
        time.sleep(0.1)
    report["drained_after_seconds"] = round(wait_until_drained(system, plan.drain_seconds), 1)


def format_report(report: dict[str, Any]) -> str:
    """Format the report: one line per fault and check."""
    lines = [f"seed {report['seed']}: {'survived' if report['ok'] else 'NOT SURVIVED'}"]
    for fault in report.get("faults", []):
        what = f"not done: {fault['not_done']}" if "not_done" in fault else fault["hit"]
        lines.append(f"  {fault['at']:6.1f} s  {fault['fault']}: {what}, over at {fault['until']:.1f} s")
    if "healthy_after_seconds" in report:
        lines.append(f"  healthy again {report['healthy_after_seconds']} s after the last fault")
    lines += [f"  {check}: {result}" for check, result in report.get("checks", {}).items()]
    lines += [f"  {name}: {value}" for name, value in report.get("facts", {}).items()]
    lines += [f"  FAILED: {failure}" for failure in report["failures"]]
    return "\n".join(lines) + "\n"

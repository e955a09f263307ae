"""``python -m benchmarks profile``."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.drain import load
from benchmarks.drain.bench import Bench
from benchmarks.drain.dataset import Dataset
from benchmarks.engines.jobs import Drain
from benchmarks.engines.process import EngineProcess, keep_logs
from benchmarks.freshness.case import measure as measure_steady
from benchmarks.log import server
from benchmarks.log.checks import Checks
from benchmarks.profile import cycles
from benchmarks.profile.cpu_sampler import CpuSampler
from benchmarks.profile.names import ENDED
from benchmarks.profile.plan import FULL, KEYS, PARTITIONS, QUICK, RATE, STEADY, Plan
from benchmarks.profile.samplers import Samples, sampling
from benchmarks.profile.stacks import pruned, scaled_stacks
from benchmarks.runner import check_results, comma_separated, describe_run, parser, run_benchmark
from penstock import Penstock

_SECTIONS = ("drain", "steady")
#: The largest share of the CPU time that may belong to no component.
_MAX_UNATTRIBUTED = 0.1
#: Longer than any drain.
_LONG_SECONDS = 3_600.0


def run(arguments: Sequence[str]) -> int:
    """Run the benchmark. Return 0 if every check passed."""
    return run_benchmark("profile", _measure, _parse(arguments))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser("profile", "Measure CPU time per event and wall-clock time per cycle by component.")
    options.add_argument(
        "--logs", type=Path, metavar="DIRECTORY", help="copy the logs of the engines to this directory"
    )
    choices = f"comma-separated: {', '.join(_SECTIONS)}"
    options.add_argument("--only", type=comma_separated(_SECTIONS), default=_SECTIONS, metavar="SECTIONS", help=choices)
    return options.parse_args(arguments)


@dataclass(frozen=True, slots=True)
class Profile:
    """The CPU time of a number of events by component, and stack samples."""

    events: float
    seconds: float
    cpu: CpuSampler
    samples: Samples
    cycle: dict[str, object]

    def result(self) -> dict[str, Any]:
        millions, parts = self.events / 1e6, self.cpu.by_part()
        spent = {part: cpu.seconds / millions for part, cpu in parts.items() if cpu.seconds > 0}
        return {
            "events": round(self.events),
            "events_per_s": round(self.events / self.seconds),
            "cores": round(self.cpu.total / self.seconds, 3),
            "cpu_s_per_million": {part: round(spent[part], 3) for part in sorted(spent)},
            "of_it_in_the_kernel": {part: round(parts[part].kernel / millions, 3) for part in sorted(spent)},
            "cycle": self.cycle,
            "samples": {part: sum(stacks.values()) for part, stacks in sorted(self.samples.by_part.items())},
            "not_sampled": self.samples.unavailable,
            "stacks": {
                stack: round(cost, 4) for stack, cost in pruned(scaled_stacks(spent, self.samples.by_part)).items()
            },
        }

    def check(self, name: str, checks: Checks) -> None:
        """Check that almost all CPU time belongs to a component."""
        total = self.cpu.total
        unattributed = sum(cpu.seconds for part, cpu in self.cpu.by_part().items() if part.endswith(ENDED))
        detail = f"{unattributed:.1f} of {total:.1f} CPU s belong to no component"
        checks.expect(f"{name}: the components add up to the total", unattributed < _MAX_UNATTRIBUTED * total, detail)

    def print_summary(self, name: str) -> None:
        result = self.result()
        print(f"  {name}: {result['events_per_s']:,} events/s, {result['cores']} cores; CPU s per million:", flush=True)
        for part, cost in sorted(result["cpu_s_per_million"].items(), key=lambda item: -item[1]):
            print(f"    {part:<46} {cost:>8.3f}", flush=True)
        for sampler, reason in self.samples.unavailable.items():
            print(f"    {sampler} took no samples: {reason}", flush=True)


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    plan, checks = QUICK if options.quick else FULL, Checks()
    directory = Path(tempfile.mkdtemp(prefix="penstock-profile-"))
    try:
        async with AsyncExitStack() as stack:
            running = stack.enter_context(server.running())
            result = describe_run(_describe_workload(plan), running, checks)
            q = await stack.enter_async_context(Penstock(running.url))
            bench = Bench(running, q, directory, stack, checks)
            for section in options.only:
                with checks.catching(section):
                    profile = await (_drain if section == "drain" else _steady)(bench, plan)
                    profile.print_summary(section)
                    result[section] = profile.result()
                    profile.check(section, checks)
    finally:
        keep_logs(directory, options.logs)
        shutil.rmtree(directory, ignore_errors=True)
    return result | check_results(checks)


def _describe_workload(plan: Plan) -> str:
    return (
        f"A drain of {plan.events:,} events with {KEYS:,} keys into windows, after {plan.warm_ups} warm-up drains in "
        f"the same JVM, and {RATE:,} events per second at the default setting, after "
        f"{plan.steady.warm_up_seconds:.0f} s of warm-up. CPU time is from the kernel counters of each process and "
        "each thread of the JVM, without profilers. Stacks are from a second run with py-spy and JDK Flight "
        "Recorder. In the flame graph, the width of a component is its CPU time in the first run. The rows of both "
        "drains are compared with DuckDB's, and every event of the steady run must be counted once."
    )


async def _drain(bench: Bench, plan: Plan) -> Profile:
    dataset = Dataset(plan.workload, bench.directory / "events")
    await load.create(bench.q, "events", partitions=PARTITIONS)
    oracle = await bench.extend(dataset, "events", plan.events)
    await bench.warm_up("penstock", "events", plan.warm_ups)
    engine, url = await bench.engine("penstock"), bench.server.url
    with CpuSampler(engine.pid, bench.server) as cpu:
        drained, _ = await engine.drain(Drain("profile_costs", url, "events"))
    await bench.verify("drain", drained.results[0], oracle)
    async with sampling(engine.pid, bench.directory) as samples:
        again, _ = await engine.drain(Drain("profile_stacks", url, "events"))
    await bench.verify("drain with profilers", again.results[0], oracle)
    oracle.close()
    await bench.stop_engine("penstock")
    cycle = await asyncio.to_thread(cycles.by_part, url, "profile_costs", _LONG_SECONDS)
    return Profile(plan.events, drained.seconds, cpu, samples, cycle)


async def _steady(bench: Bench, plan: Plan) -> Profile:
    profiles: list[Profile] = []

    async def observe(engine: EngineProcess) -> None:
        began = time.monotonic()
        with CpuSampler(engine.pid, bench.server) as cpu:
            await asyncio.sleep(plan.steady.seconds)
        seconds = time.monotonic() - began
        cycle = await asyncio.to_thread(cycles.by_part, bench.server.url, f"fresh_{STEADY.name}", seconds)
        async with sampling(engine.pid, bench.directory) as samples:
            await asyncio.sleep(plan.sampled_seconds)
        profiles.append(Profile(RATE * seconds, seconds, cpu, samples, cycle))

    await measure_steady(STEADY, plan.steady, bench.server, bench.directory, bench.checks, observe)
    return profiles[0]

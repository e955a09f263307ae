"""The command: where the CPU time of an event and the time of a cycle go, and one JSON object as the last line."""

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
from benchmarks.drain.stock import Stock
from benchmarks.engines.jobs import Drain
from benchmarks.engines.process import EngineProcess, keep_logs
from benchmarks.freshness.case import measure as measure_steady
from benchmarks.log import server
from benchmarks.log.checks import Checks
from benchmarks.measuring import introduce, listed, measured, parser, verdict
from benchmarks.profile import cycles
from benchmarks.profile.accounts import Accounts
from benchmarks.profile.names import ENDED
from benchmarks.profile.plan import FULL, KEYS, PARTITIONS, QUICK, RATE, STEADY, Plan
from benchmarks.profile.samplers import Samples, sampling
from benchmarks.profile.stacks import pruned, weighed
from penstock import Penstock

_SECTIONS = ("drain", "steady")
#: Of what was spent, less than this may be nobody's.
_UNSEEN = 0.1
#: Longer than any drain.
_LONG_SECONDS = 3_600.0


def run(arguments: Sequence[str]) -> int:
    """Profile what the arguments ask for; 0 if every check held."""
    return measured("profile", _measure, _parse(arguments))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser("profile", "See where the CPU time of an event and the time of a cycle go.")
    options.add_argument("--logs", type=Path, metavar="DIRECTORY", help="keep what the engines said there")
    some = f"some of {', '.join(_SECTIONS)}"
    options.add_argument("--only", type=listed(_SECTIONS), default=_SECTIONS, metavar="SECTIONS", help=some)
    return options.parse_args(arguments)


@dataclass(frozen=True, slots=True)
class Profile:
    """The CPU time spent on a number of events, by part, with the samples."""

    events: float
    seconds: float
    accounts: Accounts
    samples: Samples
    cycle: dict[str, object]

    def result(self) -> dict[str, Any]:
        millions, parts = self.events / 1e6, self.accounts.by_part()
        spent = {part: cpu.seconds / millions for part, cpu in parts.items() if cpu.seconds > 0}
        return {
            "events": round(self.events),
            "events_per_s": round(self.events / self.seconds),
            "cores": round(self.accounts.total / self.seconds, 3),
            "cpu_s_per_million": {part: round(spent[part], 3) for part in sorted(spent)},
            "of_it_in_the_kernel": {part: round(parts[part].kernel / millions, 3) for part in sorted(spent)},
            "cycle": self.cycle,
            "samples": {part: sum(seen.values()) for part, seen in sorted(self.samples.by_part.items())},
            "not_sampled": self.samples.unavailable,
            "stacks": {stack: round(cost, 4) for stack, cost in pruned(weighed(spent, self.samples.by_part)).items()},
        }

    def check(self, what: str, checks: Checks) -> None:
        """Check that almost all time belongs to a known part."""
        total = self.accounts.total
        unseen = sum(cpu.seconds for part, cpu in self.accounts.by_part().items() if part.endswith(ENDED))
        said = f"of {total:.1f} CPU s, {unseen:.1f} are nobody's"
        checks.expect(f"{what}: the parts add up to what was spent", unseen < _UNSEEN * total, said)

    def say(self, what: str) -> None:
        said = self.result()
        print(f"  {what}: {said['events_per_s']:,} events/s, {said['cores']} cores; CPU s per million:", flush=True)
        for part, cost in sorted(said["cpu_s_per_million"].items(), key=lambda each: -each[1]):
            print(f"    {part:<46} {cost:>8.3f}", flush=True)
        for sampler, why in self.samples.unavailable.items():
            print(f"    {sampler} gave no stacks: {why}", flush=True)


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    plan, checks = QUICK if options.quick else FULL, Checks()
    directory = Path(tempfile.mkdtemp(prefix="penstock-profile-"))
    try:
        async with AsyncExitStack() as stack:
            running = stack.enter_context(server.running())
            result = introduce(_work(plan), running, checks)
            q = await stack.enter_async_context(Penstock(running.url))
            bench = Bench(running, q, directory, stack, checks)
            for what in options.only:
                with checks.catching(what):
                    profile = await (_drain if what == "drain" else _steady)(bench, plan)
                    profile.say(what)
                    result[what] = profile.result()
                    profile.check(what, checks)
    finally:
        keep_logs(directory, options.logs)
        shutil.rmtree(directory, ignore_errors=True)
    return result | verdict(checks)


def _work(plan: Plan) -> str:
    return (
        f"A drain of {plan.events:,} events, {KEYS:,} keys, into windows as the benchmark of draining has it, after "
        f"{plan.warm_ups} of the same in the same JVM; and {RATE:,} events a second at the setting that is the "
        f"default, after {plan.steady.warm_up_seconds:.0f} s. CPU time is what the kernel counts for each process and "
        "each thread of the JVM, without samplers. Stacks are from a second look at the same, by py-spy and JDK Flight "
        "Recorder, and each part of the picture is as wide as what it spent in the first. The rows of both drains are "
        "held against DuckDB's, and every event of the steady run is counted once."
    )


async def _drain(bench: Bench, plan: Plan) -> Profile:
    stock = Stock(plan.work, bench.directory / "events")
    await load.create(bench.q, "events", partitions=PARTITIONS)
    oracle = await bench.grow(stock, "events", plan.events)
    await bench.warm_up("penstock", "events", plan.warm_ups)
    engine, url = await bench.engine("penstock"), bench.server.url
    with Accounts(engine.pid, bench.server) as accounts:
        drained, _ = await engine.drain(Drain("profile_costs", url, "events"))
    await bench.verify("drain", drained.results[0], oracle)
    async with sampling(engine.pid, bench.directory) as samples:
        again, _ = await engine.drain(Drain("profile_stacks", url, "events"))
    await bench.verify("drain beside samplers", again.results[0], oracle)
    oracle.close()
    await bench.renew("penstock")
    cycle = await asyncio.to_thread(cycles.by_part, url, "profile_costs", _LONG_SECONDS)
    return Profile(plan.events, drained.seconds, accounts, samples, cycle)


async def _steady(bench: Bench, plan: Plan) -> Profile:
    made: list[Profile] = []

    async def observe(engine: EngineProcess) -> None:
        began = time.monotonic()
        with Accounts(engine.pid, bench.server) as accounts:
            await asyncio.sleep(plan.steady.seconds)
        seconds = time.monotonic() - began
        cycle = await asyncio.to_thread(cycles.by_part, bench.server.url, f"fresh_{STEADY.name}", seconds)
        async with sampling(engine.pid, bench.directory) as samples:
            await asyncio.sleep(plan.sampled_seconds)
        made.append(Profile(RATE * seconds, seconds, accounts, samples, cycle))

    await measure_steady(STEADY, plan.steady, bench.server, bench.directory, bench.checks, observe)
    return made[0]

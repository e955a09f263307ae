"""The command: each model at each size, raw throughput, what lanes cost, and one JSON object as the last line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from benchmarks.gate.bench import Bench
from benchmarks.gate.judge import Judgement
from benchmarks.gate.plan import CAPACITY, FULL, MODELS, QUICK, QUICK_RAW_EVENTS, RATE, RAW_EVENTS, Size
from benchmarks.log import server
from benchmarks.log.checks import Checks
from benchmarks.measuring import introduce, measured, parser, verdict

#: A run may take so much longer than the limits allow: two cycles.
_TWO_CYCLES_SECONDS = 0.5
#: Of the target, in percent, at the sizes that say so.
_EFFICIENCY = {2_000: 97.0, 5_000: 99.0}
_RAW_PER_SECOND = 30_000
_PARTS = ("models", "raw", "lanes")
_WORK = (
    f"A queue by key is filled, then a gate of {RATE} events a second and {CAPACITY} at once for each tenant opens, "
    "and all is let through into another queue. Judged on the release times that the events bear: in order, each once, "
    "never over the limit, at most two cycles longer than the limits allow. Raw throughput is with limits that never "
    "bind."
)


def run(arguments: Sequence[str]) -> int:
    """Measure what the arguments ask for; 0 if every check held."""
    return measured("gate", _measure, _parse(arguments))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser("gate", "Measure how exactly and how fast gates let events through.")
    options.add_argument("--only", choices=_PARTS, nargs="+", help="measure these parts (all, but quick without lanes)")
    names = [model.name.split()[0] for model in MODELS]
    options.add_argument("--models", choices=names, nargs="+", default=names, help="of the models, these")
    asked = options.parse_args(arguments)
    # Lanes take as long as they need to come to rest.
    asked.only = asked.only or (_PARTS[:2] if asked.quick else _PARTS)
    return asked


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    checks = Checks()
    with server.running() as running:
        result = introduce(_WORK, running, checks) | {"runs": []}
        _run_parts(Bench(running), options, result, checks)
    return result | verdict(checks)


def _run_parts(bench: Bench, options: argparse.Namespace, result: dict[str, Any], checks: Checks) -> None:
    # Spark starts, and what is compiled once is compiled.
    bench.measure(MODELS[0], Size(2, 220), "warm_up")
    if "models" in options.only:
        for place, size in enumerate(QUICK if options.quick else FULL):
            for number, model in enumerate(MODELS):
                if model.name.split()[0] not in options.models:
                    continue
                with checks.catching(f"{model.name}, {size.tenants} x {size.each}"):
                    judged = bench.measure(model, size, f"run_{place}_{number}")
                    _say(judged)
                    _check(judged, size, checks)
                    result["runs"].append(judged.document())
    if "raw" in options.only:
        with checks.catching("raw"):
            rate, cpu = bench.raw(QUICK_RAW_EVENTS if options.quick else RAW_EVENTS, "raw")
            result |= {"raw_per_s": round(rate), "raw_cpu_s_per_million": round(cpu, 2)}
            print(f"  raw: {result['raw_per_s']:,} events/s", flush=True)
            if not options.quick:  # too little to tell how fast it is
                checks.expect("raw throughput", result["raw_per_s"] >= _RAW_PER_SECOND, f"{result['raw_per_s']:,}/s")
    if "lanes" in options.only:
        with checks.catching("lanes"):
            result["lanes"] = _lanes(bench, checks)


def _lanes(bench: Bench, checks: Checks) -> dict[str, float]:
    alone, beside = bench.lanes(0, "lanes_0"), bench.lanes(9_900, "lanes_9900")
    ratio = round(beside / alone, 3)
    print(f"  100 lanes: {alone:.1f} CPU s; beside 9,900 that rest: {beside:.1f} CPU s", flush=True)
    checks.expect("lanes that rest cost nothing", ratio <= 1.15, f"{ratio} times as much CPU")
    return {"active_100_cpu_s": round(alone, 2), "active_100_of_10000_cpu_s": round(beside, 2), "ratio": ratio}


def _say(judged: Judgement) -> None:
    print(
        f"  {judged.model:17} {judged.tenants:4} tenants {judged.events:8,} events: {judged.drain_s:7.3f} s, at least "
        f"{judged.ideal_s:6.2f} s, {judged.efficiency_pct:6.2f} %, rate {judged.rate_error_pct:+.3f} %",
        flush=True,
    )


def _check(judged: Judgement, size: Size, checks: Checks) -> None:
    name = f"{judged.model}, {size.tenants} x {size.each:,}"
    checks.expect(f"{name}: in order", judged.order_violations == 0, f"{judged.order_violations} violations")
    checks.expect(f"{name}: each once", judged.lost == judged.twice == 0, f"{judged.lost} lost, {judged.twice} twice")
    checks.expect(f"{name}: never over the limit", judged.limit_exceeded == 0, f"{judged.limit_exceeded} times")
    late = judged.drain_s - judged.ideal_s
    checks.expect(f"{name}: within two cycles of the least time", late <= _TWO_CYCLES_SECONDS, f"{late:.3f} s over")
    least = _EFFICIENCY.get(size.each)
    if least is not None:
        said = f"{judged.efficiency_pct} %"
        checks.expect(f"{name}: at least {least:g} % of the ideal", judged.efficiency_pct >= least, said)
    checks.expect(f"{name}: rate within 0.5 %", abs(judged.rate_error_pct) <= 0.5, f"{judged.rate_error_pct} %")

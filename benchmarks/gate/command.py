"""``python -m benchmarks gate``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from benchmarks.gate.bench import Bench
from benchmarks.gate.evaluation import GateResult
from benchmarks.gate.plan import CAPACITY, FULL, MODELS, QUICK, QUICK_RAW_EVENTS, RATE, RAW_EVENTS, Size
from benchmarks.log import server
from benchmarks.log.checks import Checks
from benchmarks.runner import check_results, describe_run, parser, run_benchmark

#: The allowed excess over the minimum time: two cycles.
_TWO_CYCLES_SECONDS = 0.5
#: The minimum efficiency in percent, by events per tenant.
_EFFICIENCY = {2_000: 97.0, 5_000: 99.0}
_RAW_PER_SECOND = 30_000
_PARTS = ("models", "raw", "partitions")
_WORK = (
    "A queue with key partitions is filled and then drained through a gate into another queue. The gate allows each "
    f"tenant {RATE} events per second and bursts of {CAPACITY}. The release times of the events are checked: in order, "
    "each event once, never over the limit, and at most two cycles longer than the minimum time. Raw throughput is "
    "measured with limits that never bind."
)


def run(arguments: Sequence[str]) -> int:
    """Run the benchmark. Return 0 if every check passed."""
    return run_benchmark("gate", _measure, _parse(arguments))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser("gate", "Measure the accuracy and throughput of gates.")
    options.add_argument(
        "--only", choices=_PARTS, nargs="+", help="parts to measure (default: all; with --quick, all but partitions)"
    )
    names = [model.name.split()[0] for model in MODELS]
    options.add_argument("--models", choices=names, nargs="+", default=names, help="models to measure")
    parsed = options.parse_args(arguments)
    # Key partitions take long to become idle.
    parsed.only = parsed.only or (_PARTS[:2] if parsed.quick else _PARTS)
    return parsed


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    checks = Checks()
    with server.running() as running:
        result = describe_run(_WORK, running, checks) | {"runs": []}
        _run_parts(Bench(running), options, result, checks)
    return result | check_results(checks)


def _run_parts(bench: Bench, options: argparse.Namespace, result: dict[str, Any], checks: Checks) -> None:
    # Warm-up: Spark starts and the JVM compiles.
    bench.measure(MODELS[0], Size(2, 220), "warm_up")
    if "models" in options.only:
        for size_number, size in enumerate(QUICK if options.quick else FULL):
            for number, model in enumerate(MODELS):
                if model.name.split()[0] not in options.models:
                    continue
                with checks.catching(f"{model.name}, {size.tenants} x {size.each}"):
                    run = bench.measure(model, size, f"run_{size_number}_{number}")
                    _print_run(run)
                    _check(run, size, checks)
                    result["runs"].append(run.document())
    if "raw" in options.only:
        with checks.catching("raw"):
            rate, cpu = bench.raw(QUICK_RAW_EVENTS if options.quick else RAW_EVENTS, "raw")
            result |= {"raw_per_s": round(rate), "raw_cpu_s_per_million": round(cpu, 2)}
            print(f"  raw: {result['raw_per_s']:,} events/s", flush=True)
            if not options.quick:  # the workload is too small for a throughput
                checks.expect("raw throughput", result["raw_per_s"] >= _RAW_PER_SECOND, f"{result['raw_per_s']:,}/s")
    if "partitions" in options.only:
        with checks.catching("partitions"):
            result["partitions"] = _idle_partitions(bench, checks)


def _idle_partitions(bench: Bench, checks: Checks) -> dict[str, float]:
    alone, with_idle = bench.idle_partitions_cpu(0, "idle_0"), bench.idle_partitions_cpu(9_900, "idle_9900")
    ratio = round(with_idle / alone, 3)
    print(f"  100 key partitions: {alone:.1f} CPU s; with 9,900 idle ones: {with_idle:.1f} CPU s", flush=True)
    checks.expect("idle key partitions cost no CPU time", ratio <= 1.15, f"{ratio} times as much CPU")
    return {"active_100_cpu_s": round(alone, 2), "active_100_of_10000_cpu_s": round(with_idle, 2), "ratio": ratio}


def _print_run(run: GateResult) -> None:
    print(
        f"  {run.model:17} {run.tenants:4} tenants {run.events:8,} events: {run.drain_s:7.3f} s, at least "
        f"{run.ideal_s:6.2f} s, {run.efficiency_pct:6.2f} %, rate {run.rate_error_pct:+.3f} %",
        flush=True,
    )


def _check(run: GateResult, size: Size, checks: Checks) -> None:
    name = f"{run.model}, {size.tenants} x {size.each:,}"
    checks.expect(f"{name}: in order", run.order_violations == 0, f"{run.order_violations} violations")
    checks.expect(f"{name}: each once", run.lost == run.twice == 0, f"{run.lost} lost, {run.twice} twice")
    checks.expect(f"{name}: never over the limit", run.limit_exceeded == 0, f"{run.limit_exceeded} times")
    late = run.drain_s - run.ideal_s
    checks.expect(f"{name}: within two cycles of the minimum time", late <= _TWO_CYCLES_SECONDS, f"{late:.3f} s over")
    minimum = _EFFICIENCY.get(size.each)
    if minimum is not None:
        efficiency = f"{run.efficiency_pct} %"
        checks.expect(f"{name}: at least {minimum:g} % of the ideal", run.efficiency_pct >= minimum, efficiency)
    checks.expect(f"{name}: rate within 0.5 %", abs(run.rate_error_pct) <= 0.5, f"{run.rate_error_pct} %")

"""``python -m benchmarks connector``."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.connector.formats import Formats, Total
from benchmarks.drain import load
from benchmarks.drain.dataset import Dataset
from benchmarks.drain.events import Workload
from benchmarks.engines.cpu import cpu_seconds
from benchmarks.log import server
from benchmarks.log.checks import Checks
from benchmarks.runner import check_results, describe_run, parser, run_benchmark
from penstock import Penstock

#: ``penstock`` decodes JSON in the Python tasks, ``penstock_text`` with Spark's from_json and to_json.
NAMES = ("penstock", "penstock_text", "json", "parquet")
_PARTITIONS = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run."""

    quick: bool
    events: int
    rounds: int


FULL = Plan(quick=False, events=2_000_000, rounds=5)
QUICK = Plan(quick=True, events=200_000, rounds=2)


def run(arguments: Sequence[str]) -> int:
    """Run the benchmark. Return 0 if every check passed."""
    options = parser("connector", "Read and write a queue from Spark, compared with files.")
    return run_benchmark("connector", _measure, options.parse_args(arguments))


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    plan = QUICK if options.quick else FULL
    directory = Path(tempfile.mkdtemp(prefix="penstock-connector-"))
    try:
        with server.running() as running:
            dataset = Dataset(Workload(10_000), directory / "lines")
            await asyncio.to_thread(dataset.extend, plan.events)
            async with Penstock(running.url) as q:
                for queue in ("events", "written"):
                    await load.create(q, queue, partitions=_PARTITIONS)
                await load.load(q, "events", dataset.files)
            work = (
                f"Spark reads and writes {plan.events:,} events in a queue and in files. The formats alternate, "
                f"{plan.rounds} rounds after a warm-up. A read sums a typed column."
            )
            result = describe_run(work, running) | await asyncio.to_thread(_run, running, dataset, directory, plan)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return result


def _run(running: server.Server, dataset: Dataset, directory: Path, plan: Plan) -> dict[str, Any]:
    from penstock.engine.spark.spark_session import spark_session

    # Set before the JVM starts, because its Python processes inherit the variable.
    os.environ["PENSTOCK_DATABASE_URL"] = running.url
    spark = spark_session(app_name="penstock connector benchmark")
    checks = Checks()
    whole = Total(dataset.events, dataset.cents)
    rates: dict[str, dict[str, list[float]]] = {"read": {}, "write": {}}
    cpu: dict[str, dict[str, list[float]]] = {"read": {}, "write": {}}

    def record(operation: str, name: str, seconds: float, spent: float, round_number: int) -> None:
        """Record the figures, except those of the warm-up."""
        rate = dataset.events / seconds
        print(f"  {operation:<5} {name:<14} {rate:>10,.0f} events/s{'' if round_number else '  (warm-up)'}", flush=True)
        if round_number:
            rates[operation].setdefault(name, []).append(rate)
            cpu[operation].setdefault(name, []).append(spent / dataset.events * 1e6)

    try:
        formats = Formats(spark, directory, dataset.directory)
        formats.prepare()
        in_queue = 0
        for round_number in range(plan.rounds + 1):
            for name in NAMES:
                with checks.catching(f"read {name}"):
                    seconds, spent, total = _timed(running, formats.read, name)
                    checks.expect(f"read {name}: count and sum are those of the events", total == whole, str(total))
                    record("read", name, seconds, spent, round_number)
            for name in NAMES:
                with checks.catching(f"write {name}"):
                    seconds, spent, _ = _timed(running, formats.write, name)
                    in_queue += name.startswith("penstock")
                    times = in_queue if name.startswith("penstock") else 1
                    expected = Total(whole.events * times, whole.cents * times)
                    total = formats.written(name)
                    checks.expect(f"write {name}: every event is stored once", total == expected, str(total))
                    record("write", name, seconds, spent, round_number)
    finally:
        spark.stop()
    medians = {
        operation: {name: round(median(rounds)) for name, rounds in by_format.items()}
        for operation, by_format in rates.items()
    }
    return {
        "events": dataset.events,
        "read_events_per_s": medians["read"],
        "write_events_per_s": medians["write"],
        "read_ratio": _ratios(rates["read"]),
        "write_ratio": _ratios(rates["write"]),
        "cpu_s_per_million": {
            operation: {name: round(median(rounds), 2) for name, rounds in by_format.items()}
            for operation, by_format in cpu.items()
        },
        **check_results(checks),
    }


def _timed(running: server.Server, call: Callable[[str], Any], name: str) -> tuple[float, float, Any]:
    """Return the seconds, the CPU seconds of this process tree (with Spark) and PostgreSQL, and the result."""
    began, before = time.perf_counter(), cpu_seconds(psutil.Process()) + running.cpu_seconds()
    result = call(name)
    seconds = time.perf_counter() - began
    return seconds, cpu_seconds(psutil.Process()) + running.cpu_seconds() - before, result


def _ratios(rates: dict[str, list[float]]) -> dict[str, float]:
    """Return the ratios of the connector to each file format: the median of the rounds."""
    return {
        f"{ours}_over_{theirs}": round(median(a / b for a, b in zip(rates[ours], rates[theirs], strict=True)), 2)
        for ours in NAMES[:2]
        for theirs in NAMES[2:]
        if ours in rates and theirs in rates and len(rates[ours]) == len(rates[theirs])
    }

"""``python -m benchmarks joins``."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.engines.cpu import cpu_seconds
from benchmarks.joins.events import fill, has_payment
from benchmarks.joins.implementations import JoinImplementations
from benchmarks.log import server
from benchmarks.log.checks import Checks
from benchmarks.runner import check_results, describe_run, parser, run_benchmark
from penstock import Penstock


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run."""

    #: Events of each side.
    events: int
    #: Events of both sides per cycle or batch.
    batch_events: int
    rounds: int


FULL = Plan(events=200_000, batch_events=40_000, rounds=3)
QUICK = Plan(events=10_000, batch_events=10_000, rounds=1)


def run(arguments: Sequence[str]) -> int:
    """Run the benchmark. Return 0 if every check passed."""
    options = parser("joins", "Join two queues, with the state in PostgreSQL and in Spark's state stores.")
    return run_benchmark("joins", _measure, options.parse_args(arguments))


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    plan = QUICK if options.quick else FULL
    work = (
        f"{plan.events:,} orders and as many payments, joined within 10 s. Nine of ten orders have a payment. A cycle "
        f"or batch has {plan.batch_events:,} events. The implementations alternate, {plan.rounds} rounds after a "
        "warm-up. Spark's join reads and writes the same queues, with state and checkpoint on the local disk."
    )
    directory = Path(tempfile.mkdtemp(prefix="penstock-joins-"))
    try:
        with server.running() as running:
            result = describe_run(work, running)
            async with Penstock(running.url) as q:
                await fill(q, plan.events)
                for round_number in range(plan.rounds + 1):
                    for name in ("penstock", "state_store", "state_store_rocksdb"):
                        await q.queue(f"{name}_{round_number}").config(max_depth_events=None).create("hash", 4)
            return result | await asyncio.to_thread(_run, running, directory, plan)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _run(running: server.Server, directory: Path, plan: Plan) -> dict[str, Any]:
    from penstock.engine.spark.spark_session import spark_session

    # Set before the JVM starts, because its Python processes inherit the variable.
    os.environ["PENSTOCK_DATABASE_URL"] = running.url
    spark = spark_session(app_name="penstock joins benchmark")
    spark.conf.set("spark.sql.shuffle.partitions", str(os.cpu_count() or 2))
    checks, rates, cpu = Checks(), dict[str, list[float]](), dict[str, list[float]]()
    expected = [number for number in range(plan.events) if has_payment(number)]
    try:
        for round_number in range(plan.rounds + 1):
            for name, join in JoinImplementations(spark, running.url, directory, plan.batch_events).all().items():
                queue = f"{name}_{round_number}"
                with checks.catching(name):
                    began, before = time.perf_counter(), _cpu(running)
                    join(queue)
                    seconds, spent = time.perf_counter() - began, _cpu(running) - before
                    pairs = spark.read.format("penstock").options(queue=queue, columns="", fields="id bigint").load()
                    exact = sorted(row[0] for row in pairs.collect()) == expected
                    checks.expect(f"{name}: every pair is stored once", exact)
                    rate = 2 * plan.events / seconds
                    print(f"  {name:<20} {rate:>9,.0f} events/s{'' if round_number else '  (warm-up)'}", flush=True)
                    if round_number:
                        rates.setdefault(name, []).append(rate)
                        cpu.setdefault(name, []).append(spent / (2 * plan.events) * 1e6)
    finally:
        spark.stop()
    return {
        "events": 2 * plan.events,
        "pairs": len(expected),
        "events_per_s": {name: round(median(rounds)) for name, rounds in rates.items()},
        "cpu_s_per_million": {name: round(median(rounds), 2) for name, rounds in cpu.items()},
        "ratio": {
            f"penstock_over_{name}": round(median(a / b for a, b in zip(rates["penstock"], rounds, strict=True)), 2)
            for name, rounds in rates.items()
            if name != "penstock" and len(rounds) == len(rates.get("penstock", []))
        },
        **check_results(checks),
    }


def _cpu(running: server.Server) -> float:
    """Return the CPU seconds of this process tree (with Spark) and PostgreSQL so far."""
    return cpu_seconds(psutil.Process()) + running.cpu_seconds()

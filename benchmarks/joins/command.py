"""The command: a join of two queues in each way, in turns, and one JSON object as the last line."""

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
from benchmarks.joins.sides import fill, pays
from benchmarks.joins.ways import Ways
from benchmarks.log import server
from benchmarks.log.checks import Checks
from benchmarks.measuring import introduce, measured, parser, verdict
from penstock import Penstock


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run."""

    #: Of each side.
    events: int
    #: Of both, in a cycle or a batch.
    at_once: int
    rounds: int


FULL = Plan(events=200_000, at_once=40_000, rounds=3)
QUICK = Plan(events=10_000, at_once=10_000, rounds=1)


def run(arguments: Sequence[str]) -> int:
    """Measure what the arguments ask for; 0 if every check held."""
    options = parser("joins", "Join two queues, with what waits in PostgreSQL and in Spark's state stores.")
    return measured("joins", _measure, options.parse_args(arguments))


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    plan = QUICK if options.quick else FULL
    work = (
        f"{plan.events:,} orders and as many payments, one for nine of ten orders, joined within 10 s; "
        f"{plan.at_once:,} events a cycle or batch, each way {plan.rounds} times after a warm-up, in turns. Spark's "
        "own join reads and writes the same queues, with its state and its checkpoint on this machine's disk."
    )
    directory = Path(tempfile.mkdtemp(prefix="penstock-joins-"))
    try:
        with server.running() as running:
            result = introduce(work, running)
            async with Penstock(running.url) as q:
                await fill(q, plan.events)
                for turn in range(plan.rounds + 1):
                    for way in ("penstock", "state_store", "state_store_rocksdb"):
                        await q.queue(f"{way}_{turn}").config(max_depth_events=None).create("hash", 4)
            return result | await asyncio.to_thread(_run, running, directory, plan)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _run(running: server.Server, directory: Path, plan: Plan) -> dict[str, Any]:
    from penstock.engine.spark.session import spark_session

    # Read by the driver's Python, which the JVM starts: it has to be there before.
    os.environ["PENSTOCK_DATABASE_URL"] = running.url
    spark = spark_session(app_name="penstock joins benchmark")
    spark.conf.set("spark.sql.shuffle.partitions", str(os.cpu_count() or 2))
    checks, rates, cpu = Checks(), dict[str, list[float]](), dict[str, list[float]]()
    expected = [number for number in range(plan.events) if pays(number)]
    try:
        for turn in range(plan.rounds + 1):
            for name, join in Ways(spark, running.url, directory, plan.at_once).all().items():
                queue = f"{name}_{turn}"
                with checks.catching(name):
                    began, before = time.perf_counter(), _cpu(running)
                    join(queue)
                    seconds, spent = time.perf_counter() - began, _cpu(running) - before
                    found = spark.read.format("penstock").options(queue=queue, columns="", fields="id bigint").load()
                    exact = sorted(row[0] for row in found.collect()) == expected
                    checks.expect(f"{name}: every pair is there, once", exact)
                    rate = 2 * plan.events / seconds
                    print(f"  {name:<20} {rate:>9,.0f} events/s{'' if turn else '  (warming up)'}", flush=True)
                    if turn:
                        rates.setdefault(name, []).append(rate)
                        cpu.setdefault(name, []).append(spent / (2 * plan.events) * 1e6)
    finally:
        spark.stop()
    return {
        "events": 2 * plan.events,
        "pairs": len(expected),
        "events_per_s": {name: round(median(some)) for name, some in rates.items()},
        "cpu_s_per_million": {name: round(median(some), 2) for name, some in cpu.items()},
        "ratio": {
            f"penstock_over_{name}": round(median(a / b for a, b in zip(rates["penstock"], some, strict=True)), 2)
            for name, some in rates.items()
            if name != "penstock" and len(some) == len(rates.get("penstock", []))
        },
        **verdict(checks),
    }


def _cpu(running: server.Server) -> float:
    """CPU seconds of everything so far: Spark is below this process."""
    return cpu_seconds(psutil.Process()) + running.cpu_seconds()

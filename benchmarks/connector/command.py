"""The command: reading and writing by the connector beside Spark's own files, and one JSON object as the last line."""

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
from benchmarks.drain.events import Work
from benchmarks.drain.stock import Stock
from benchmarks.engines.cpu import cpu_seconds
from benchmarks.log import server
from benchmarks.log.checks import Checks
from benchmarks.measuring import introduce, measured, parser, verdict
from penstock import Penstock

#: ``penstock`` decodes JSON in the tasks; ``penstock_text`` leaves that to Spark's from_json and to_json.
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
    """Measure what the arguments ask for; 0 if every check held."""
    options = parser("connector", "Read and write a queue from Spark, beside files.")
    return measured("connector", _measure, options.parse_args(arguments))


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    plan = QUICK if options.quick else FULL
    directory = Path(tempfile.mkdtemp(prefix="penstock-connector-"))
    try:
        with server.running() as running:
            stock = Stock(Work(10_000), directory / "lines")
            await asyncio.to_thread(stock.grow, plan.events)
            async with Penstock(running.url) as q:
                for queue in ("events", "written"):
                    await load.create(q, queue, partitions=_PARTITIONS)
                await load.load(q, "events", stock.files)
            work = (
                f"{plan.events:,} events in a queue and in files, read and written by Spark, each format in turns, "
                f"{plan.rounds} times after a warm-up; a read adds up a typed column."
            )
            result = introduce(work, running) | await asyncio.to_thread(_run, running, stock, directory, plan)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return result


def _run(running: server.Server, stock: Stock, directory: Path, plan: Plan) -> dict[str, Any]:
    from penstock.engine.spark.session import spark_session

    # Read by the driver's Python, which the JVM starts: it has to be there before.
    os.environ["PENSTOCK_DATABASE_URL"] = running.url
    spark = spark_session(app_name="penstock connector benchmark")
    checks = Checks()
    whole = Total(stock.events, stock.cents)
    rates: dict[str, dict[str, list[float]]] = {"read": {}, "write": {}}
    cpu: dict[str, dict[str, list[float]]] = {"read": {}, "write": {}}

    def note(way: str, name: str, seconds: float, spent: float, turn: int) -> None:
        """Keep the figures, but not those of the first turn, which warms up."""
        rate = stock.events / seconds
        print(f"  {way:<5} {name:<14} {rate:>10,.0f} events/s{'' if turn else '  (warming up)'}", flush=True)
        if turn:
            rates[way].setdefault(name, []).append(rate)
            cpu[way].setdefault(name, []).append(spent / stock.events * 1e6)

    try:
        formats = Formats(spark, directory, stock.directory)
        formats.prepare()
        in_queue = 0
        for turn in range(plan.rounds + 1):
            for name in NAMES:
                with checks.catching(f"read {name}"):
                    seconds, spent, total = _timed(running, formats.read, name)
                    checks.expect(f"read {name}: count and sum are those of the events", total == whole, str(total))
                    note("read", name, seconds, spent, turn)
            for name in NAMES:
                with checks.catching(f"write {name}"):
                    seconds, spent, _ = _timed(running, formats.write, name)
                    in_queue += name.startswith("penstock")
                    times = in_queue if name.startswith("penstock") else 1
                    expected = Total(whole.events * times, whole.cents * times)
                    total = formats.written(name)
                    checks.expect(f"write {name}: all of it is there, once", total == expected, str(total))
                    note("write", name, seconds, spent, turn)
    finally:
        spark.stop()
    medians = {way: {name: round(median(some)) for name, some in found.items()} for way, found in rates.items()}
    return {
        "events": stock.events,
        "read_events_per_s": medians["read"],
        "write_events_per_s": medians["write"],
        "read_ratio": _ratios(rates["read"]),
        "write_ratio": _ratios(rates["write"]),
        "cpu_s_per_million": {
            way: {name: round(median(some), 2) for name, some in found.items()} for way, found in cpu.items()
        },
        **verdict(checks),
    }


def _timed(running: server.Server, act: Callable[[str], Any], name: str) -> tuple[float, float, Any]:
    """Seconds, CPU seconds of everything (Spark is below this process), and the answer."""
    began, before = time.perf_counter(), cpu_seconds(psutil.Process()) + running.cpu_seconds()
    answer = act(name)
    seconds = time.perf_counter() - began
    return seconds, cpu_seconds(psutil.Process()) + running.cpu_seconds() - before, answer


def _ratios(rates: dict[str, list[float]]) -> dict[str, float]:
    """The connector over each kind of file: the median over the turns, each compared within itself."""
    return {
        f"{ours}_over_{theirs}": round(median(a / b for a, b in zip(rates[ours], rates[theirs], strict=True)), 2)
        for ours in NAMES[:2]
        for theirs in NAMES[2:]
        if ours in rates and theirs in rates and len(rates[ours]) == len(rates[theirs])
    }

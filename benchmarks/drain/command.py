"""The command: drains workloads in order and prints one JSON object as the last line."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from benchmarks.drain import load
from benchmarks.drain.bench import Bench
from benchmarks.drain.events import DISORDER_MS, Work
from benchmarks.drain.oracle import Oracle
from benchmarks.drain.plan import FULL, PARTITIONS, QUICK, SECTIONS, Plan
from benchmarks.drain.stock import FILE_EVENTS, Stock
from benchmarks.engines.process import keep_logs
from benchmarks.log import server
from benchmarks.log.checks import Checks
from benchmarks.measuring import introduce, listed, measured, parser, verdict
from penstock import Penstock


def run(arguments: Sequence[str]) -> int:
    """Measure what the arguments ask for; 0 if every check held."""
    return measured("drain", _measure, _parse(arguments))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser("drain", "Drain a queue into windows, and check every row.")
    options.add_argument("--logs", type=Path, metavar="DIRECTORY", help="keep what the engines said there")
    some = f"some of {', '.join(SECTIONS)}, or none"
    options.add_argument("--only", type=listed(SECTIONS), default=SECTIONS, metavar="SECTIONS", help=some)
    return options.parse_args(arguments)


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    plan = QUICK if options.quick else FULL
    directory = Path(tempfile.mkdtemp(prefix="penstock-drain-"))
    try:
        async with AsyncExitStack() as stack:
            running = stack.enter_context(server.running())
            checks = Checks()
            result = _introduce(plan, running, checks)
            q = await stack.enter_async_context(Penstock(running.url))
            bench = Bench(running, q, directory, stack, checks)
            await _run_sections(bench, plan, options.only)
        result |= _summarize(bench, plan)
    finally:
        keep_logs(directory, options.logs)
        shutil.rmtree(directory, ignore_errors=True)
    return result


def _introduce(plan: Plan, running: server.Server, checks: Checks) -> dict[str, Any]:
    events = _work(plan).describe()
    work = (
        f"{plan.events:,} events of {events['json_bytes']} bytes of JSON with {events['random_bits']} random bits, "
        f"{plan.keys:,} keys, {plan.per_second:,} of them in a second of event time, up to {DISORDER_MS} ms "
        "out of order: count, sum and maximum per key and 5 s window, from a queue by hash with "
        f"{PARTITIONS} partitions into live rows, closed windows and the sink queue. "
        "Plain Spark does the same from files of NDJSON into two tables, in batches of Penstock's size and all in one. "
        f"Both have drained {plan.warm_up_events:,} events or more before, in the same JVM; a drain is timed from the "
        f"query's start to its end, and the median of {plan.rounds} counts. Every row is held against DuckDB's."
    )
    return introduce(work, running, checks) | {"events": events}


async def _run_sections(bench: Bench, plan: Plan, only: Sequence[str]) -> None:
    stock = Stock(_work(plan), bench.directory / "events")
    await load.create(bench.q, "events", partitions=PARTITIONS)
    sizes = plan.scaling if "scaling" in only else (plan.events,)
    for number, events in enumerate(sizes):
        oracle = await bench.grow(stock, "events", events)
        if number == 0:
            await _warm_up(bench, plan, stock, plain_spark="plain_spark" in only)
        if events == plan.events:
            await _compare(bench, plan, stock, oracle, plain_spark="plain_spark" in only)
            if "python_map" in only:
                await _python_map(bench, stock)
        else:
            with bench.checks.catching("scaling"):
                await bench.measure(f"scaling_{events}", "penstock", "events", stock, oracle)
        oracle.close()
    if "key_queue" in only:
        work = _work(plan, plan.lanes)
        await _other_queue(bench, "key_queue", work, plan.lane_events, partitions=None)
    if "million_keys" in only:
        work = _work(plan, plan.many_keys)
        await _other_queue(bench, "million_keys", work, plan.many_keys_events, partitions=PARTITIONS)


async def _warm_up(bench: Bench, plan: Plan, stock: Stock, *, plain_spark: bool) -> None:
    passes = -(-plan.warm_up_events // stock.events)
    print(f"warming up: {passes} drains of {stock.events:,} events", flush=True)
    with bench.checks.catching("penstock"):
        await bench.warm_up("penstock", "events", passes)
    if plain_spark:
        with bench.checks.catching("plain_spark"):
            batches = (plan.batch, None)
            await bench.warm_up("plain_spark", str(stock.directory), max(passes, 2), batches)


async def _compare(bench: Bench, plan: Plan, stock: Stock, oracle: Oracle, *, plain_spark: bool) -> None:
    """Penstock and plain Spark in turns, so that whatever the machine does meanwhile happens to both."""
    files = str(stock.directory)
    batch = plan.batch
    for _ in range(plan.rounds):
        with bench.checks.catching("penstock"):
            ours = await bench.measure("penstock", "penstock", "events", stock, oracle)
            batch = _whole_files(ours.events / max(ours.batches, 1))
        if plain_spark:
            with bench.checks.catching("plain_spark"):
                await bench.measure("plain_spark", "plain_spark", files, stock, oracle, batch=batch)
                await bench.measure("plain_spark_one_batch", "plain_spark", files, stock, oracle)


async def _python_map(bench: Bench, stock: Stock) -> None:
    with bench.checks.catching("python_map"):
        oracle = await asyncio.to_thread(Oracle, stock, times=2)
        await bench.measure("python_map", "penstock", "events", stock, oracle, python_map=True)
        oracle.close()


async def _other_queue(bench: Bench, what: str, work: Work, events: int, *, partitions: int | None) -> None:
    with bench.checks.catching(what):
        stock = Stock(work, bench.directory / what)
        await load.create(bench.q, what, partitions=partitions)
        oracle = await bench.grow(stock, what, events)
        await bench.measure(what, "penstock", what, stock, oracle)
        oracle.close()
        shutil.rmtree(stock.directory)


def _summarize(bench: Bench, plan: Plan) -> dict[str, Any]:
    rates = {what: bench.rate(what) for what in bench.drains}
    ours, same, best = (rates.get(what) for what in ("penstock", "plain_spark", "plain_spark_one_batch"))
    theirs_best = max(same or 0, best or 0)
    sizes = {
        str(events): rates.get("penstock" if events == plan.events else f"scaling_{events}") for events in plan.scaling
    }
    exact = [held for name, held in bench.checks.results.items() if "DuckDB" in name or "sink queue" in name]
    return {
        "events_per_s": ours,
        "exact": bool(exact) and all(exact) and ours is not None,
        "plain_spark_events_per_s": same,
        "plain_spark_best_events_per_s": theirs_best or None,
        "ratio": round(ours / same, 2) if ours and same else None,
        "ratio_best": round(ours / theirs_best, 2) if ours and theirs_best else None,
        "key_queue_events_per_s": rates.get("key_queue"),
        "scaling": {events: rate for events, rate in sizes.items() if rate is not None},
        "python_map_events_per_s": rates.get("python_map"),
        "million_keys_events_per_s": rates.get("million_keys"),
        "drains": {what: [one.result() for one in some] for what, some in bench.drains.items()},
        **verdict(bench.checks),
    }


def _work(plan: Plan, keys: int | None = None) -> Work:
    return Work(keys or plan.keys, plan.per_second)


def _whole_files(events: float) -> int:
    return max(round(events / FILE_EVENTS), 1) * FILE_EVENTS

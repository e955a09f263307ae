"""``python -m benchmarks drain``."""

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
from benchmarks.drain.dataset import FILE_EVENTS, Dataset
from benchmarks.drain.events import DISORDER_MS, Workload
from benchmarks.drain.oracle import Oracle
from benchmarks.drain.plan import FULL, PARTITIONS, QUICK, SECTIONS, Plan
from benchmarks.engines.process import keep_logs
from benchmarks.log import server
from benchmarks.log.checks import Checks
from benchmarks.runner import check_results, comma_separated, describe_run, parser, run_benchmark
from penstock import Penstock


def run(arguments: Sequence[str]) -> int:
    """Run the benchmark. Return 0 if every check passed."""
    return run_benchmark("drain", _measure, _parse(arguments))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser("drain", "Drain a queue into windows and check every row.")
    options.add_argument(
        "--logs", type=Path, metavar="DIRECTORY", help="copy the logs of the engines to this directory"
    )
    choices = f"comma-separated: {', '.join(SECTIONS)}, or none"
    options.add_argument("--only", type=comma_separated(SECTIONS), default=SECTIONS, metavar="SECTIONS", help=choices)
    return options.parse_args(arguments)


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    plan = QUICK if options.quick else FULL
    directory = Path(tempfile.mkdtemp(prefix="penstock-drain-"))
    try:
        async with AsyncExitStack() as stack:
            running = stack.enter_context(server.running())
            checks = Checks()
            result = _describe_run(plan, running, checks)
            q = await stack.enter_async_context(Penstock(running.url))
            bench = Bench(running, q, directory, stack, checks)
            await _run_sections(bench, plan, options.only)
        result |= _summarize(bench, plan)
    finally:
        keep_logs(directory, options.logs)
        shutil.rmtree(directory, ignore_errors=True)
    return result


def _describe_run(plan: Plan, running: server.Server, checks: Checks) -> dict[str, Any]:
    events = _workload(plan).describe()
    work = (
        f"{plan.events:,} events of {events['json_bytes']} bytes of JSON with {events['random_bits']} random bits, "
        f"{plan.keys:,} keys, {plan.per_second:,} events per second of event time, up to {DISORDER_MS} ms out of "
        "order. The query computes count, sum and maximum per key and 5 s window, from a queue with "
        f"{PARTITIONS} hash partitions into live rows, closed windows and a sink queue. Plain Spark runs the same "
        "query from NDJSON files into two tables, in batches of Penstock's size and in one batch. Both engines first "
        f"drain at least {plan.warm_up_events:,} events in the same JVM as warm-up. The time is from the start of the "
        f"query to its end, the result is the median of {plan.rounds}. Every row is compared with DuckDB's."
    )
    return describe_run(work, running, checks) | {"events": events}


async def _run_sections(bench: Bench, plan: Plan, only: Sequence[str]) -> None:
    dataset = Dataset(_workload(plan), bench.directory / "events")
    await load.create(bench.q, "events", partitions=PARTITIONS)
    sizes = plan.scaling if "scaling" in only else (plan.events,)
    for number, events in enumerate(sizes):
        oracle = await bench.extend(dataset, "events", events)
        if number == 0:
            await _warm_up(bench, plan, dataset, plain_spark="plain_spark" in only)
        if events == plan.events:
            await _compare(bench, plan, dataset, oracle, plain_spark="plain_spark" in only)
            if "python_map" in only:
                await _python_map(bench, dataset)
        else:
            with bench.checks.catching("scaling"):
                await bench.measure(f"scaling_{events}", "penstock", "events", dataset, oracle)
        oracle.close()
    if "key_queue" in only:
        workload = _workload(plan, plan.key_partitions)
        await _drain_other_queue(bench, "key_queue", workload, plan.key_queue_events, partitions=None)
    if "million_keys" in only:
        workload = _workload(plan, plan.many_keys)
        await _drain_other_queue(bench, "million_keys", workload, plan.many_keys_events, partitions=PARTITIONS)


async def _warm_up(bench: Bench, plan: Plan, dataset: Dataset, *, plain_spark: bool) -> None:
    passes = -(-plan.warm_up_events // dataset.events)
    print(f"warming up: {passes} drains of {dataset.events:,} events", flush=True)
    with bench.checks.catching("penstock"):
        await bench.warm_up("penstock", "events", passes)
    if plain_spark:
        with bench.checks.catching("plain_spark"):
            batches = (plan.batch, None)
            await bench.warm_up("plain_spark", str(dataset.directory), max(passes, 2), batches)


async def _compare(bench: Bench, plan: Plan, dataset: Dataset, oracle: Oracle, *, plain_spark: bool) -> None:
    """Alternate between Penstock and plain Spark, so that noise of the machine affects both."""
    files = str(dataset.directory)
    batch = plan.batch
    for _ in range(plan.rounds):
        with bench.checks.catching("penstock"):
            ours = await bench.measure("penstock", "penstock", "events", dataset, oracle)
            batch = _whole_files(ours.events / max(ours.batches, 1))
        if plain_spark:
            with bench.checks.catching("plain_spark"):
                await bench.measure("plain_spark", "plain_spark", files, dataset, oracle, batch=batch)
                await bench.measure("plain_spark_one_batch", "plain_spark", files, dataset, oracle)


async def _python_map(bench: Bench, dataset: Dataset) -> None:
    with bench.checks.catching("python_map"):
        oracle = await asyncio.to_thread(Oracle, dataset, times=2)
        await bench.measure("python_map", "penstock", "events", dataset, oracle, python_map=True)
        oracle.close()


async def _drain_other_queue(
    bench: Bench, name: str, workload: Workload, events: int, *, partitions: int | None
) -> None:
    with bench.checks.catching(name):
        dataset = Dataset(workload, bench.directory / name)
        await load.create(bench.q, name, partitions=partitions)
        oracle = await bench.extend(dataset, name, events)
        await bench.measure(name, "penstock", name, dataset, oracle)
        oracle.close()
        shutil.rmtree(dataset.directory)


def _summarize(bench: Bench, plan: Plan) -> dict[str, Any]:
    rates = {name: bench.rate(name) for name in bench.drains}
    ours, same_batches, one_batch = (rates.get(name) for name in ("penstock", "plain_spark", "plain_spark_one_batch"))
    theirs_best = max(same_batches or 0, one_batch or 0)
    sizes = {
        str(events): rates.get("penstock" if events == plan.events else f"scaling_{events}") for events in plan.scaling
    }
    exact = [passed for name, passed in bench.checks.results.items() if "DuckDB" in name or "sink queue" in name]
    return {
        "events_per_s": ours,
        "exact": bool(exact) and all(exact) and ours is not None,
        "plain_spark_events_per_s": same_batches,
        "plain_spark_best_events_per_s": theirs_best or None,
        "ratio": round(ours / same_batches, 2) if ours and same_batches else None,
        "ratio_best": round(ours / theirs_best, 2) if ours and theirs_best else None,
        "key_queue_events_per_s": rates.get("key_queue"),
        "scaling": {events: rate for events, rate in sizes.items() if rate is not None},
        "python_map_events_per_s": rates.get("python_map"),
        "million_keys_events_per_s": rates.get("million_keys"),
        "drains": {name: [drain.result() for drain in drains] for name, drains in bench.drains.items()},
        **check_results(bench.checks),
    }


def _workload(plan: Plan, keys: int | None = None) -> Workload:
    return Workload(keys or plan.keys, plan.per_second)


def _whole_files(events: float) -> int:
    return max(round(events / FILE_EVENTS), 1) * FILE_EVENTS

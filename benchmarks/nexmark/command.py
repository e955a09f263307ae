"""``python -m benchmarks nexmark``."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks.engines.process import keep_logs
from benchmarks.log import server
from benchmarks.log.checks import Checks
from benchmarks.nexmark import queues
from benchmarks.nexmark.answers import Answers
from benchmarks.nexmark.dataset import Dataset
from benchmarks.nexmark.events import Workload
from benchmarks.nexmark.flink_runs import FlinkRuns
from benchmarks.nexmark.measurement import Measurement, summarize
from benchmarks.nexmark.penstock_runs import PenstockRuns, parse
from benchmarks.nexmark.plan import FULL, QUERIES, QUICK, Plan, Query
from benchmarks.peers.environment import PeerUnavailable
from benchmarks.peers.process import PeerProcess
from benchmarks.runner import check_results, comma_separated, describe_run, parser, run_benchmark
from penstock import Penstock

_ENGINES = ("penstock", "flink")


def run(arguments: Sequence[str]) -> int:
    """Run the benchmark. Return 0 if every check passed."""
    return run_benchmark("nexmark", _measure, _parse(arguments))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser("nexmark", "Run the Nexmark queries with Penstock and PyFlink, and check every row.")
    options.add_argument("--events", type=int, metavar="N", help="number of events")
    options.add_argument("--rounds", type=int, metavar="N", help="measured runs of each query")
    options.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the events")
    names = tuple(QUERIES)
    choices = f"comma-separated: {names[0]} to {names[-1]}"
    options.add_argument("--only", type=comma_separated(names), default=names, metavar="QUERIES", help=choices)
    options.add_argument(
        "--engines",
        type=comma_separated(_ENGINES),
        default=_ENGINES,
        metavar="ENGINES",
        help=f"comma-separated: {', '.join(_ENGINES)}",
    )
    options.add_argument("--logs", type=Path, metavar="DIRECTORY", help="copy the logs of Flink to this directory")
    return options.parse_args(arguments)


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    plan = QUICK if options.quick else FULL
    plan = replace(plan, events=options.events or plan.events, rounds=options.rounds or plan.rounds)
    directory = Path(tempfile.mkdtemp(prefix="penstock-nexmark-"))
    try:
        async with AsyncExitStack() as stack:
            bench = _Bench(plan, Checks(), directory, stack)
            return await bench.run(options)
    finally:
        keep_logs(directory, options.logs)
        shutil.rmtree(directory, ignore_errors=True)


class _Bench:
    """One run: the queues are filled once, then each query runs with each engine."""

    def __init__(self, plan: Plan, checks: Checks, directory: Path, stack: AsyncExitStack) -> None:
        self._plan, self._checks, self._directory, self._stack = plan, checks, directory, stack

    async def run(self, options: argparse.Namespace) -> dict[str, Any]:
        running = self._stack.enter_context(server.running())
        result = describe_run(_describe_workload(self._plan), running, self._checks)
        workload = Workload(self._plan.events, options.seed)
        dataset = Dataset(workload, self._directory / "events")
        await asyncio.to_thread(dataset.write)
        q = await self._stack.enter_async_context(Penstock(running.url))
        partitions = await queues.load(q, parse(), dataset)
        await queues.create_side_input(running.url, dataset)
        answers = await asyncio.to_thread(Answers, dataset, partitions)
        self._stack.callback(answers.close)
        answers.set_append_times("bid", await asyncio.to_thread(queues.append_times, running.url, "bid"))
        peer, reason = await self._start_flink() if "flink" in options.engines else (None, "not selected")
        ours = PenstockRuns(running, q, workload, answers, self._checks, self._directory, peer)
        flink = None
        if peer is not None:
            flink = FlinkRuns(running, peer, dataset, answers, self._checks, self._directory)
        queries: dict[str, dict[str, Any]] = {}
        for name in options.only:
            query = QUERIES[name]
            queries[name] = await self._compare(query, ours if "penstock" in options.engines else None, flink)
            queries[name] |= {"rows": answers.count(name), "title": query.title, "note": query.note}
            print(f"{name}: {_describe(queries[name])}", flush=True)
        result |= {"events": workload.events, "seed": workload.seed, "queries": queries}
        result["flink"] = peer.versions if peer is not None else {"unavailable": reason}
        return result | _summarize(queries) | check_results(self._checks)

    async def _start_flink(self) -> tuple[PeerProcess | None, str]:
        try:
            log = self._directory / "flink.log"
            peer = await PeerProcess.start("flink", module="flink_sql_peer", log=log)
        except PeerUnavailable as error:
            print(f"flink is unavailable: {error}", flush=True)
            return None, str(error)
        self._stack.push_async_callback(peer.stop)
        return peer, ""

    async def _compare(self, query: Query, ours: PenstockRuns | None, flink: FlinkRuns | None) -> dict[str, Any]:
        """Warm both engines up, then alternate between them, so that noise of the machine affects both."""
        runs: dict[str, list[Measurement]] = {"penstock": [], "flink": []}
        result: dict[str, Any] = {}
        if flink is not None and query.flink_refuses is not None:
            result["flink"], flink = {"unavailable": query.flink_refuses}, None
        if ours is not None:
            with self._checks.catching(query.name):
                result["sampled_commits"] = await ours.warm_up(query, self._plan.cycles)
        if flink is not None:
            with self._checks.catching(f"{query.name} with Flink"):
                await flink.measure(query)
        for _ in range(self._plan.rounds):
            if "sampled_commits" in result and ours is not None:
                with self._checks.catching(query.name):
                    runs["penstock"].append(await ours.measure(query))
            if flink is not None:
                with self._checks.catching(f"{query.name} with Flink"):
                    runs["flink"].append(await flink.measure(query))
        result |= {engine: summarize(measured) for engine, measured in runs.items() if measured}
        if runs["penstock"] and runs["flink"]:
            rates = (result[engine]["events_per_s"] for engine in _ENGINES)
            result["ratio"] = round(next(rates) / next(rates), 3)
        if ours is not None:
            result["exact"] = bool(runs["penstock"]) and self._is_exact(query)
        return result

    def _is_exact(self, query: Query) -> bool:
        """Return whether each comparison of Penstock's rows found them equal."""
        prefix = f"{query.name}: the rows are"
        passed = [passed for name, passed in self._checks.results.items() if name.startswith(prefix)]
        return all(passed)


def _describe_workload(plan: Plan) -> str:
    workload = Workload(plan.events)
    counts = ", ".join(f"{workload.count(table):,} {table}s" for table in ("person", "auction", "bid"))
    return (
        f"{plan.events:,} events of Nexmark ({counts}) in {workload.span_seconds:g} s of event time. Each query is one "
        "statement. Penstock reads three queues with 4 partitions each and keeps its rows as a materialized view, a "
        "queue or files. PyFlink SQL reads the same events from NDJSON files, without checkpoints, with mini-batches, "
        "and writes CSV files, from which the rows go to PostgreSQL by COPY; a result that is updated is written as a "
        "changelog, and the last row of each key is copied. Both engines run each query once as warm-up in the same "
        f"JVM, then alternate: {plan.rounds} rounds. The result is the median. Penstock's rows are compared with "
        "DuckDB's at the end and after sampled commits, Flink's at the end."
    )


def _describe(result: dict[str, Any]) -> str:
    parts = [
        f"{engine} {result[engine]['events_per_s']:,} events/s"
        for engine in _ENGINES
        if "events_per_s" in result.get(engine, {})
    ]
    if "ratio" in result:
        parts.append(f"ratio {result['ratio']}")
    parts.append(f"{result['rows']:,} rows")
    if "exact" in result:
        parts.append("exact" if result["exact"] else "WRONG")
    return ", ".join(parts)


def _summarize(queries: dict[str, dict[str, Any]]) -> dict[str, Any]:
    ratios = {name: query["ratio"] for name, query in queries.items() if "ratio" in query}
    if not ratios:
        return {}
    return {
        "ratios": ratios,
        "geometric_mean_ratio": round(geometric_mean(ratios.values()), 3),
        "won": sum(ratio >= 1 for ratio in ratios.values()),
        "compared": len(ratios),
        "lowest_ratio": min(ratios.values()),
    }

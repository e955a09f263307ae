"""``python -m benchmarks windows``."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.drain import load
from benchmarks.drain.bench import Bench
from benchmarks.drain.oracle import Oracle
from benchmarks.engines.process import keep_logs
from benchmarks.log import server
from benchmarks.log.checks import Checks
from benchmarks.peers.environment import PeerUnavailable
from benchmarks.peers.process import PeerProcess
from benchmarks.runner import check_results, comma_separated, describe_run, parser, run_benchmark
from benchmarks.windows.peer_runs import Datasets, PeerRun, summary
from benchmarks.windows.plan import FULL, PARTITIONS, PEERS, QUICK, SPAN_SECONDS, Peer, Plan
from penstock import Penstock

_OURS = {"penstock": "from a queue with 8 partitions, exactly once, into live rows, closed windows and a sink queue"}
_SPARK = {"plain_spark": "file source, watermark, state store, upserts in foreachBatch; the JVM is reused"}
_NAMES = (*_OURS, *_SPARK, *(peer.key for peer in PEERS))


def run(arguments: Sequence[str]) -> int:
    """Run the benchmark. Return 0 if every check passed."""
    options = parser("windows", "Aggregate windows with Penstock and other engines, and check every row.")
    options.add_argument(
        "--logs", type=Path, metavar="DIRECTORY", help="copy the logs of the engines to this directory"
    )
    choices = f"comma-separated: {', '.join(_NAMES)}"
    options.add_argument("--only", type=comma_separated(_NAMES), default=_NAMES, metavar="ENGINES", help=choices)
    return run_benchmark("windows", _measure, options.parse_args(arguments))


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    plan, checks = QUICK if options.quick else FULL, Checks()
    directory = Path(tempfile.mkdtemp(prefix="penstock-windows-"))
    try:
        async with AsyncExitStack() as stack:
            running = stack.enter_context(server.running())
            result = describe_run(_describe_workload(plan), running, checks)
            q = await stack.enter_async_context(Penstock(running.url))
            bench = Bench(running, q, directory, stack, checks)
            result["engines"] = await _run_rounds(bench, plan, options.only)
    finally:
        keep_logs(directory, options.logs)
        shutil.rmtree(directory, ignore_errors=True)
    return result | check_results(checks)


def _describe_workload(plan: Plan) -> str:
    size = plan.size
    return (
        f"{size.events:,} events of {size.workload.describe()['json_bytes']} bytes of JSON in {SPAN_SECONDS} s of "
        f"event time, {size.keys:,} keys: count, sum and maximum per key and window of 5 s, as rows in PostgreSQL. "
        "Slow engines get fewer events and keys, with as many events per window. The engines alternate, each in one "
        f"process: {plan.rounds} rounds after {plan.warm_ups} warm-up rounds. The result is the median. Every row is "
        "compared with DuckDB's."
    )


async def _run_rounds(bench: Bench, plan: Plan, only: Sequence[str]) -> dict[str, dict[str, Any]]:
    datasets = Datasets(bench.directory)
    dataset, _ = await datasets.get(plan.size)
    oracle = await asyncio.to_thread(Oracle, dataset)
    if "penstock" in only:
        await load.create(bench.q, "events", partitions=PARTITIONS)
        await load.load(bench.q, "events", dataset.files)
    ours = {
        name: (source, batch)
        for name, source, batch in (("penstock", "events", None), ("plain_spark", str(dataset.directory), plan.batch))
        if name in only
    }
    results: dict[str, dict[str, Any]] = {}
    peer_runs: dict[str, PeerRun] = {}
    for peer in PEERS:
        if peer.key in only:
            try:
                peer_runs[peer.key] = await _start_peer(bench, plan, peer)
            except PeerUnavailable as error:
                results[peer.key] = _unavailable(peer.key, error)
    for round_number in range(-plan.warm_ups, plan.rounds):
        for name, (source, batch) in ours.items():
            with bench.checks.catching(name):
                if round_number < 0:
                    await bench.warm_up(name, source, 1, (batch,))
                else:
                    await bench.measure(name, name, source, dataset, oracle, batch=batch)
        for name, peer_run in list(peer_runs.items()):
            if round_number < -1 and peer_run.peer.divisor > 1:
                continue  # one warm-up round is enough without a JVM
            try:
                await peer_run.measure(bench, datasets, warm_up=round_number < 0)
            except PeerUnavailable as error:
                results[name] = _unavailable(name, error)
                del peer_runs[name]
    spark = {"pyspark": version("pyspark")}
    for name, rounds in bench.drains.items():
        versions = spark | ({"penstock": version("penstock")} if name in _OURS else {})
        results[name] = summary(rounds, (_OURS | _SPARK)[name], versions)
    for name, peer_run in peer_runs.items():
        results[name] = summary(peer_run.rounds, peer_run.peer.note, peer_run.process.versions)
    return {name: results[name] for name in _NAMES if name in results}


async def _start_peer(bench: Bench, plan: Plan, peer: Peer) -> PeerRun:
    process = await PeerProcess.start(peer.name, *peer.arguments, log=bench.directory / f"{peer.key}.log")
    bench.stack.push_async_callback(process.stop)
    return PeerRun(peer, process, plan.size_for(peer))


def _unavailable(name: str, error: PeerUnavailable) -> dict[str, Any]:
    print(f"{name} is unavailable: {error}", flush=True)
    return {"unavailable": str(error)}

"""The command: the same windows by Penstock and by everybody else, in turns, and one JSON object as the last line."""

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
from benchmarks.measuring import introduce, listed, measured, parser, verdict
from benchmarks.peers.environment import PeerUnavailable
from benchmarks.peers.process import PeerProcess
from benchmarks.windows.contest import Contestant, Stocks, summary
from benchmarks.windows.plan import FULL, PARTITIONS, PEERS, QUICK, SPAN_SECONDS, Peer, Plan
from penstock import Penstock

_OURS = {"penstock": "from a queue of 8 partitions, exactly once, into live rows, closed windows and a queue of them"}
_SPARK = {"plain_spark": "file source, watermark, state store, upserts in foreachBatch; the JVM is kept"}
_NAMES = (*_OURS, *_SPARK, *(peer.key for peer in PEERS))


def run(arguments: Sequence[str]) -> int:
    """Measure what the arguments ask for; 0 if every check held."""
    options = parser("windows", "Count windows by Penstock and by other engines, and check every row.")
    options.add_argument("--logs", type=Path, metavar="DIRECTORY", help="keep what the engines said there")
    some = f"some of {', '.join(_NAMES)}"
    options.add_argument("--only", type=listed(_NAMES), default=_NAMES, metavar="ENGINES", help=some)
    return measured("windows", _measure, options.parse_args(arguments))


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    plan, checks = QUICK if options.quick else FULL, Checks()
    directory = Path(tempfile.mkdtemp(prefix="penstock-windows-"))
    try:
        async with AsyncExitStack() as stack:
            running = stack.enter_context(server.running())
            result = introduce(_work(plan), running, checks)
            q = await stack.enter_async_context(Penstock(running.url))
            bench = Bench(running, q, directory, stack, checks)
            result["engines"] = await _contest(bench, plan, options.only)
    finally:
        keep_logs(directory, options.logs)
        shutil.rmtree(directory, ignore_errors=True)
    return result | verdict(checks)


def _work(plan: Plan) -> str:
    size = plan.size
    return (
        f"{size.events:,} events of {size.work.describe()['json_bytes']} bytes of JSON in {SPAN_SECONDS} s of event "
        f"time, {size.keys:,} keys: count, sum and maximum per key and window of 5 s, as rows in PostgreSQL. The slow "
        "ones get less of the same shape: fewer events and keys, as many to a window. Engines take turns, "
        f"{plan.rounds} times, after {plan.warm_ups} times that do not count, each in a process that stays; the median "
        "counts. Every row is held against DuckDB's."
    )


async def _contest(bench: Bench, plan: Plan, only: Sequence[str]) -> dict[str, dict[str, Any]]:
    stocks = Stocks(bench.directory)
    stock, _ = await stocks.get(plan.size)
    oracle = await asyncio.to_thread(Oracle, stock)
    if "penstock" in only:
        await load.create(bench.q, "events", partitions=PARTITIONS)
        await load.load(bench.q, "events", stock.files)
    ours = {
        name: (source, batch)
        for name, source, batch in (("penstock", "events", None), ("plain_spark", str(stock.directory), plan.batch))
        if name in only
    }
    results: dict[str, dict[str, Any]] = {}
    contestants: dict[str, Contestant] = {}
    for peer in PEERS:
        if peer.key in only:
            try:
                contestants[peer.key] = await _enter(bench, plan, peer)
            except PeerUnavailable as error:
                results[peer.key] = _unavailable(peer.key, error)
    for turn in range(-plan.warm_ups, plan.rounds):
        for name, (source, batch) in ours.items():
            with bench.checks.catching(name):
                if turn < 0:
                    await bench.warm_up(name, source, 1, (batch,))
                else:
                    await bench.measure(name, name, source, stock, oracle, batch=batch)
        for name, contestant in list(contestants.items()):
            if turn < -1 and contestant.peer.less > 1:
                continue  # nothing in it gets any warmer
            try:
                await contestant.measure(bench, stocks, warm_up=turn < 0)
            except PeerUnavailable as error:
                results[name] = _unavailable(name, error)
                del contestants[name]
    spark = {"pyspark": version("pyspark")}
    for name, rounds in bench.drains.items():
        versions = spark | ({"penstock": version("penstock")} if name in _OURS else {})
        results[name] = summary(rounds, (_OURS | _SPARK)[name], versions)
    for name, contestant in contestants.items():
        results[name] = summary(contestant.rounds, contestant.peer.note, contestant.process.versions)
    return {name: results[name] for name in _NAMES if name in results}


async def _enter(bench: Bench, plan: Plan, peer: Peer) -> Contestant:
    process = await PeerProcess.start(peer.name, *peer.arguments, log=bench.directory / f"{peer.key}.log")
    bench.stack.push_async_callback(process.stop)
    return Contestant(peer, process, plan.size_for(peer))


def _unavailable(name: str, error: PeerUnavailable) -> dict[str, Any]:
    print(f"{name} cannot be measured: {error}", flush=True)
    return {"unavailable": str(error)}

"""``python -m benchmarks log``."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.log import entropy, profile, server
from benchmarks.log.bench import Bench
from benchmarks.log.cells import all_cells
from benchmarks.log.checks import Checks
from benchmarks.log.held_transaction import held_transaction_ratio
from benchmarks.log.history import history_ratio
from benchmarks.log.lock_contention import lock_contention
from benchmarks.log.plan import FULL, QUICK, SECTIONS, TASKS, Plan
from benchmarks.log.prefilled_queues import DEDUP_OFF, KEYS_100, PrefilledQueues
from benchmarks.log.rates import RateTable, run_cells
from benchmarks.log.storage import bytes_per_event
from benchmarks.peers.environment import PeerUnavailable
from benchmarks.peers.process import QUEUES, PeerProcess
from benchmarks.runner import check_results, comma_separated, describe_run, parser, run_benchmark
from penstock import Penstock


def run(arguments: Sequence[str]) -> int:
    """Run the benchmark. Return 0 if every check passed."""
    return run_benchmark("log", _measure, _parse(arguments))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser("log", "Measure the throughput, storage and CPU time of the log.")
    options.add_argument(
        "--only",
        type=comma_separated(SECTIONS),
        default=SECTIONS,
        metavar="SECTIONS",
        help=f"comma-separated: {', '.join(SECTIONS)}",
    )
    options.add_argument(
        "--profile", choices=profile.names(), metavar="CELL", help="profile one cell, such as push_1000"
    )
    return options.parse_args(arguments)


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    plan = QUICK if options.quick else FULL
    checks = Checks()
    with server.running() as running:
        result = _describe_run(plan, running, checks)
        async with Penstock(running.url) as q:
            bench = Bench(running, running.url, q, plan, checks)
            if options.profile is not None:
                result |= await profile.profile_cell(bench, options.profile)
            else:
                await _run_sections(bench, options.only, result)
        deadlocks = running.deadlocks()
        checks.expect("no deadlocks", deadlocks == 0, f"{deadlocks} deadlocks")
    return result | check_results(checks)


def _describe_run(plan: Plan, running: server.Server, checks: Checks) -> dict[str, Any]:
    events = entropy.describe_events()
    rounds = f"median of {plan.rounds} rounds" if plan.rounds > 1 else "once"
    work = (
        f"An event has {events['json_bytes']} bytes of JSON and {events['random_bits']} random bits with its id, from "
        f"a generator with a fixed seed. zlib compresses the data to {events['data_zlib_bytes']} bytes and the id to "
        f"{events['id_column_zlib_bytes']}. Each cell runs for {_span(plan)} s ({rounds}). The time includes the "
        "encoding of events but not their generation. Every pushed event is read back and compared. One Python process "
        "generates the load."
    )
    return describe_run(work, running, checks) | {"events": events}


def _span(plan: Plan) -> str:
    if plan.extra_cell_seconds == plan.cell_seconds:
        return f"{plan.cell_seconds}"
    return f"{plan.cell_seconds} (push, pop_ack, peers) or {plan.extra_cell_seconds}"


async def _run_sections(bench: Bench, sections: Sequence[str], result: dict[str, Any]) -> None:
    cells = [cell for cell in all_cells() if cell.section in sections]
    prefilled = PrefilledQueues(bench)
    async with _peers(bench, "peers" in sections and bool(cells)) as (peers, unavailable):
        table = await run_cells(bench, cells, prefilled, peers)
        table.unavailable |= unavailable
        result |= table.result()
        for peer in peers:
            result["peers"][peer.name]["versions"] = peer.versions
    _summarize(table, prefilled, result)
    if "bytes_per_event" in sections:
        with bench.checks.catching("bytes_per_event"):
            result["bytes_per_event"] = await bytes_per_event(bench, prefilled)
    if "keyed_1000_worst" in sections:
        with bench.checks.catching("keyed_1000_worst"):
            result["keyed_1000_worst"] = await lock_contention(bench)
    if "history_ratio" in sections:
        with bench.checks.catching("history_ratio"):
            result["history"] = await history_ratio(bench)
            result["history_ratio"] = result["history"]["ratio"]
    if "held_transaction_ratio" in sections:
        with bench.checks.catching("held_transaction_ratio"):
            result["held_transaction"] = await held_transaction_ratio(bench)
            result["held_transaction_ratio"] = result["held_transaction"]["ratio"]


def _summarize(table: RateTable, prefilled: PrefilledQueues, result: dict[str, Any]) -> None:
    result["rounds"] = table.spread()
    cpu = result["cpu_by_cell"] = table.cpu_per_million()
    cells = {"push": "push_1000", "pop_ack": "pop_ack_1000"}
    result["cpu_s_per_million"] = {name: cpu[cell]["both"] for name, cell in cells.items() if cell in cpu}
    sizes = prefilled.bytes_per_event
    result["stock_bytes_per_event"] = {name: round(size, 2) for name, size in sizes.items()}
    if KEYS_100.name in sizes and DEDUP_OFF.name in sizes:
        result["dedup_bytes_per_event"] = round(sizes[KEYS_100.name] - sizes[DEDUP_OFF.name], 2)
    ours = {name: result[name] for name in ("push", "pop_ack") if name in result}
    result["times_the_peer"] = {
        peer: {
            operation: {
                batch: round(rate / peer_rate, 2)
                for batch, rate in rates.items()
                if (peer_rate := theirs[operation].get(batch))
            }
            for operation, rates in ours.items()
            if operation in theirs
        }
        for peer, theirs in result.get("peers", {}).items()
    }


@asynccontextmanager
async def _peers(bench: Bench, enabled: bool) -> AsyncIterator[tuple[list[PeerProcess], dict[str, str]]]:
    peers: list[PeerProcess] = []
    unavailable: dict[str, str] = {}
    try:
        for name in QUEUES if enabled else ():
            try:
                url = bench.server.create_database(f"peer_{name}")
                peers.append(await PeerProcess.start(name, url=url, tasks=TASKS))
            except PeerUnavailable as error:
                unavailable[name] = str(error)
                print(f"{name} is unavailable: {error}", flush=True)
        yield peers, unavailable
    finally:
        for peer in peers:
            await peer.stop()

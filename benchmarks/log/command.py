"""The command: what to measure, in what order, and one JSON object as the last line."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.log import entropy, profile, server
from benchmarks.log.bench import Bench
from benchmarks.log.cells import all_cells
from benchmarks.log.checks import Checks
from benchmarks.log.held import held_transaction_ratio
from benchmarks.log.history import history_ratio
from benchmarks.log.plan import FULL, QUICK, SECTIONS, TASKS, Plan
from benchmarks.log.stocks import DEDUP_OFF, LANES_100, Stocks
from benchmarks.log.storage import bytes_per_event
from benchmarks.log.table import Table, run_cells
from benchmarks.log.worst import worst_lanes
from benchmarks.measuring import introduce, listed, measured, parser, verdict
from benchmarks.peers.environment import PeerUnavailable
from benchmarks.peers.process import QUEUES, PeerProcess
from penstock import Penstock


def run(arguments: Sequence[str]) -> int:
    """Measure what the arguments ask for; 0 if every check held."""
    return measured("log", _measure, _parse(arguments))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    options = parser("log", "Measure the log and check it.")
    options.add_argument(
        "--only", type=listed(SECTIONS), default=SECTIONS, metavar="SECTIONS", help=f"some of {', '.join(SECTIONS)}"
    )
    options.add_argument("--profile", choices=profile.names(), metavar="CELL", help="one cell, e.g. push_1000")
    return options.parse_args(arguments)


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    plan = QUICK if options.quick else FULL
    checks = Checks()
    with server.running() as running:
        result = _introduce(plan, running, checks)
        async with Penstock(running.url) as q:
            bench = Bench(running, running.url, q, plan, checks)
            if options.profile is not None:
                result |= await profile.profile_cell(bench, options.profile)
            else:
                await _run_sections(bench, options.only, result)
        deadlocks = running.deadlocks()
        checks.expect("no deadlocks anywhere", deadlocks == 0, f"there were {deadlocks}")
    return result | verdict(checks)


def _introduce(plan: Plan, running: server.Server, checks: Checks) -> dict[str, Any]:
    events = entropy.describe_events()
    rounds = f"median of {plan.rounds}" if plan.rounds > 1 else "once"
    work = (
        f"Events are dicts of {events['json_bytes']} bytes of JSON, from a generator with a fixed seed, "
        f"{events['random_bits']} random bits each with the id; zlib makes {events['data_zlib_bytes']} bytes of the "
        f"data and {events['id_column_zlib_bytes']} of the id. "
        f"Each cell runs for {_span(plan)} s, {rounds}; making the events is not measured, encoding them is. "
        "What is pushed is read back and held against what was made. One Python process makes the load."
    )
    return introduce(work, running, checks) | {"events": events}


def _span(plan: Plan) -> str:
    if plan.extra_cell_seconds == plan.cell_seconds:
        return f"{plan.cell_seconds}"
    return f"{plan.cell_seconds} (push, pop_ack and the peers') or {plan.extra_cell_seconds}"


async def _run_sections(bench: Bench, sections: Sequence[str], result: dict[str, Any]) -> None:
    cells = [cell for cell in all_cells() if cell.section in sections]
    stocks = Stocks(bench)
    async with _peers(bench, "peers" in sections and bool(cells)) as (peers, unavailable):
        table = await run_cells(bench, cells, stocks, peers)
        table.unavailable |= unavailable
        result |= table.result()
        for peer in peers:
            result["peers"][peer.name]["versions"] = peer.versions
    _summarize(table, stocks, result)
    if "bytes_per_event" in sections:
        with bench.checks.catching("bytes_per_event"):
            result["bytes_per_event"] = await bytes_per_event(bench, stocks)
    if "lanes_1000_worst" in sections:
        with bench.checks.catching("lanes_1000_worst"):
            result["lanes_1000_worst"] = await worst_lanes(bench)
    if "history_ratio" in sections:
        with bench.checks.catching("history_ratio"):
            result["history"] = await history_ratio(bench)
            result["history_ratio"] = result["history"]["ratio"]
    if "held_transaction_ratio" in sections:
        with bench.checks.catching("held_transaction_ratio"):
            result["held_transaction"] = await held_transaction_ratio(bench)
            result["held_transaction_ratio"] = result["held_transaction"]["ratio"]


def _summarize(table: Table, stocks: Stocks, result: dict[str, Any]) -> None:
    result["rounds"] = table.spread()
    cpu = result["cpu_by_cell"] = table.cpu_per_million()
    asked = {"push": "push_1000", "pop_ack": "pop_ack_1000"}
    result["cpu_s_per_million"] = {name: cpu[cell]["both"] for name, cell in asked.items() if cell in cpu}
    stored = stocks.bytes_per_event
    result["stock_bytes_per_event"] = {name: round(size, 2) for name, size in stored.items()}
    if LANES_100.name in stored and DEDUP_OFF.name in stored:
        result["dedup_bytes_per_event"] = round(stored[LANES_100.name] - stored[DEDUP_OFF.name], 2)
    ours = {name: result[name] for name in ("push", "pop_ack") if name in result}
    result["times_the_peer"] = {
        peer: {
            what: {batch: round(rate / found, 2) for batch, rate in rates.items() if (found := theirs[what].get(batch))}
            for what, rates in ours.items()
            if what in theirs
        }
        for peer, theirs in result.get("peers", {}).items()
    }


@asynccontextmanager
async def _peers(bench: Bench, wanted: bool) -> AsyncIterator[tuple[list[PeerProcess], dict[str, str]]]:
    peers: list[PeerProcess] = []
    unavailable: dict[str, str] = {}
    try:
        for name in QUEUES if wanted else ():
            try:
                url = bench.server.create_database(f"peer_{name}")
                peers.append(await PeerProcess.start(name, url=url, tasks=TASKS))
            except PeerUnavailable as error:
                unavailable[name] = str(error)
                print(f"{name} cannot be measured: {error}", flush=True)
        yield peers, unavailable
    finally:
        for peer in peers:
            await peer.stop()

"""``python -m benchmarks sql``: push from SQL beside pgmq."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import count
from statistics import median
from typing import Any

import msgspec

from benchmarks.load.events import EPOCH
from benchmarks.log import server
from benchmarks.log.checks import Checks
from benchmarks.peers.environment import PeerUnavailable
from benchmarks.peers.process import PeerProcess
from benchmarks.runner import check_results, describe_run, parser, run_benchmark
from benchmarks.sql.keys import KEYS, pushes_per_second
from benchmarks.sql.latency import commit_to_visible
from benchmarks.sql.plan import BATCHES, FULL, PARTITIONS, QUICK, TASKS, Plan
from penstock import Penstock


class _EventData(msgspec.Struct):
    ts: int
    amount: int


_decoder = msgspec.json.Decoder(_EventData)


def run(arguments: Sequence[str]) -> int:
    """Run the benchmark. Return 0 if every check passed."""
    options = parser("sql", "Push from SQL, beside pgmq's send and send_batch.")
    return run_benchmark("sql", _measure, options.parse_args(arguments))


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    plan = QUICK if options.quick else FULL
    checks = Checks()
    with server.running() as running:
        result = describe_run(_describe(plan), running, checks)
        async with Penstock(running.url) as q:
            result |= await _push_rates(q, running, plan, checks)
            names = (f"sql-extra-{number}" for number in count(1))
            result["latency"] = {}
            for pause in plan.latency_pauses:
                queue = await _create(q, next(names))
                found = await commit_to_visible(q, running.url, queue, plan.latency_pushes, pause, checks)
                result["latency"][f"pause_{pause * 1000:g}_ms"] = found
                print(f"latency with a push every {pause * 1000:g} ms: {found}", flush=True)
            result["single_pushes_per_s"] = {}
            for name, key_of in KEYS.items():
                rate = await pushes_per_second(running.url, await _create(q, next(names)), key_of, plan.key_seconds)
                result["single_pushes_per_s"][name] = rate
                print(f"pushes of one event with {name}: {rate:,}/s", flush=True)
        checks.expect("no deadlocks", running.deadlocks() == 0)
    return result | check_results(checks)


def _describe(plan: Plan) -> str:
    return (
        f"{TASKS} connections push events of about 100 bytes of JSON with keys, for {plan.cell_seconds} s "
        f"({plan.rounds} rounds, the median), with asyncpg: penstock.push() and push_many() into a queue with "
        f"{PARTITIONS} partitions while a process moves them, and pgmq's client with send() and send_batch(). Each "
        "push is a transaction. Every event is read back and compared. The bytes are those of the tables after the "
        "move."
    )


async def _create(q: Penstock, name: str) -> str:
    await q.queue(name).config(max_depth_events=None, dedup_window_seconds=0).create("hash", PARTITIONS)
    return name


async def _push_rates(q: Penstock, running: server.Server, plan: Plan, checks: Checks) -> dict[str, Any]:
    for number in range(1, plan.rounds * len(BATCHES) + 1):
        await _create(q, f"sql-{number}")
    queues = (f"sql-{number}" for number in count(1))
    rates: dict[str, dict[int, list[float]]] = {}
    sizes: dict[int, float] = {}
    versions: dict[str, dict[str, str]] = {}
    peers: list[PeerProcess] = []
    try:
        ours = await PeerProcess.start("pgmq", module="sql_push_peer", url=running.url, tasks=TASKS)
        peers.append(ours)
        pgmq = await PeerProcess.start("pgmq", url=running.create_database("peer_pgmq"), tasks=TASKS)
        peers.append(pgmq)
        for _ in range(plan.rounds):
            for batch in BATCHES:
                for name, peer in (("penstock", ours), ("pgmq", pgmq)):
                    rate, response = await peer.run("push", batch, plan.cell_seconds)
                    checks.expect_none(f"{name}: as many events stored as pushed", response["problems"])
                    rates.setdefault(name, {}).setdefault(batch, []).append(rate.per_second)
                    print(
                        f"{name:8} {batch:5} per call: {rate.per_second:10,.0f} events/s, "
                        f"{response['bytes_per_event']:.1f} bytes/event",
                        flush=True,
                    )
                    if peer is ours:
                        sizes[batch] = round(response["bytes_per_event"], 1)
                        problems = await _compare(q, next(queues), batch, response)
                        checks.expect_none("penstock: each event once, intact, in order within a call", problems)
        versions = {"penstock": ours.versions, "pgmq": pgmq.versions}
    except PeerUnavailable as error:
        checks.expect("pgmq is measured in the same run", False, str(error))
    finally:
        for peer in peers:
            await peer.stop()
    medians = {name: {batch: round(median(each)) for batch, each in cells.items()} for name, cells in rates.items()}
    ratios = {
        batch: round(medians["penstock"][batch] / rate, 2)
        for batch, rate in medians.get("pgmq", {}).items()
        if batch in medians.get("penstock", {})
    }
    return {"push": medians, "times_pgmq": ratios, "bytes_per_event": sizes, "versions": versions}


async def _compare(q: Penstock, queue: str, batch: int, pushed: dict[str, Any]) -> list[str]:
    """Read a queue and compare it with the number of events that were pushed and the sum of their amounts."""
    handle = q.queue(queue).group("oracle").batch(4000).partitions(PARTITIONS).wait().timeout_millis(50)
    numbers: list[int] = []
    amount = 0
    #: The last event of each key in each call.
    last: dict[tuple[str | None, int], int] = {}
    problems: list[str] = []
    while events := await handle.pop():
        decoded = _decoder.decode_lines(b"\n".join([event.raw for event in events]))
        for event, data in zip(events, decoded, strict=True):
            number = data.ts - EPOCH
            call = (event.key, number // batch)
            if last.get(call, -1) > number:
                problems.append(f"events of key {event.key!r} in one call were read out of order")
            last[call] = number
            numbers.append(number)
            amount += data.amount
        await q.ack(events)
    if sorted(numbers) != list(range(pushed["stored"])):
        problems.append(f"{pushed['stored']} events were pushed, and {len(set(numbers))} of {len(numbers)} read differ")
    if amount != pushed["amount"]:
        problems.append(f"the sum of the pushed amounts is {pushed['amount']}, that of the read ones {amount}")
    return problems

"""The worst case for locks: every push goes to all of 1,000 lanes, from four clients at once, each in its own order."""

from __future__ import annotations

import asyncio

from benchmarks.load import drive
from benchmarks.log.bench import Bench, Kind, all_accepted, envelopes
from benchmarks.log.plan import WORST_LANES, WORST_PUSHERS
from penstock import Penstock

_KIND = Kind("worst", partitions=None, users=WORST_LANES, dedup=True)


async def worst_lanes(bench: Bench) -> float:
    """Events a second; the clients have nothing in common but the database."""
    print(
        f"lanes_1000_worst: push {WORST_LANES} dicts to {WORST_LANES} lanes at a time, {WORST_PUSHERS} clients at "
        "once, deduplication on",
        flush=True,
    )
    before = bench.server.deadlocks()
    queue = await bench.new_queue(_KIND, WORST_LANES, each_once=True)
    clients = [await Penstock(bench.url).open() for _ in range(WORST_PUSHERS)]
    try:

        async def send(task: int, events: list[dict[str, object]]) -> None:
            all_accepted(await clients[task].queue(queue.name).push(events), len(events))

        seconds = bench.plan.extra_cell_seconds
        rate = await drive.push(queue.ledger, send, envelopes, tasks=WORST_PUSHERS, seconds=seconds)
    finally:
        # A session reports its deadlocks at the latest when it ends.
        for client in clients:
            await client.close()
    await asyncio.sleep(0.2)
    deadlocks = bench.server.deadlocks() - before
    bench.checks.expect("lanes_1000_worst: no deadlocks", deadlocks == 0, f"there were {deadlocks}")
    await bench.verify("lanes_1000_worst: each event stored once, intact, in order per key", queue)
    await bench.q.queue(queue.name).delete()
    print(f"  {rate.per_second:,.0f} events/s, {deadlocks} deadlocks", flush=True)
    return round(rate.per_second)

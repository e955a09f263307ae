"""Lock contention: four clients push to all of 1,000 key partitions at once, each in its own order."""

from __future__ import annotations

import asyncio

from benchmarks.load import generator
from benchmarks.log.bench import Bench, Kind, all_accepted, envelopes
from benchmarks.log.plan import CONTENDED_KEYS, CONTENDING_CLIENTS
from penstock import Penstock

_KIND = Kind("worst", partitions=None, users=CONTENDED_KEYS, dedup=True)


async def lock_contention(bench: Bench) -> float:
    """Return the events per second of clients that share only the database."""
    print(
        f"keyed_1000_worst: push {CONTENDED_KEYS} dicts to {CONTENDED_KEYS} key partitions at a time, "
        f"{CONTENDING_CLIENTS} clients, deduplication on",
        flush=True,
    )
    before = bench.server.deadlocks()
    queue = await bench.new_queue(_KIND, CONTENDED_KEYS, each_once=True)
    clients = [await Penstock(bench.url).open() for _ in range(CONTENDING_CLIENTS)]
    try:

        async def send(task: int, events: list[dict[str, object]]) -> None:
            all_accepted(await clients[task].queue(queue.name).push(events), len(events))

        seconds = bench.plan.extra_cell_seconds
        rate = await generator.push(queue.ledger, send, envelopes, tasks=CONTENDING_CLIENTS, seconds=seconds)
    finally:
        # A session reports its deadlocks when it ends, or earlier.
        for client in clients:
            await client.close()
    await asyncio.sleep(0.2)
    deadlocks = bench.server.deadlocks() - before
    bench.checks.expect("keyed_1000_worst: no deadlocks", deadlocks == 0, f"{deadlocks} deadlocks")
    await bench.verify("keyed_1000_worst: each event stored once, intact, in order per key", queue)
    await bench.q.queue(queue.name).delete()
    print(f"  {rate.per_second:,.0f} events/s, {deadlocks} deadlocks", flush=True)
    return round(rate.per_second)

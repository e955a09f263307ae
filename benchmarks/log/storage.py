"""Bytes per event on disk."""

from __future__ import annotations

from benchmarks.log.bench import Bench
from benchmarks.log.prefilled_queues import HASH, PrefilledQueues


async def bytes_per_event(bench: Bench, prefilled: PrefilledQueues) -> float:
    """Return the growth of all Penstock tables, with TOAST and indexes, per event with an id and a key."""
    print(f"bytes_per_event: push {bench.plan.prefilled_events:,} dicts with ids and keys, 1000 at a time", flush=True)
    queue = await prefilled.get(HASH)
    await bench.verify("bytes_per_event: each event stored once, intact, in order per key", queue)
    size = prefilled.bytes_per_event[HASH.name]
    print(f"  {size:.1f} bytes per event", flush=True)
    return round(size, 2)

"""Bytes per event on disk."""

from __future__ import annotations

from benchmarks.log.bench import Bench
from benchmarks.log.stocks import HASH, Stocks


async def bytes_per_event(bench: Bench, stocks: Stocks) -> float:
    """By how much all of Penstock's tables, TOAST and indexes grew with the stock of events that have ids and keys."""
    print(f"bytes_per_event: push {bench.plan.stock:,} dicts with ids and keys, 1000 at a time", flush=True)
    queue = await stocks.get(HASH)
    await bench.verify("bytes_per_event: each event stored once, intact, in order per key", queue)
    size = stocks.bytes_per_event[HASH.name]
    print(f"  {size:.1f} bytes an event", flush=True)
    return round(size, 2)

"""Time from the commit of a push to the return of the pop that delivers its event."""

from __future__ import annotations

import asyncio
import time
from statistics import quantiles

import psycopg

from benchmarks.log.checks import Checks
from penstock import Penstock

_PUSH = "SELECT penstock.push(%s, to_jsonb(%s::int), key => %s)"


async def commit_to_visible(
    q: Penstock, url: str, queue: str, pushes: int, pause: float, checks: Checks
) -> dict[str, float]:
    """Push events one at a time with a pause between them, and return percentiles in milliseconds."""
    handle = q.queue(queue).group("latency").batch(1000).partitions(8).wait()
    committed: dict[int, float] = {}
    seen: dict[int, float] = {}

    async def read() -> None:
        while len(seen) < pushes:
            events = await handle.pop()
            now = time.perf_counter()
            for event in events:
                seen.setdefault(event.data, now)
            if events:
                await q.ack(events)

    reader = asyncio.create_task(read())
    async with await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=0) as conn:
        for number in range(pushes):
            await conn.execute(_PUSH, (queue, number, str(number % 100)))
            committed[number] = time.perf_counter()
            await asyncio.sleep(pause)
    async with asyncio.timeout(60):
        await reader
    checks.expect("latency: every event was read", seen.keys() == committed.keys())
    # The pop can return before the answer of the commit has been read.
    millis = sorted(max(seen[number] - at, 0.0) * 1000 for number, at in committed.items())
    cuts = quantiles(millis, n=100)
    return {"p50_ms": round(cuts[49], 1), "p99_ms": round(cuts[98], 1), "max_ms": round(millis[-1], 1)}

"""Loads datasets into queues, in the order of the files."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from benchmarks.log.bench import all_accepted
from penstock import Penstock

#: Events per push, as in an upload or from a busy producer.
PUSH_EVENTS = 10_000


async def create(q: Penstock, queue: str, *, partitions: int | None) -> None:
    """Create a queue with hash partitions, or with key partitions if ``partitions`` is None."""
    handle = q.queue(queue).config(dedup_window_seconds=0, max_depth_events=None)
    await handle.create("key" if partitions is None else "hash", partitions)


async def load(q: Penstock, queue: str, files: Sequence[Path]) -> int:
    """Push the files. Return the number of events."""
    handle, events = q.queue(queue), 0
    for path in files:
        lines = (await asyncio.to_thread(path.read_bytes)).splitlines(keepends=True)
        for first in range(0, len(lines), PUSH_EVENTS):
            batch = lines[first : first + PUSH_EVENTS]
            all_accepted(await handle.push_ndjson(b"".join(batch), "customer"), len(batch))
        events += len(lines)
    return events

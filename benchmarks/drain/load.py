"""Loading the log: the same lines, pushed in order, so that a partition has them as the file does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from benchmarks.log.bench import all_accepted
from penstock import Penstock

#: Lines of a push: as an upload or a busy producer would have them.
PUSH_EVENTS = 10_000


async def create(q: Penstock, queue: str, *, partitions: int | None) -> None:
    """Make a queue by hash, or by key where no number of partitions is given."""
    handle = q.queue(queue).config(dedup_window_seconds=0, max_depth_events=None)
    await handle.create("key" if partitions is None else "hash", partitions)


async def load(q: Penstock, queue: str, files: Sequence[Path]) -> int:
    """Push the files; answers how many events they had."""
    handle, events = q.queue(queue), 0
    for path in files:
        lines = (await asyncio.to_thread(path.read_bytes)).splitlines(keepends=True)
        for first in range(0, len(lines), PUSH_EVENTS):
            some = lines[first : first + PUSH_EVENTS]
            all_accepted(await handle.push_ndjson(b"".join(some), "customer"), len(some))
        events += len(lines)
    return events

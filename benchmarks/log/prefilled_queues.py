"""Prefilled queues, for pops and for storage sizes."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.log import disk
from benchmarks.log.bench import Bench, Kind, LoadedQueue
from benchmarks.log.plan import KEYS, MANY_TASKS, PARTITIONS, TASKS

HASH = Kind("hash", partitions=PARTITIONS)
KEYS_100 = Kind("keyed", partitions=None, users=KEYS, dedup=True)
DEDUP_OFF = Kind("keyed-no-dedup", partitions=None, users=KEYS, dedup=False)


@dataclass(slots=True)
class PrefilledQueues:
    """Queues that are filled on first use and kept. Each measured pop reads them with a new group."""

    bench: Bench
    bytes_per_event: dict[str, float] = field(default_factory=dict)
    _queues: dict[str, LoadedQueue] = field(default_factory=dict)
    _groups: int = 0

    async def get(self, kind: Kind, *, singly: bool = False) -> LoadedQueue:
        """Return a queue of this kind, filled in batches of 1,000 events or, ``singly``, of one event by 64 tasks."""
        name = f"{kind.name}, pushed singly" if singly else kind.name
        if name not in self._queues:
            self._queues[name] = await self._fill(name, kind, singly)
        return self._queues[name]

    def new_group(self) -> str:
        self._groups += 1
        return f"group-{self._groups}"

    async def _fill(self, name: str, kind: Kind, singly: bool) -> LoadedQueue:
        bench, plan = self.bench, self.bench.plan
        events = (
            plan.single_push_events
            if singly
            else plan.key_queue_events
            if kind.partitions is None
            else plan.prefilled_events
        )
        queue = await bench.new_queue(kind, 1 if singly else 1000)
        before = disk.stored_bytes(bench.url)
        rate = await bench.fill(queue, events, tasks=MANY_TASKS if singly else TASKS)
        size = self.bytes_per_event[name] = (disk.stored_bytes(bench.url) - before) / rate.events
        print(f"  filled a queue ({name}) with {rate.events:,} events, {size:.1f} bytes each on disk", flush=True)
        return queue

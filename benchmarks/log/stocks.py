"""Queues full of events, for the pops and to see how much they take on disk."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.log import disk
from benchmarks.log.bench import Bench, Kind, LoadedQueue
from benchmarks.log.plan import LANES, MANY_TASKS, PARTITIONS, TASKS

HASH = Kind("hash", partitions=PARTITIONS)
LANES_100 = Kind("lanes", partitions=None, users=LANES, dedup=True)
DEDUP_OFF = Kind("lanes-no-dedup", partitions=None, users=LANES, dedup=False)


@dataclass(slots=True)
class Stocks:
    """Each is filled when it is first asked for and stays; every pop that is measured reads it as a new group."""

    bench: Bench
    bytes_per_event: dict[str, float] = field(default_factory=dict)
    _queues: dict[str, LoadedQueue] = field(default_factory=dict)
    _groups: int = 0

    async def get(self, kind: Kind, *, singly: bool = False) -> LoadedQueue:
        """A queue of that kind, pushed to 1,000 events at a time or, by 64 tasks, singly."""
        name = f"{kind.name}, pushed singly" if singly else kind.name
        if name not in self._queues:
            self._queues[name] = await self._fill(name, kind, singly)
        return self._queues[name]

    def new_group(self) -> str:
        self._groups += 1
        return f"group-{self._groups}"

    async def _fill(self, name: str, kind: Kind, singly: bool) -> LoadedQueue:
        bench, plan = self.bench, self.bench.plan
        events = plan.single_stock if singly else plan.lane_stock if kind.partitions is None else plan.stock
        queue = await bench.new_queue(kind, 1 if singly else 1000)
        before = disk.stored_bytes(bench.url)
        rate = await bench.fill(queue, events, tasks=MANY_TASKS if singly else TASKS)
        size = self.bytes_per_event[name] = (disk.stored_bytes(bench.url) - before) / rate.events
        print(f"  filled a queue ({name}) with {rate.events:,} events, {size:.1f} bytes each on disk", flush=True)
        return queue

"""Paired comparison of two queues on a noisy machine: they are loaded alternately, and adjacent runs are compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.load.ledger import Reading
from benchmarks.load.meter import Rate
from benchmarks.log.bench import Bench, LoadedQueue
from benchmarks.log.plan import TASKS

GROUP = "paired-runs"


@dataclass(slots=True)
class Side:
    """One side of the comparison: a queue, a client of its database, and the rates of each run."""

    bench: Bench
    queue: LoadedQueue
    batch: int
    pushes: list[float] = field(default_factory=list)
    pops: list[float] = field(default_factory=list)
    seconds: float = 0.0
    reading: Reading = field(init=False)

    def __post_init__(self) -> None:
        self.reading = Reading(self.queue.ledger)

    async def run(self, seconds: float) -> None:
        """Push at full speed for a time, then pop and acknowledge most of the unread events."""
        pushed = await self.bench.push(self.queue, tasks=TASKS, seconds=seconds)
        # Some events stay, so that no timed pop is empty.
        popped = await self._pop(self._unread() * 9 // 10)
        self.pushes.append(pushed.per_second)
        self.pops.append(popped.per_second)
        self.seconds += pushed.seconds + popped.seconds

    async def finish(self) -> list[str]:
        """Pop the rest, and return the problems of all popped events."""
        await self._pop(self._unread())
        return self.reading.finish()

    def _unread(self) -> int:
        return len(self.queue.ledger) - self.reading.events

    async def _pop(self, limit: int) -> Rate:
        rate, stamps = await self.bench.pop(self.queue, GROUP, batch=self.batch, tasks=TASKS, seconds=60.0, limit=limit)
        self.reading.add(stamps)
        return rate


async def run_alternating(one: Side, other: Side, rounds: int, seconds: float) -> None:
    """Run both sides repeatedly. The side that goes first alternates."""
    for number in range(rounds):
        for side in (one, other) if number % 2 == 0 else (other, one):
            await side.run(seconds)


def compare(slower: Side, faster: Side) -> dict[str, Any]:
    """Return the ratios of the throughput of both sides: the median of all runs, and of the last third."""
    push = [a / b for a, b in zip(slower.pushes, faster.pushes, strict=True)]
    pop = [a / b for a, b in zip(slower.pops, faster.pops, strict=True)]
    late = -max(len(push) // 3, 1)
    return {
        "ratio": round(min(median(push), median(pop)), 3),
        "push": round(median(push), 3),
        "pop_ack": round(median(pop), 3),
        "late_push": round(median(push[late:]), 3),
        "late_pop_ack": round(median(pop[late:]), 3),
        "turns": len(push),
        "push_per_second": [round(median(slower.pushes)), round(median(faster.pushes))],
        "pop_ack_per_second": [round(median(slower.pops)), round(median(faster.pops))],
    }

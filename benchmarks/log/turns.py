"""Comparing two queues on a noisy machine: they take turns, and each turn is compared with its neighbour."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.load.ledger import Reading
from benchmarks.load.meter import Rate
from benchmarks.log.bench import Bench, LoadedQueue
from benchmarks.log.plan import TASKS

GROUP = "turns"


@dataclass(slots=True)
class Side:
    """One side of the comparison: a queue, a client of its database, and the results of each turn."""

    bench: Bench
    queue: LoadedQueue
    batch: int
    pushes: list[float] = field(default_factory=list)
    pops: list[float] = field(default_factory=list)
    seconds: float = 0.0
    reading: Reading = field(init=False)

    def __post_init__(self) -> None:
        self.reading = Reading(self.queue.ledger)

    async def turn(self, seconds: float) -> None:
        """Push at full speed for some seconds, then pop and acknowledge as many events."""
        pushed = await self.bench.push(self.queue, tasks=TASKS, seconds=seconds)
        # A little is left, so that no task finds nothing while the clock runs.
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

    async def _pop(self, most: int) -> Rate:
        rate, stamps = await self.bench.pop(self.queue, GROUP, batch=self.batch, tasks=TASKS, seconds=60.0, most=most)
        self.reading.add(stamps)
        return rate


async def take_turns(one: Side, other: Side, turns: int, seconds: float) -> None:
    """Now one goes first, now the other."""
    for turn in range(turns):
        for side in (one, other) if turn % 2 == 0 else (other, one):
            await side.turn(seconds)


def compare(slower: Side, faster: Side) -> dict[str, Any]:
    """The speed of one side over that of the other: the median over the turns, and of the last third of them."""
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

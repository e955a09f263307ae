"""Soak test: after all operations at once, every event is completed once or a dead letter, in each group.

PENSTOCK_TEST_SOAK_SECONDS sets the duration.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from penstock.core.clock import Clock
from penstock.log.dead_letters.dead_letter import DEAD_LETTER_HEADER, DeadLetterFilter
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.log.read.ack import EventStatus
from tests.log.logs import QUEUE, drain, lag, letters, pop, push, roll

SECONDS = float(os.environ.get("PENSTOCK_TEST_SOAK_SECONDS", "4"))
LEASE = 60.0
GROUPS = ("workers", "audit")
KEYS = [f"key {i}" for i in range(5)]


class Soak:
    """Producers, consumers and operators on two logs, and their results."""

    def __init__(self, logs: list[Log], clock: Clock, seed: int) -> None:
        self.logs = logs
        self.clock = clock
        self.chance = random.Random(seed)
        self.pushed: dict[str, list[int]] = {key: [] for key in KEYS}
        self.completed: dict[str, list[Event]] = {group: [] for group in GROUPS}
        self.is_over = False

    def log(self) -> Log:
        return self.chance.choice(self.logs)

    async def produce(self, key: str) -> None:
        number = KEYS.index(key)
        while not self.is_over:
            size = self.chance.choice([1, 1, 1, 5])
            numbers = [number + len(KEYS) * i for i in range(size)]
            await push(self.log(), numbers, key=key)
            self.pushed[key] += numbers
            number += len(KEYS) * size

    async def consume(self, group: str) -> None:
        while not self.is_over:
            batch, partitions = self.chance.randint(1, 12), self.chance.randint(1, 3)
            events = await pop(self.log(), group=group, batch=batch, partitions=partitions, wait_seconds=0.05)
            by_partition: dict[int, list[Event]] = {}
            for event in events:
                by_partition.setdefault(event.partition_id, []).append(event)
            for some in by_partition.values():
                await self._ack(group, some)

    async def _ack(self, group: str, events: list[Event]) -> None:
        """Complete some events, and perhaps ack the next with another status. The others get no ack."""
        done = self.chance.randint(0, len(events))
        said = [EventStatus(event, "completed") for event in events[:done]]
        status = self.chance.choice(["completed", "failed", "retry", "dead_letter", None])
        if done < len(events) and status is not None:
            said.append(EventStatus(events[done], status, "why"))
        results = await self.log().ack_each(said)
        for acked, result in zip(said, results, strict=True):
            if acked.status == "completed" and result and not result.noop:
                self.completed[group].append(acked.event)

    async def now_and_then(self, act: Callable[[], Awaitable[object]], seconds: float) -> None:
        while not self.is_over:
            await asyncio.sleep(self.chance.random() * 2 * seconds)
            await act()

    async def repartition(self) -> None:
        partitions = self.chance.choice([None, 1, 3])
        await self.log().repartition(QUEUE, "key" if partitions is None else "hash", partitions)

    async def pass_time(self) -> None:
        self.clock.advance(LEASE + 1)

    async def run(self) -> None:
        tasks = [
            *(self.produce(key) for key in KEYS),
            *(self.consume(group) for group in GROUPS for _ in range(3)),
            self.now_and_then(lambda: roll(self.log()), 0.2),
            self.now_and_then(lambda: self.log().upkeep(), 0.1),
            self.now_and_then(lambda: self.log().redrive(DeadLetterFilter(queue=QUEUE), limit=5), 0.2),
            self.now_and_then(self.repartition, 0.3),
            self.now_and_then(self.pass_time, 0.3),
        ]
        running = [asyncio.create_task(task) for task in tasks]
        done, _ = await asyncio.wait(running, timeout=SECONDS, return_when=asyncio.FIRST_EXCEPTION)
        self.is_over = True
        for task in done:
            task.result()
        await asyncio.gather(*running)

    async def finish(self) -> None:
        await self.pass_time()
        for group in GROUPS:
            self.completed[group] += await drain(self.log(), group=group)


@pytest.mark.slow
@pytest.mark.timeout(120 + 5 * SECONDS)
@pytest.mark.parametrize("seed", [1, 2])
async def test_every_event_is_completed_or_a_dead_letter(log: Log, other_log: Log, clock: Clock, seed: int) -> None:
    options = {"retry_limit": 2, "retry_delay_ms": 20, "lease_seconds": LEASE}
    await log.configure(QUEUE, options)
    for group in GROUPS:
        await log.subscribe(QUEUE, group)
    soak = Soak([log, other_log], clock, seed)
    await soak.run()
    await soak.finish()
    everything = sorted(number for numbers in soak.pushed.values() for number in numbers)
    assert len(everything) > 100
    for group in GROUPS:
        # A redriven event is completed instead of its dead letter.
        completed = Counter(event.data for event in soak.completed[group])
        dead = Counter(letter.data for letter in await letters(log, group=group))
        assert not completed - Counter(everything), "an event was completed twice"
        assert not Counter(everything) - completed - dead, "an event is lost"
        assert sorted((completed + dead).elements()) == everything
        for key in KEYS:
            mine = [e.data for e in soak.completed[group] if e.key == key and DEAD_LETTER_HEADER not in e.headers]
            assert mine == sorted(mine), f"{group}: the events of {key} are out of order"
        assert await lag(log, group=group) == 0

"""A producer far faster than its consumer, for as long as it likes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx
import psutil
import pytest

from penstock import Penstock
from tests.server.serving import Serving, serving

QUEUE = "orders"
LIMIT = 2_000
BATCH = 50
DRAIN_PER_SECOND = 1_000


@dataclass
class Producer:
    """Pushes ten times what is drained, if it is let; when it is told to wait, it waits as long as it was told."""

    accepted: list[int] = field(default_factory=list)
    refusals: list[int] = field(default_factory=list)
    next: int = 0

    async def run(self, http: httpx.AsyncClient, until: float) -> None:
        while time.monotonic() < until:
            first, self.next = self.next, self.next + BATCH
            numbers = range(first, first + BATCH)
            while not await self._push(http, numbers):
                pass
            self.accepted += numbers
            await asyncio.sleep(BATCH / (10 * DRAIN_PER_SECOND))

    async def _push(self, http: httpx.AsyncClient, numbers: range) -> bool:
        body = "\n".join(f'{{"n":{n}}}' for n in numbers)
        answer = await http.post(
            f"/v1/queues/{QUEUE}/events", content=body, headers={"Content-Type": "application/x-ndjson"}
        )
        if answer.status_code == 200:
            assert answer.json()["accepted"] == len(numbers)
            return True
        assert answer.status_code == 429, answer.text
        wait = int(answer.headers["retry-after"])
        assert 1 <= wait <= 30
        assert answer.json()["depth"] + len(numbers) > LIMIT * 0.9
        self.refusals.append(wait)
        await asyncio.sleep(wait)
        return False


async def consume(q: Penstock, seen: Counter[int], finished: asyncio.Event) -> None:
    """Take events at a steady rate until there are no more."""
    reader = q.queue(QUEUE).group("workers").batch(100)
    while True:
        events = await reader.pop()
        if not events and finished.is_set():
            return
        seen.update(event.data["n"] for event in events)
        await q.ack(events)
        await asyncio.sleep(max(len(events), 10) / DRAIN_PER_SECOND)


async def overload(url: str, server: Serving, seconds: float) -> tuple[list[int], Counter[int], list[int], int, int]:
    process = psutil.Process(server.process.pid)
    producers = [Producer(next=n * 10_000_000) for n in range(4)]
    seen: Counter[int] = Counter()
    finished = asyncio.Event()
    highest = 0
    async with Penstock(url) as q, httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        await q.queue(QUEUE).config(max_depth_events=LIMIT).create(partitions=4)
        await q.queue(QUEUE).group("workers").pop()
        # Warm, so that what it needs anyhow is there; nobody reads yet, so it must not fill the queue.
        for first in range(10**9, 10**9 + LIMIT // 2, BATCH):
            assert await Producer()._push(http, range(first, first + BATCH))
        before = process.memory_info().rss
        until = time.monotonic() + seconds

        async def watch() -> int:
            most = deepest = 0
            while not finished.is_set():
                most = max(most, process.memory_info().rss)
                deepest = max(deepest, await q.queue(QUEUE).group("workers").lag())
                await asyncio.sleep(0.1)
            nonlocal highest
            highest = deepest
            return most

        watching = asyncio.create_task(watch())
        pushing = [asyncio.create_task(each.run(http, until)) for each in producers]
        # The consumer stands still for the first half.
        await asyncio.sleep(seconds / 2)
        consuming = asyncio.create_task(consume(q, seen, finished))
        await asyncio.gather(*pushing)
        finished.set()
        await consuming
        grown = await watching - before
    accepted = [n for each in producers for n in each.accepted]
    return accepted, seen, [wait for each in producers for wait in each.refusals], grown, highest


async def check(url: str, seconds: float) -> None:
    with serving(url, ["--request-log", "none"]) as server:
        accepted, seen, refusals, grown, highest = await overload(url, server, seconds)
    warm = {n for n in seen if n >= 10**9}
    assert {n: times for n, times in seen.items() if n not in warm} == dict.fromkeys(accepted, 1)
    assert all(times == 1 for times in seen.values())
    assert refusals
    assert highest <= LIMIT + 4 * BATCH
    assert grown < 32 << 20


@pytest.mark.slow
async def test_ten_times_too_much_is_taken_as_fast_as_it_is_drained(database_url: str) -> None:
    await check(database_url, 6)


@pytest.mark.chaos
async def test_ten_times_too_much_for_half_a_minute(database_url: str) -> None:
    await check(database_url, 30)

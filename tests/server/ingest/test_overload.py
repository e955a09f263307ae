"""A producer that is ten times faster than its consumer."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx
import psutil
import pytest

from penstock import Penstock
from tests.server.server_process import RunningServer, run_server

QUEUE = "orders"
LIMIT = 2_000
BATCH = 50
DRAIN_PER_SECOND = 1_000


@dataclass
class Producer:
    """Pushes ten times as fast as the consumer reads, and waits when it is told to."""

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
        response = await http.post(
            f"/v1/queues/{QUEUE}/events", content=body, headers={"Content-Type": "application/x-ndjson"}
        )
        if response.status_code == 200:
            assert response.json()["accepted"] == len(numbers)
            return True
        assert response.status_code == 429, response.text
        wait = int(response.headers["retry-after"])
        assert 1 <= wait <= 30
        assert response.json()["depth"] + len(numbers) > LIMIT * 0.9
        self.refusals.append(wait)
        await asyncio.sleep(wait)
        return False


async def consume(q: Penstock, seen: Counter[int], finished: asyncio.Event) -> None:
    """Consume events at a steady rate until there are no more."""
    reader = q.queue(QUEUE).group("workers").batch(100)
    while True:
        events = await reader.pop()
        if not events and finished.is_set():
            return
        seen.update(event.data["n"] for event in events)
        await q.ack(events)
        await asyncio.sleep(max(len(events), 10) / DRAIN_PER_SECOND)


async def overload(
    url: str, server: RunningServer, seconds: float
) -> tuple[list[int], Counter[int], list[int], int, int]:
    process = psutil.Process(server.process.pid)
    producers = [Producer(next=n * 10_000_000) for n in range(4)]
    seen: Counter[int] = Counter()
    finished = asyncio.Event()
    highest = 0
    async with Penstock(url) as q, httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        await q.queue(QUEUE).config(max_depth_events=LIMIT).create(partitions=4)
        await q.queue(QUEUE).group("workers").pop()
        # Warm up, so that memory growth is not due to the first requests. It must not fill the queue.
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
        # The consumer starts after half of the time.
        await asyncio.sleep(seconds / 2)
        consuming = asyncio.create_task(consume(q, seen, finished))
        await asyncio.gather(*pushing)
        finished.set()
        await consuming
        grown = await watching - before
    accepted = [n for each in producers for n in each.accepted]
    return accepted, seen, [wait for each in producers for wait in each.refusals], grown, highest


async def check(url: str, seconds: float) -> None:
    with run_server(url, ["--request-log", "none"]) as server:
        accepted, seen, refusals, grown, highest = await overload(url, server, seconds)
    warm = {n for n in seen if n >= 10**9}
    assert {n: times for n, times in seen.items() if n not in warm} == dict.fromkeys(accepted, 1)
    assert all(times == 1 for times in seen.values())
    assert refusals
    assert highest <= LIMIT + 4 * BATCH
    assert grown < 32 << 20


@pytest.mark.slow
async def test_overload_is_accepted_at_the_rate_of_consumption(database_url: str) -> None:
    await check(database_url, 6)


@pytest.mark.long
async def test_long_overload_is_accepted_at_the_rate_of_consumption(database_url: str) -> None:
    await check(database_url, 30)

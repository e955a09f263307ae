"""A server that is killed under load: events are stored once and completed once."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import Counter

import pytest

from penstock import Penstock
from tests.client.conditions import TIMEOUT_SECONDS

pytestmark = pytest.mark.timeout(120)


class ServerProcess:
    """A server process that can be killed and restarted at the same address."""

    def __init__(self, database_url: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._environment = {**os.environ, "PENSTOCK_DATABASE_URL": database_url}
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "penstock", "serve", "--port", str(self._port), "--request-log", "none"]
        return subprocess.Popen(command, env=self._environment, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        """Kill the process and start another."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process = self._start()

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(TIMEOUT_SECONDS)


@pytest.mark.slow
async def test_every_event_is_stored_once_and_completed_once(database_url: str) -> None:
    server = ServerProcess(database_url)
    try:
        async with Penstock(server.url, retry_seconds=60) as q:
            await q.queue("orders").config(lease_seconds=120).create("hash", 4)
            sent = asyncio.Event()
            pushing = [asyncio.create_task(produce(q, producer, sent)) for producer in range(4)]
            await sent.wait()
            server.kill()
            accepted = [number for numbers in await asyncio.gather(*pushing) for number in numbers]

            halfway = asyncio.Event()
            consuming = [asyncio.create_task(consume(q, len(accepted), halfway)) for _ in range(2)]
            await halfway.wait()
            server.kill()
            completed: Counter[int] = Counter()
            for done in await asyncio.gather(*consuming):
                completed += done

            stored = [event.data for event in await q.queue("orders").browse(limit=10_000)]
            assert Counter(stored) == Counter(accepted)
            # The leases last two minutes, so the events of the killed server were redelivered without waiting.
            assert set(completed) == set(accepted)
            assert await q.queue("orders").group("g").lag() == 0
    finally:
        server.end()


async def produce(q: Penstock, producer: int, sent: asyncio.Event) -> list[int]:
    """Push fifty small batches; return the accepted numbers."""
    accepted: list[int] = []
    for batch in range(50):
        numbers = [producer * 1_000 + batch * 5 + n for n in range(5)]
        result = await q.queue("orders").push([{"data": number} for number in numbers])
        assert result.accepted == 5
        accepted += numbers
        if batch == 15:
            sent.set()
    return accepted


async def consume(q: Penstock, until: int, halfway: asyncio.Event) -> Counter[int]:
    """Pop and complete until the group has no lag; return the completed numbers."""
    completed: Counter[int] = Counter()
    orders = q.queue("orders").group("g")
    while True:
        events = await orders.batch(20).partitions(4).wait().timeout_millis(500).pop()
        results = await q.ack(events)
        completed.update(event.data for event, result in zip(events, results, strict=True) if result)
        if completed.total() > until // 4:
            halfway.set()
        if not events and await orders.lag() == 0:
            return completed

"""Accepted events are stored exactly once, whatever process is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from penstock import Penstock
from penstock.db.embedded import server as embedded
from penstock.db.embedded.server import EmbeddedPostgres
from tests.server.server_process import RunningServer, run_server

QUEUE = "orders"
BATCH = 5


class Stage:
    """A server and its PostgreSQL. Each can be killed and restarts on the same address."""

    def __init__(self, data_dir: Path, stack: ExitStack, workers: int) -> None:
        self._data_dir = data_dir
        self._stack = stack
        self._workers = str(workers)
        self.postgres = stack.enter_context(EmbeddedPostgres(data_dir))
        self._running: RunningServer | None = None
        self.start_server("0")

    @property
    def running(self) -> RunningServer:
        assert self._running is not None
        return self._running

    def start_server(self, port: str) -> None:
        environ = {"PENSTOCK_REQUEST_LOG": "none"}
        options = ["--port", port, "--workers", self._workers]
        self._running = self._stack.enter_context(run_server(self.postgres.url, options, environ))

    def kill_server(self) -> None:
        """Kill every process of the server, and start it again on the same port."""
        port = str(urlsplit(self.running.url).port)
        family = [psutil.Process(self.running.process.pid), *psutil.Process(self.running.process.pid).children()]
        for process in family:
            process.kill()
        self.running.process.wait()
        psutil.wait_procs(family, timeout=20)
        self.start_server(port)

    def kill_worker(self) -> None:
        """Kill the worker with the most client connections; its supervisor starts another."""
        max(psutil.Process(self.running.process.pid).children(), key=_connections).kill()

    def kill_postgres(self) -> None:
        pid = embedded.status(self._data_dir).pid
        assert pid is not None
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                os.kill(process.pid, signal.SIGKILL)
        self.postgres.start()


def _connections(process: psutil.Process) -> int:
    return sum(each.status == psutil.CONN_ESTABLISHED for each in process.net_connections("tcp"))


class Load:
    """Producers that push until they are stopped, and retry failed requests."""

    def __init__(self, push: Callable[[str, list[str]], Awaitable[None]], producers: int = 4) -> None:
        self._push = push
        self._stop = asyncio.Event()
        self.pushed: Counter[str] = Counter()
        self._tasks = [asyncio.create_task(self._produce(number)) for number in range(producers)]

    async def _produce(self, producer: int) -> None:
        request = 0
        while not self._stop.is_set():
            name = f"{producer}-{request}"
            events = [f"{name}-{each}" for each in range(BATCH)]
            await self._push(name, events)
            self.pushed.update(events)
            request += 1

    async def progress(self, more: int) -> None:
        goal = self.pushed.total() + more * BATCH
        while self.pushed.total() < goal:
            done, _ = await asyncio.wait(self._tasks, timeout=0.02, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)


async def stored(url: str) -> Counter[str]:
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        response = await http.get(f"/v1/queues/{QUEUE}/events", params={"limit": 10_000})
        assert response.status_code == 200, response.text
        document = response.json()
        assert not document["more"]
        return Counter(event["data"] for event in document["events"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "workers"), [("worker", 2), ("server", 1), ("postgres", 1)], ids=["worker", "server", "postgres"]
)
async def test_accepted_events_are_stored_exactly_once_after_a_kill(data_dir: Path, victim: str, workers: int) -> None:
    repeated = 0
    with ExitStack() as stack:
        stage = await asyncio.to_thread(Stage, data_dir, stack, workers)
        async with httpx.AsyncClient(base_url=stage.running.url, timeout=30) as http:

            async def push(name: str, events: list[str]) -> None:
                nonlocal repeated
                batch = [{"data": event, "key": name} for event in events]
                while True:
                    with suppress(httpx.TransportError):
                        path, headers = f"/v1/queues/{QUEUE}/events", {"Idempotency-Key": name}
                        response = await http.post(path, json=batch, headers=headers)
                        if response.status_code == 200:
                            return
                        assert response.status_code in (429, 503), response.text
                    repeated += 1
                    await asyncio.sleep(0.02)

            assert (await http.put(f"/v1/queues/{QUEUE}")).status_code == 200
            load = Load(push)
            for _ in range(2):
                await load.progress(10)
                await asyncio.to_thread(getattr(stage, f"kill_{victim}"))
            await load.progress(10)
            await load.stop()
        # The server retries when its database dies. When the server dies, the client must retry.
        assert repeated or victim == "postgres"
        assert await stored(stage.running.url) == load.pushed


@pytest.mark.slow
async def test_client_retries_while_the_server_is_killed(data_dir: Path) -> None:
    with ExitStack() as stack:
        stage = await asyncio.to_thread(Stage, data_dir, stack, 1)
        async with Penstock(stage.running.url) as client:
            await client.queue(QUEUE).create()

            async def push(name: str, events: list[str]) -> None:
                await client.queue(QUEUE).push([{"data": event, "key": name} for event in events])

            load = Load(push)
            for victim in (stage.kill_server, stage.kill_postgres):
                await load.progress(10)
                await asyncio.to_thread(victim)
            await load.progress(10)
            await load.stop()
        assert await stored(stage.running.url) == load.pushed

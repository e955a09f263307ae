"""A graceful stop answers long polls and keeps accepted events."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

import httpx
import pytest

from tests.server.server_process import run_server

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("workers", [1, 2])
async def test_graceful_stop_answers_long_polls_and_keeps_accepted_events(
    http: httpx.AsyncClient, shared_url: str, workers: int
) -> None:
    queue = f"stopped-{workers}"
    accepted: Counter[str] = Counter()
    enough = asyncio.Event()
    options = ["--workers", str(workers)]
    with run_server(shared_url, options, {"PENSTOCK_REQUEST_LOG": "none"}) as running:
        async with httpx.AsyncClient(base_url=running.url, timeout=60) as stopping:
            assert (await stopping.put(f"/v1/queues/{queue}")).status_code == 200
            path, body = f"/v1/queues/{queue}/groups/nobody/pop", {"wait_seconds": 50, "partition": "nothing"}
            polls = [asyncio.create_task(stopping.post(path, json=body)) for _ in range(4)]

            async def produce(producer: int) -> None:
                number = 0
                with suppress(httpx.TransportError):
                    while True:
                        event, number = f"{producer}-{number}", number + 1
                        pushed = await stopping.post(f"/v1/queues/{queue}/events", json={"data": event, "key": "a"})
                        if pushed.status_code != 200:
                            return
                        accepted[event] += 1
                        if accepted.total() >= 50:
                            enough.set()

            producers = [asyncio.create_task(produce(number)) for number in range(4)]
            await enough.wait()
            running.process.terminate()
            for response in await asyncio.gather(*polls):
                assert (response.status_code, response.json()["events"]) == (200, [])
            await asyncio.gather(*producers)
        assert await asyncio.to_thread(running.process.wait, 20) == 0
    events = (await http.get(f"/v1/queues/{queue}/events", params={"limit": 10_000})).json()["events"]
    stored = Counter(event["data"] for event in events)
    assert not accepted - stored, "accepted events were lost"
    assert max(stored.values()) == 1

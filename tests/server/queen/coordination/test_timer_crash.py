"""Every timer pushes its event exactly once, whenever the server is killed."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from typing import Any

import httpx
import psutil
import psycopg

from tests import servers
from tests.server.server_process import RunningServer, run_server
from tests.servers import Server

QUEUE = "orders"
TIMERS = 300


def kill(running: RunningServer) -> None:
    root = psutil.Process(running.process.pid)
    family = [root, *root.children(recursive=True)]
    for process in family:
        process.kill()
    running.process.wait()
    psutil.wait_procs(family, timeout=20)


def post(running: RunningServer, path: str, body: Any) -> Any:
    response = httpx.post(f"{running.url}{path}", json=body, timeout=30)
    assert response.is_success, response.text
    return response.json()


def test_each_event_is_pushed_once_over_crashes(pg18: Server) -> None:
    chance = random.Random(5)
    with pg18.fresh_database(servers.TEMPLATE) as url, ExitStack() as stack:
        running = stack.enter_context(run_server(url))
        # Without deduplication, an event that is pushed twice is there twice.
        options = {"options": {"dedup_window_seconds": 0, "max_depth_events": None}}
        assert httpx.put(f"{running.url}/v1/queues/{QUEUE}", json=options).is_success
        operations = [
            {"op": "schedule", "queue": QUEUE, "key": f"timer {n}", "data": n, "seconds": chance.random() * 4}
            for n in range(TIMERS)
        ]
        post(running, "/v1/timers", {"operations": operations})
        with psycopg.connect(url, autocommit=True) as conn:

            def left() -> int:
                (count,) = conn.execute("SELECT count(*) FROM penstock.timers").fetchone() or (0,)
                return int(count)

            kills = 0
            while left() > 0 and kills < 4:
                # Kill it while it fires: after some timers, in the midst of the next ones.
                goal, deadline = left() - chance.randrange(1, 40), time.monotonic() + 20
                while left() > max(goal, 0) and time.monotonic() < deadline:
                    pass
                kill(running)
                kills += 1
                running = stack.enter_context(run_server(url))
            deadline = time.monotonic() + 30
            while left() > 0 and time.monotonic() < deadline:
                time.sleep(0.05)
            assert kills > 1
        pop = {"batch": 10_000, "partitions": 100, "auto_ack": True}
        numbers: list[int] = []
        while events := post(running, f"/v1/queues/{QUEUE}/groups/all/pop", pop)["events"]:
            numbers += [event["data"] for event in events]
        assert sorted(numbers) == list(range(TIMERS))

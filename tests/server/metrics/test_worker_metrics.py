"""Metrics of several workers, and of callers that are limited to some queues."""

from __future__ import annotations

import httpx
import psutil
import pytest

from penstock import SyncPenstock
from penstock.server.auth.identity import Role
from tests.conditions import eventually
from tests.server.access_server import AccessServer
from tests.server.keys import bearer
from tests.server.server_process import run_server

pytestmark = pytest.mark.slow


def test_any_worker_returns_the_metrics_of_all_workers(shared_url: str) -> None:
    with run_server(shared_url, ["--workers", "2"]) as running:
        assert httpx.put(f"{running.url}/v1/queues/counted").status_code == 200
        supervisor = psutil.Process(running.process.pid)

        def push(times: int) -> None:
            for _ in range(times):
                # Each request has its own connection, so that both workers get some.
                response = httpx.post(f"{running.url}/v1/queues/counted/events", json=[{"data": 1}, {"data": 2}])
                assert response.is_success, response.text

        def has_counted(events: int) -> bool:
            details = httpx.get(f"{running.url}/v1/metrics", timeout=30).json()
            return bool(details["eventsAccepted"] == events and details["workers"] == 2)

        eventually(lambda: len(supervisor.children()) == 2)
        push(10)
        eventually(lambda: has_counted(20))
        killed = supervisor.children()[0]
        killed.kill()
        killed.wait(20)
        eventually(lambda: has_counted(20) and len(supervisor.children()) == 2)
        push(10)
        for _ in range(5):
            eventually(lambda: has_counted(40))


def test_key_sees_only_metrics_of_its_queues(access_server: AccessServer) -> None:
    reader = bearer(access_server.create_key(Role.READ))
    limited = bearer(access_server.create_key(Role.READ, queues=["metered.*"]))
    producer = bearer(access_server.create_key(Role.PRODUCE))
    with SyncPenstock(access_server.database_url) as penstock:
        for name in ("metered.orders", "vault"):
            penstock.queue(name).create()
            penstock.queue(name).push([{"data": 1}])

    def queues(headers: dict[str, str]) -> set[str]:
        return {queue["name"] for queue in access_server.get("/v1/metrics", **headers).json()["queues"]}

    eventually(lambda: {"vault", "metered.orders"} <= queues(reader))
    text = access_server.get("/metrics", **limited).text
    assert 'queue="metered.orders"' in text
    assert "vault" not in text
    assert queues(limited) == {"metered.orders"}
    for credential, status in ((producer, 403), (bearer("nonsense"), 401)):
        assert access_server.get("/metrics", **credential).status_code == status

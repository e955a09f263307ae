"""Health endpoints, with and without a database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from penstock.db.embedded import server as embedded
from penstock.db.embedded.server import EmbeddedPostgres
from tests.conditions import eventually
from tests.frozen_process import freeze_process
from tests.server.server_process import run_server
from tests.servers import TEMPLATE, Server

pytestmark = pytest.mark.slow


def test_health_and_readiness(client: httpx.Client) -> None:
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready"}


def test_unknown_address_is_a_problem(client: httpx.Client) -> None:
    response = client.get("/v1/nowhere")
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["type"].endswith("/no-such-route")
    assert client.post("/healthz").status_code == 405
    unknown = client.get("/healthz", params={"verbose": "1"})
    assert unknown.json()["detail"].startswith("there is no parameter 'verbose'")


def test_server_is_not_ready_without_its_database(pg18: Server) -> None:
    with pg18.fresh_database(TEMPLATE) as url, run_server(url) as running:
        name = url.split("/")[3].split("?")[0]
        with pg18.superuser() as conn, httpx.Client(base_url=running.url, timeout=30) as http:
            assert http.get("/readyz").status_code == 200
            conn.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false'.encode())
            conn.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
            eventually(lambda: http.get("/readyz").status_code == 503)
            assert http.get("/readyz").json()["type"].endswith("/database-unavailable")
            assert http.get("/healthz").status_code == 200
            conn.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true'.encode())
            eventually(lambda: http.get("/readyz").status_code == 200)
            with pg18.superuser(name) as inside:
                inside.execute(
                    "DELETE FROM penstock.migrations WHERE version = (SELECT max(version) FROM penstock.migrations)"
                )
            assert http.get("/readyz").status_code == 503


@contextmanager
def stalled_database(data_dir: Path) -> Iterator[None]:
    pid = embedded.status(data_dir).pid
    assert pid is not None
    with freeze_process(pid):
        yield


def test_readiness_fails_in_time_while_the_database_stalls(data_dir: Path) -> None:
    with (
        EmbeddedPostgres(data_dir) as postgres,
        run_server(postgres.url) as running,
        # A health probe waits a few seconds at most.
        httpx.Client(base_url=running.url, timeout=5) as http,
    ):
        assert http.get("/readyz").status_code == 200
        with stalled_database(data_dir):
            response = http.get("/readyz")
            assert (response.status_code, response.headers["retry-after"]) == (503, "1")
            assert response.json()["type"].endswith("/database-unavailable")
            assert http.get("/healthz").status_code == 200
        assert http.get("/readyz").status_code == 200
        # Dead connections fail no requests, neither now nor after a restart of the database.
        assert http.put("/v1/queues/orders", json={}).status_code == 200
        postgres.stop()
        postgres.start()
        for n in range(20):
            response = http.post("/v1/push", json={"batches": [{"queue": "orders", "events": [{"data": n}]}]})
            assert response.status_code == 200


@pytest.mark.long
def test_all_health_endpoints_answer_in_time_while_the_database_stalls(data_dir: Path) -> None:
    with (
        EmbeddedPostgres(data_dir) as postgres,
        run_server(postgres.url) as running,
        httpx.Client(base_url=running.url, timeout=5) as http,
        stalled_database(data_dir),
    ):
        for _ in range(3):
            assert http.get("/readyz").status_code == 503
            assert http.get("/health").json()["status"] == "unhealthy"
            assert "penstock_database_reachable 0.0" in http.get("/metrics").text

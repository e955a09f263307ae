from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from penstock.db.embedded import server as embedded
from penstock.db.embedded.server import EmbeddedPostgres
from tests.db.standing_still import standing_still
from tests.server.serving import Serving, serving


def test_a_server_is_alive_and_ready(http: httpx.Client) -> None:
    assert http.get("/healthz").json() == {"status": "alive"}
    assert http.get("/readyz").json() == {"status": "ready"}


def test_an_address_that_is_none_is_a_problem(http: httpx.Client) -> None:
    answer = http.get("/v1/nowhere")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"].endswith("/no-such-route")
    assert http.post("/healthz").status_code == 405
    assert http.get("/healthz", params={"verbose": "1"}).json()["detail"].startswith("there is no parameter 'verbose'")


def test_a_server_ends_when_it_is_told(server_process: Serving) -> None:
    server_process.process.terminate()
    assert server_process.process.wait(20) == 0


def test_a_server_whose_database_stands_still_says_in_time_that_it_is_not_ready(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir) as postgres, serving(postgres.url) as running:
        pid = embedded.status(data_dir).pid
        assert pid is not None
        # Of a probe, whoever asks waits a few seconds and no longer.
        with httpx.Client(base_url=running.url, timeout=5) as http:
            assert http.get("/readyz").status_code == 200
            with standing_still(pid):
                answer = http.get("/readyz")
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
                assert answer.json()["type"].endswith("/database-unavailable")
                assert http.get("/healthz").status_code == 200
            assert http.get("/readyz").status_code == 200
            # Nor do requests fail, now or after a restart, because of connections that are no longer any.
            assert http.put("/v1/queues/orders", json={}).status_code == 200
            postgres.stop()
            postgres.start()
            for n in range(20):
                answer = http.post("/v1/push", json={"batches": [{"queue": "orders", "events": [{"data": n}]}]})
                assert answer.status_code == 200


@pytest.mark.chaos
def test_everything_that_tells_how_it_is_does_so_in_time_while_the_database_stands_still(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir) as postgres, serving(postgres.url) as running:
        pid = embedded.status(data_dir).pid
        assert pid is not None
        with httpx.Client(base_url=running.url, timeout=5) as http, standing_still(pid):
            for _ in range(3):
                assert http.get("/readyz").status_code == 503
                assert http.get("/health").json()["status"] == "unhealthy"
                assert "penstock_database_reachable 0.0" in http.get("/metrics").text

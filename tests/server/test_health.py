from __future__ import annotations

import httpx

from tests.server.serving import Serving


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

"""What is the same for every request."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests import servers
from tests.server.serving import serving
from tests.servers import Server

ORIGIN = "https://shop.example"


@pytest.fixture(scope="module")
def http(pg18: Server) -> Iterator[httpx.Client]:
    with (
        pg18.fresh_database(servers.TEMPLATE) as database_url,
        serving(database_url, ["--cors-origin", ORIGIN]) as running,
        httpx.Client(base_url=running.url) as client,
    ):
        yield client


def test_every_answer_has_a_request_id(http: httpx.Client) -> None:
    answers = [http.get("/healthz"), http.get("/v1/nowhere"), http.post("/healthz")]
    ids = {answer.headers["x-request-id"] for answer in answers}
    assert len(ids) == 3
    assert answers[1].json()["instance"] == f"urn:penstock:request:{answers[1].headers['x-request-id']}"
    assert all(answer.headers["x-content-type-options"] == "nosniff" for answer in answers)
    assert all(answer.headers["cache-control"] == "no-store" for answer in answers)


@pytest.mark.parametrize(
    ("given", "is_kept"), [("order-17", True), ("a" * 64, True), ("a" * 65, False), ("a b", False), ('{"a":1}', False)]
)
def test_a_callers_own_request_id_is_kept_if_it_can_do_no_harm(http: httpx.Client, given: str, is_kept: bool) -> None:
    answer = http.get("/healthz", headers={"X-Request-Id": given})
    assert (answer.headers["x-request-id"] == given) is is_kept


def test_an_address_says_which_methods_it_takes(http: httpx.Client) -> None:
    answer = http.post("/healthz")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("path", "status"),
    [("/healthz/", 404), ("//healthz", 404), ("/%68ealthz", 200), ("/v1%2Fqueues", 404), ("/%ff", 400), ("/%00", 404)],
)
def test_a_path_is_what_it_says(http: httpx.Client, path: str, status: int) -> None:
    answer = http.get(path)
    assert answer.status_code == status
    if status != 200:
        assert answer.headers["content-type"] == "application/problem+json"


def test_pages_of_other_origins_are_let_in_only_if_they_are_named(http: httpx.Client) -> None:
    preflight = {"Access-Control-Request-Method": "POST"}
    for headers in ({}, preflight):
        stranger = http.options("/healthz", headers={"Origin": "https://evil.example", **headers})
        assert stranger.status_code == 405
        assert "access-control-allow-origin" not in stranger.headers
    friend = http.options("/healthz", headers={"Origin": ORIGIN, **preflight})
    assert friend.status_code == 204
    assert friend.headers["access-control-allow-origin"] == ORIGIN
    assert "POST" in friend.headers["access-control-allow-methods"]
    answer = http.get("/healthz", headers={"Origin": ORIGIN})
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert answer.headers["vary"] == "Origin"

"""The middleware of every request."""

from __future__ import annotations

import httpx
import pytest

from tests.server.conftest import ALLOWED_ORIGIN


def test_every_response_has_a_request_id(client: httpx.Client) -> None:
    responses = [client.get("/healthz"), client.get("/v1/nowhere"), client.post("/healthz")]
    ids = {response.headers["x-request-id"] for response in responses}
    assert len(ids) == 3
    assert responses[1].json()["instance"] == f"urn:penstock:request:{responses[1].headers['x-request-id']}"
    assert all(response.headers["x-content-type-options"] == "nosniff" for response in responses)
    assert all(response.headers["cache-control"] == "no-store" for response in responses)


@pytest.mark.parametrize(
    ("given", "is_kept"), [("order-17", True), ("a" * 64, True), ("a" * 65, False), ("a b", False), ('{"a":1}', False)]
)
def test_valid_request_id_of_the_caller_is_kept(client: httpx.Client, given: str, is_kept: bool) -> None:
    response = client.get("/healthz", headers={"X-Request-Id": given})
    assert (response.headers["x-request-id"] == given) is is_kept


def test_405_lists_allowed_methods(client: httpx.Client) -> None:
    response = client.post("/healthz")
    assert response.status_code == 405
    assert response.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("path", "status"),
    [("/healthz/", 404), ("//healthz", 404), ("/%68ealthz", 200), ("/v1%2Fqueues", 404), ("/%ff", 400), ("/%00", 404)],
)
def test_paths_are_not_normalized(client: httpx.Client, path: str, status: int) -> None:
    response = client.get(path)
    assert response.status_code == status
    if status != 200:
        assert response.headers["content-type"] == "application/problem+json"


def test_cors_headers_only_for_allowed_origins(client: httpx.Client) -> None:
    preflight = {"Access-Control-Request-Method": "POST"}
    for headers in ({}, preflight):
        refused = client.options("/healthz", headers={"Origin": "https://evil.example", **headers})
        assert refused.status_code == 405
        assert "access-control-allow-origin" not in refused.headers
    allowed = client.options("/healthz", headers={"Origin": ALLOWED_ORIGIN, **preflight})
    assert allowed.status_code == 204
    assert allowed.headers["access-control-allow-origin"] == ALLOWED_ORIGIN
    assert "POST" in allowed.headers["access-control-allow-methods"]
    response = client.get("/healthz", headers={"Origin": ALLOWED_ORIGIN})
    assert response.headers["access-control-allow-origin"] == ALLOWED_ORIGIN
    assert response.headers["vary"] == "Origin"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:6632", "127.evil.example", "localhost.evil.example"])
def test_server_without_access_control_answers_to_loopback_hosts_only(client: httpx.Client, host: str) -> None:
    assert client.get("/healthz", headers={"Host": host}).status_code == 421
    for name in ("localhost", "localhost:6632", "127.0.0.1:1", "[::1]:6632"):
        assert client.get("/healthz", headers={"Host": name}).status_code == 200


def test_cross_origin_requests_with_side_effects_are_refused(client: httpx.Client) -> None:
    response = client.post("/healthz", headers={"Origin": "https://evil.example"})
    assert (response.status_code, response.json()["type"].rsplit("/")[-1]) == (403, "forbidden")
    own_origin = str(client.base_url).rstrip("/")
    assert client.post("/healthz", headers={"Origin": own_origin}).status_code == 405

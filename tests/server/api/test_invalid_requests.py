"""Invalid requests are refused with a specific problem on every endpoint, never with a server error."""

from __future__ import annotations

import gzip
import re

import httpx
import pytest

from penstock.server.app import ENDPOINTS
from penstock.server.queen.errors import QueenErrorFormat
from tests.server.problems import problem_kind
from tests.server.server_process import RunningServer

JSON = {"Content-Type": "application/json"}
DEEP = 200_000


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", (400, "invalid-json")),
        (b"   ", (400, "invalid-json")),
        (b"{", (400, "invalid-json")),
        (b'{"to": "end"} x', (400, "invalid-json")),
        (b'{"to": "\xff\xfe"}', (400, "invalid-json")),
        (b"\xef\xbb\xbf{}", (400, "invalid-json")),
        (b'{"to": NaN}', (400, "invalid-json")),
        (b"[" * DEEP, (400, "invalid-request")),
        (b'{"to": ' + b"[" * DEEP + b"]" * DEEP + b"}", (400, "invalid-request")),
        (b"null", (400, "invalid-request")),
        (b"[]", (400, "invalid-request")),
        (b'"end"', (400, "invalid-request")),
        (b'{"to": ["end"]}', (400, "invalid-request")),
        (b'{"to": 1e400}', (400, "invalid-request")),
        (b'{"to": ' + b"9" * 5000 + b"}", (400, "invalid-request")),
        (b'{"too": ' + b"[" * DEEP + b"]" * DEEP + b"}", (400, "invalid-request")),
        (b'{"to": "end", "too": 1}', (400, "invalid-request")),
        (b'{"to": "nowhere"}', (400, "invalid-request")),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_invalid_bodies_are_refused(v1: httpx.Client, queue: str, body: bytes, kind: tuple[int, str]) -> None:
    response = v1.post(f"queues/{queue}/groups/g/seek", content=body, headers=JSON)
    status, name = problem_kind(response)
    # An invalid value may have a more specific problem than an invalid structure.
    assert (status, name) == kind or (status == 422 and kind[1] == "invalid-request"), response.text
    assert len(response.content) < 2_000, "the body is not echoed"


@pytest.mark.parametrize(
    "media_type", ["text/plain", "application/x-www-form-urlencoded", "application/xml", "json", "/"]
)
def test_unsupported_media_type_is_refused(v1: httpx.Client, queue: str, media_type: str) -> None:
    response = v1.post(f"queues/{queue}/groups/g/seek", content=b'{"to": "end"}', headers={"Content-Type": media_type})
    assert problem_kind(response) == (415, "unsupported-media-type")


def test_unknown_content_encoding_is_refused(v1: httpx.Client, queue: str) -> None:
    headers = {**JSON, "Content-Encoding": "rot13"}
    response = v1.post(f"queues/{queue}/groups/g/seek", content=b'{"to": "end"}', headers=headers)
    assert problem_kind(response) == (415, "unsupported-media-type")


def test_truncated_and_exploding_compression_is_refused(v1: httpx.Client, queue: str) -> None:
    headers = {**JSON, "Content-Encoding": "gzip"}
    path = f"queues/{queue}/groups/g/seek"
    cut = gzip.compress(b'{"to": "end"}')[:-9]
    assert problem_kind(v1.post(path, content=cut, headers=headers))[0] == 400
    bomb = gzip.compress(b'{"to": "' + b" " * (200 << 20) + b'"}', 9)
    assert len(bomb) < 1 << 20
    assert problem_kind(v1.post(path, content=bomb, headers=headers)) == (413, "too-large")


def test_too_large_body_is_refused(v1: httpx.Client, queue: str) -> None:
    response = v1.post(f"queues/{queue}/groups/g/seek", content=b" " * (33 << 20), headers=JSON)
    assert problem_kind(response) == (413, "too-large")


def test_last_of_duplicate_members_counts(v1: httpx.Client, queue: str) -> None:
    response = v1.post(f"queues/{queue}/groups/g/seek", content=b'{"to": "nowhere", "to": "end"}', headers=JSON)
    assert response.status_code in (200, 404), response.text


@pytest.mark.parametrize(
    "query", ["limit=1&limit=2", "limit=x", "limit=0", "limit=99999999999999999999", "nonsense=1", "limit="]
)
def test_invalid_parameters_are_refused(v1: httpx.Client, queue: str, query: str) -> None:
    assert problem_kind(v1.get(f"queues/{queue}/events?{query}")) == (400, "invalid-request")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("queues/%00", 422),
        ("queues/%0a", 422),
        ("queues/%20a", 422),
        ("queues/%ff", 400),
        ("queues/%ed%a0%80", 400),
        ("queues/" + "a" * 201, 422),
        ("queues/..%2f..%2fetc", 404),
        ("queues/%2e%2e", 404),
        ("queues/a/events/", 404),
        ("queues//events", 404),
        ("queues/a%2fevents", 404),
        ("queues/a%252fevents", 404),
        ("dead-letters/1e3", 404),
        ("dead-letters/-1", 404),
        ("dead-letters/99999999999999999999", 404),
    ],
)
def test_invalid_paths_are_refused(v1: httpx.Client, path: str, status: int) -> None:
    assert problem_kind(v1.get(path))[0] == status


def test_queue_name_may_contain_a_slash(v1: httpx.Client) -> None:
    assert v1.put("queues/a%2Fstatus").json()["name"] == "a/status"
    assert v1.get("queues/a%2Fstatus").json()["name"] == "a/status"
    assert v1.get("queues/a%2Fstatus/status").status_code == 200
    assert v1.get("queues/a%252Fstatus").status_code == 404


@pytest.mark.parametrize("path", ["/v1/queues/{queue}/events?key=a%00", "/api/v1/resources/queues?namespace=a%00"])
def test_null_character_in_parameters_is_refused(v1: httpx.Client, queue: str, path: str) -> None:
    response = v1.get(str(v1.base_url.join(path.format(queue=queue))))
    assert response.status_code == 400
    assert "U+0000" in response.text


def test_null_character_in_paths_is_a_client_error(shared_server: RunningServer) -> None:
    with httpx.Client(base_url=shared_server.url) as http:
        for endpoint in ENDPOINTS:
            for part in [] if endpoint.is_websocket else re.findall(r"\{(\w+)", endpoint.path):
                path = re.sub(rf"\{{{part}(:\w+)?\}}", "a%00", endpoint.path)
                path = re.sub(r"\{\w+(:\w+)?\}", "a", path)
                response = http.request(endpoint.method, path)
                assert 400 <= response.status_code < 500, (endpoint.method, path, response.text)
                # Each protocol has its own error format.
                assert ("error" in response.json()) == (isinstance(endpoint.errors, QueenErrorFormat)), (
                    path,
                    response.text,
                )


def test_invalid_utf8_in_paths_is_refused_in_the_format_of_the_protocol(shared_server: RunningServer) -> None:
    assert httpx.get(f"{shared_server.url}/v1/queues/%ff").json()["type"].endswith("/invalid-request")
    refused = httpx.get(f"{shared_server.url}/api/v1/pop/queue/%ff")
    assert (refused.status_code, refused.json()) == (400, {"error": "the path is not UTF-8"})

"""What cannot be right is refused at the door, on any route: with its kind, and never with a failure of the server."""

from __future__ import annotations

import gzip
import re

import httpx
import pytest

from penstock.server.app import ENDPOINTS
from tests.server.refusals import refusal
from tests.server.serving import Serving

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
def test_a_body_that_cannot_be_right(v1: httpx.Client, queue: str, body: bytes, kind: tuple[int, str]) -> None:
    answer = v1.post(f"queues/{queue}/groups/g/seek", content=body, headers=JSON)
    status, name = refusal(answer)
    # A wrong value may have a more telling kind than a wrong shape.
    assert (status, name) == kind or (status == 422 and kind[1] == "invalid-request"), answer.text
    assert len(answer.content) < 2_000, "what was sent is not sent back"


@pytest.mark.parametrize(
    "media_type", ["text/plain", "application/x-www-form-urlencoded", "application/xml", "json", "/"]
)
def test_a_body_that_says_it_is_something_else(v1: httpx.Client, queue: str, media_type: str) -> None:
    answer = v1.post(f"queues/{queue}/groups/g/seek", content=b'{"to": "end"}', headers={"Content-Type": media_type})
    assert refusal(answer) == (415, "unsupported-media-type")


def test_a_body_in_an_encoding_that_nobody_knows(v1: httpx.Client, queue: str) -> None:
    headers = {**JSON, "Content-Encoding": "rot13"}
    answer = v1.post(f"queues/{queue}/groups/g/seek", content=b'{"to": "end"}', headers=headers)
    assert refusal(answer) == (415, "unsupported-media-type")


def test_a_body_that_is_cut_off_or_blows_up(v1: httpx.Client, queue: str) -> None:
    headers = {**JSON, "Content-Encoding": "gzip"}
    path = f"queues/{queue}/groups/g/seek"
    cut = gzip.compress(b'{"to": "end"}')[:-9]
    assert refusal(v1.post(path, content=cut, headers=headers))[0] == 400
    bomb = gzip.compress(b'{"to": "' + b" " * (200 << 20) + b'"}', 9)
    assert len(bomb) < 1 << 20
    assert refusal(v1.post(path, content=bomb, headers=headers)) == (413, "too-large")


def test_a_body_that_is_too_large(v1: httpx.Client, queue: str) -> None:
    answer = v1.post(f"queues/{queue}/groups/g/seek", content=b" " * (33 << 20), headers=JSON)
    assert refusal(answer) == (413, "too-large")


def test_of_a_name_that_is_given_twice_the_last_counts(v1: httpx.Client, queue: str) -> None:
    answer = v1.post(f"queues/{queue}/groups/g/seek", content=b'{"to": "nowhere", "to": "end"}', headers=JSON)
    assert answer.status_code in (200, 404), answer.text


@pytest.mark.parametrize(
    "query", ["limit=1&limit=2", "limit=x", "limit=0", "limit=99999999999999999999", "nonsense=1", "limit="]
)
def test_a_parameter_that_cannot_be_right(v1: httpx.Client, queue: str, query: str) -> None:
    assert refusal(v1.get(f"queues/{queue}/events?{query}")) == (400, "invalid-request")


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
def test_a_path_that_leads_nowhere(v1: httpx.Client, path: str, status: int) -> None:
    assert refusal(v1.get(path))[0] == status


def test_a_name_with_a_slash_is_a_name(v1: httpx.Client) -> None:
    assert v1.put("queues/a%2Fstatus").json()["name"] == "a/status"
    assert v1.get("queues/a%2Fstatus").json()["name"] == "a/status"
    assert v1.get("queues/a%2Fstatus/status").status_code == 200
    assert v1.get("queues/a%252Fstatus").status_code == 404


@pytest.mark.parametrize("path", ["/v1/queues/{queue}/events?key=a%00", "/api/v1/resources/queues?namespace=a%00"])
def test_a_character_that_postgresql_cannot_store(v1: httpx.Client, queue: str, path: str) -> None:
    answer = v1.get(str(v1.base_url.join(path.format(queue=queue))))
    assert answer.status_code == 400
    assert "U+0000" in answer.text


def test_no_part_of_a_path_that_the_database_cannot_hold_is_a_fault_of_the_server(shared_server: Serving) -> None:
    with httpx.Client(base_url=shared_server.url) as http:
        for endpoint in ENDPOINTS:
            for part in [] if endpoint.websocket else re.findall(r"\{(\w+)", endpoint.path):
                path = endpoint.path.replace(f"{{{part}}}", "a%00")
                path = re.sub(r"\{\w+\}", "a", path)
                answer = http.request(endpoint.method, path)
                assert 400 <= answer.status_code < 500, (endpoint.method, path, answer.text)
                # Each plane in its own shape.
                assert ("error" in answer.json()) == endpoint.plane, (path, answer.text)


def test_a_path_that_is_no_text_is_refused_in_the_shape_of_its_plane(shared_server: Serving) -> None:
    assert httpx.get(f"{shared_server.url}/v1/queues/%ff").json()["type"].endswith("/invalid-request")
    refused = httpx.get(f"{shared_server.url}/api/v1/pop/queue/%ff")
    assert (refused.status_code, refused.json()) == (400, {"error": "the path is not UTF-8"})

"""What cannot be right is refused at the door, with the status that says why, and nothing of it is stored."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import zstandard

from tests.server.ingest.pushing import Door, problem
from tests.server.serving import Serving, serving

NDJSON = "application/x-ndjson"
DEEP = b"[" * 300 + b"]" * 300


@pytest.mark.parametrize(
    ("kind", "body", "status", "name"),
    [
        ("text/csv", b"1,2", 415, "unsupported-media-type"),
        (None, b"{}", 415, "unsupported-media-type"),
        ("application/json; charset=latin-1", b'{"data": 1}', 415, "unsupported-media-type"),
        ("application/json", b"", 400, "invalid-json"),
        ("application/json", b"{", 400, "invalid-json"),
        ("application/json", b'{"data": 1} {"data": 2}', 400, "invalid-json"),
        ("application/json", b'{"data": NaN}', 400, "invalid-json"),
        ("application/json", b'{"data": "\xff"}', 400, "invalid-json"),
        ("application/json", b'\xef\xbb\xbf{"data": 1}', 400, "invalid-json"),
        ("application/json", b"7", 422, "invalid-event"),
        ("application/json", b"[[]]", 422, "invalid-event"),
        ("application/json", b'{"data": ' + DEEP + b"}", 422, "invalid-event"),
        ("application/json", b"[" * 100_000, 400, "invalid-json"),
        (NDJSON, b'1\n{"a":\n3', 422, "invalid-event"),
        (NDJSON, b"1\n\xff\n3", 422, "invalid-event"),
        (NDJSON, b"1\n" + DEEP + b"\n3", 422, "invalid-event"),
        ("application/cloudevents+json", b"[]", 400, "invalid-json"),
        ("application/cloudevents-batch+json", b"{}", 400, "invalid-json"),
        ("application/cloudevents+json", b"{}", 422, "invalid-event"),
    ],
)
def test_bodies_that_are_not_what_they_should_be(
    door: Callable[..., Door], kind: str | None, body: bytes, status: int, name: str
) -> None:
    queue = door()
    assert queue.refused(body, kind)[:2] == (status, name)
    assert queue.data() == []


@pytest.mark.parametrize(
    ("body", "kind", "index", "field"),
    [
        ([{"data": 1}, {"key": "a"}], "application/json", 1, "data"),
        ([{"data": 1}, {"data": 2, "extra": 1}], "application/json", 1, "extra"),
        ([{"data": 1}, {"data": 2, "key": 7}], "application/json", 1, "key"),
        ([{"data": 1}, {"data": 2, "key": ""}], "application/json", 1, "key"),
        ([{"data": 1}, {"data": 2, "id": "x" * 300}], "application/json", 1, "id"),
        ([{"data": 1}, {"data": 2, "time": "yesterday"}], "application/json", 1, "time"),
        ([{"data": 1}, {"data": 2, "time": "2026-01-01T00:00:00"}], "application/json", 1, "time"),
        ([{"data": 1}, {"data": 2, "headers": {"a": 1}}], "application/json", 1, "headers"),
        ([{"data": 1}, {"data": "x" * 2_000_000}], "application/json", 1, "data"),
        (b'1\n2\n{"', NDJSON, 2, "data"),
        (b'"' + b"x" * 1_048_600 + b'"', NDJSON, 0, "data"),
    ],
)
def test_a_bad_event_is_named_and_nothing_is_stored(
    door: Callable[..., Door], body: Any, kind: str, index: int, field: str
) -> None:
    queue = door()
    status, name, said = queue.refused(body, kind)
    assert (status, name) == (422, "invalid-event")
    assert (said["index"], said["field"]) == (index, field)
    assert said["reason"]
    assert queue.data() == []


@pytest.mark.parametrize(
    ("attributes", "field"),
    [
        ({"specversion": "0.3"}, "specversion"),
        ({"id": None}, "id"),
        ({"source": ""}, "source"),
        ({"type": 7}, "type"),
        ({"Upper": "x"}, "Upper"),
        ({"ext": {"a": 1}}, "ext"),
        ({"data": 1, "data_base64": "AA=="}, "data"),
        ({"data_base64": "?"}, "data_base64"),
        ({"time": "soon"}, "time"),
    ],
)
def test_a_cloud_event_that_is_none(door: Callable[..., Door], attributes: dict[str, Any], field: str) -> None:
    queue = door()
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", **attributes}
    status, name, said = queue.refused(event, "application/cloudevents+json")
    assert (status, name, said["field"]) == (422, "invalid-event", field)


# Compression


@pytest.mark.parametrize("encoding", ["br", "gzip, zstd", "gzip, gzip"])
def test_an_encoding_that_is_not_undone(door: Callable[..., Door], encoding: str) -> None:
    answer = door().push(b"{}", headers={"Content-Encoding": encoding})
    assert problem(answer)[:2] == (415, "unsupported-media-type")
    assert answer.headers["accept-encoding"] == "gzip, zstd"


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_compression_that_is_damaged(door: Callable[..., Door], encoding: str) -> None:
    queue = door()
    squeeze = gzip.compress if encoding == "gzip" else zstandard.ZstdCompressor(write_checksum=True).compress
    whole = squeeze(b"\n".join(json.dumps({"n": n}).encode() for n in range(1000)))
    headers = {"Content-Encoding": encoding}
    for body in (whole[:-5], b"not compressed", b"", whole[:20] + b"?" + whole[21:]):
        if body:
            assert queue.refused(body, NDJSON, headers)[:2] == (400, "invalid-encoding")
    assert queue.data() == []


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_few_bytes_that_become_too_many(door: Callable[..., Door], encoding: str) -> None:
    queue = door()
    squeeze = gzip.compress if encoding == "gzip" else zstandard.ZstdCompressor(19).compress
    headers = {"Content-Encoding": encoding}
    bomb = squeeze(b" " * (100 << 20))
    assert len(bomb) < 200_000
    assert queue.refused(bomb, headers=headers)[:2] == (413, "too-large")
    # As lines it would be a long one.
    assert queue.refused(bomb, NDJSON, headers)[:2] == (413, "too-large")


# Size


def test_a_body_that_is_too_large(door: Callable[..., Door]) -> None:
    queue = door()
    status, name, said = queue.refused(b'{"data": "' + b"x" * (32 << 20) + b'"}')
    assert (status, name, said["limit"]) == (413, "too-large", 32 << 20)
    status, name, said = queue.refused(b'"' + b"x" * (4 << 20) + b'"', NDJSON)
    assert (status, name) == (413, "too-large")
    assert said["line_limit"] == 1 << 20


def test_a_queue_may_allow_less(door: Callable[..., Door]) -> None:
    queue = door(max_event_bytes=10)
    assert queue.refused({"data": "x" * 10})[1] == "invalid-event"
    assert queue.accepted({"data": "x"})["accepted"] == 1


# Addresses


@pytest.mark.parametrize(
    ("path", "status", "name"),
    [
        ("/v1/queues/nowhere/events", 404, "not-found"),
        ("/v1/queues/a%00b/events", 422, "invalid-name"),
        ("/v1/queues/%20a/events", 422, "invalid-name"),
        ("/v1/queues/%FF/events", 400, "invalid-request"),
        ("/v1/queues/" + "x" * 201 + "/events", 422, "invalid-name"),
        ("/v1/queues//events", 404, "no-such-route"),
        ("/v1/queues/a/b/events", 404, "no-such-route"),
        ("/v1/queues/..%2F..%2Fhealthz/events", 404, "not-found"),
        ("/v1/queues/a/events?partial=perhaps", 400, "invalid-request"),
        ("/v1/queues/a/events?nonsense=1", 400, "invalid-request"),
    ],
)
def test_addresses_that_lead_nowhere(door: Callable[..., Door], path: str, status: int, name: str) -> None:
    queue = door()
    parts = urlsplit(str(queue.http.base_url))
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10) as wire:
        wire.sendall(
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 11\r\n"
            'Connection: close\r\n\r\n{"data": 1}'.encode()
        )
        answer = b"".join(iter(lambda: wire.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split()[1] == str(status).encode()
    assert json.loads(body)["type"].endswith(f"/{name}")


# Time


@pytest.fixture(scope="module")
def impatient_server(module_url: str) -> Iterator[Serving]:
    with serving(module_url, ["--request-seconds", "0.3", "--min-bytes-per-second", "1000000"]) as running:
        yield running


@pytest.mark.parametrize("sent", [b"", b'{"data": 1', b"1\n" * 1000])
def test_who_sends_too_slowly_is_cut_off(impatient_server: Serving, door: Callable[..., Door], sent: bytes) -> None:
    parts = urlsplit(impatient_server.url)
    queue = door()
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10) as wire:
        head = (
            f"POST {queue.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {NDJSON}\r\nContent-Length: 100000\r\n\r\n"
        )
        wire.sendall(head.encode() + sent)
        answer = b"".join(iter(lambda: wire.recv(65536), b""))
    assert answer.split()[1] == b"408"
    assert b"connection: close" in answer.lower()
    assert queue.data() == []

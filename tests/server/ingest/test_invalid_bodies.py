"""Invalid pushes are refused with a specific problem, and nothing is stored."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
import zstandard

from tests.server.ingest.push_client import CreateQueue, read_problem
from tests.server.server_process import RunningServer, run_server
from tests.server.sockets import connect, read_to_end

NDJSON = "application/x-ndjson"
#: By default, the valid lines of a body with invalid ones are stored.
ALL_OR_NOTHING = {"invalid_events": "refuse"}
DEEP = b"[" * 300 + b"]" * 300


@pytest.mark.parametrize(
    ("media_type", "body", "status", "name"),
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
def test_invalid_bodies_are_refused(
    create_queue: CreateQueue, media_type: str | None, body: bytes, status: int, name: str
) -> None:
    queue = create_queue(**ALL_OR_NOTHING if media_type == NDJSON else {})
    assert queue.refused(body, media_type)[:2] == (status, name)
    assert queue.data() == []


@pytest.mark.parametrize(
    ("body", "media_type", "index", "field"),
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
def test_invalid_event_is_identified_and_nothing_is_stored(
    create_queue: CreateQueue, body: Any, media_type: str, index: int, field: str
) -> None:
    queue = create_queue(**ALL_OR_NOTHING if media_type == NDJSON else {})
    status, name, problem = queue.refused(body, media_type)
    assert (status, name) == (422, "invalid-event")
    assert (problem["index"], problem["field"]) == (index, field)
    assert problem["reason"]
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
def test_invalid_cloud_events_are_refused(create_queue: CreateQueue, attributes: dict[str, Any], field: str) -> None:
    queue = create_queue()
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", **attributes}
    status, name, problem = queue.refused(event, "application/cloudevents+json")
    assert (status, name, problem["field"]) == (422, "invalid-event", field)


# Compression


@pytest.mark.parametrize("encoding", ["br", "gzip, zstd", "gzip, gzip"])
def test_unsupported_encodings_are_refused(create_queue: CreateQueue, encoding: str) -> None:
    response = create_queue().push(b"{}", headers={"Content-Encoding": encoding})
    assert read_problem(response)[:2] == (415, "unsupported-media-type")
    assert response.headers["accept-encoding"] == "gzip, zstd"


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_damaged_compression_is_refused(create_queue: CreateQueue, encoding: str) -> None:
    queue = create_queue()
    compress = gzip.compress if encoding == "gzip" else zstandard.ZstdCompressor(write_checksum=True).compress
    whole = compress(b"\n".join(json.dumps({"n": n}).encode() for n in range(1000)))
    headers = {"Content-Encoding": encoding}
    for body in (whole[:-5], b"not compressed", b"", whole[:20] + b"?" + whole[21:]):
        if body:
            assert queue.refused(body, NDJSON, headers)[:2] == (400, "invalid-encoding")
    assert queue.data() == []


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_decompression_bombs_are_refused(create_queue: CreateQueue, encoding: str) -> None:
    queue = create_queue()
    compress = gzip.compress if encoding == "gzip" else zstandard.ZstdCompressor(19).compress
    headers = {"Content-Encoding": encoding}
    bomb = compress(b" " * (100 << 20))
    assert len(bomb) < 200_000
    assert queue.refused(bomb, headers=headers)[:2] == (413, "too-large")
    # As NDJSON it is one long line.
    assert queue.refused(bomb, NDJSON, headers)[:2] == (413, "too-large")


# Size


def test_too_large_body_is_refused(create_queue: CreateQueue) -> None:
    queue = create_queue()
    status, name, problem = queue.refused(b'{"data": "' + b"x" * (32 << 20) + b'"}')
    assert (status, name, problem["limit"]) == (413, "too-large", 32 << 20)
    status, name, problem = queue.refused(b'"' + b"x" * (4 << 20) + b'"', NDJSON)
    assert (status, name) == (413, "too-large")
    assert problem["line_limit"] == 1 << 20


def test_queue_limits_event_size(create_queue: CreateQueue) -> None:
    queue = create_queue(max_event_bytes=10)
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
def test_invalid_addresses_are_refused(create_queue: CreateQueue, path: str, status: int, name: str) -> None:
    queue = create_queue()
    with connect(str(queue.http.base_url)) as connection:
        connection.sendall(
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 11\r\n"
            'Connection: close\r\n\r\n{"data": 1}'.encode()
        )
        response = read_to_end(connection)
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.split()[1] == str(status).encode()
    assert json.loads(body)["type"].endswith(f"/{name}")


# Time


@pytest.fixture(scope="module")
def short_timeout_server(shared_url: str) -> Iterator[RunningServer]:
    with run_server(shared_url, ["--request-seconds", "0.3", "--min-bytes-per-second", "1000000"]) as running:
        yield running


@pytest.mark.parametrize("sent", [b"", b'{"data": 1', b"1\n" * 1000])
@pytest.mark.slow
def test_slow_body_times_out(short_timeout_server: RunningServer, create_queue: CreateQueue, sent: bytes) -> None:
    queue = create_queue()
    with connect(short_timeout_server.url) as connection:
        head = (
            f"POST {queue.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {NDJSON}\r\nContent-Length: 100000\r\n\r\n"
        )
        connection.sendall(head.encode() + sent)
        response = read_to_end(connection)
    assert response.split()[1] == b"408"
    assert b"connection: close" in response.lower()
    assert queue.data() == []

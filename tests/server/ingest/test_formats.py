"""Body formats of a push, and the sources of key, id and time."""

from __future__ import annotations

import base64
import gzip
import json
from datetime import UTC, datetime
from typing import Any

import pytest
import zstandard

from tests.server.ingest.push_client import CreateQueue

NOON = "2026-01-31T12:00:00Z"


def cloud_event(**more: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": "7", "source": "/shop", "type": "order.placed", **more}


def test_single_envelope(create_queue: CreateQueue) -> None:
    queue = create_queue()
    envelope = {"data": {"n": 1}, "key": "ada", "id": "one", "time": NOON, "headers": {"trace": "x"}}
    response = queue.accepted(envelope)
    assert response.pop("processing_ms") > 0
    assert response == {
        "accepted": 1,
        "duplicates": 0,
        "shed": 0,
        "rejected": [],
        "replayed": False,
    }
    (event,) = queue.events()
    assert (event.data, event.key, event.id, event.headers) == ({"n": 1}, "ada", "one", {"trace": "x"})
    assert event.event_time == datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_array_of_envelopes_keeps_order_and_numbers(create_queue: CreateQueue) -> None:
    queue = create_queue()
    pretty = (
        b'[\n {"data": {"n": 1,\n  "big": 123456789012345678901234567890},\n "key": "a"},\n\t{"data": "two\\nlines"},'
    )
    assert queue.accepted(pretty + b'{"data": null, "key": null}]')["accepted"] == 3
    assert [(event.key, event.data) for event in queue.events()] == [
        (None, "two\nlines"),
        (None, None),
        ("a", {"n": 1, "big": 123456789012345678901234567890}),
    ]
    assert queue.accepted(b"[]")["accepted"] == 0


def test_ndjson(create_queue: CreateQueue) -> None:
    queue = create_queue()
    assert queue.accepted(b'{"n":1}\n\n{"n": 2}\r\n3', "application/x-ndjson")["accepted"] == 3
    assert queue.data() == [{"n": 1}, {"n": 2}, 3]
    for media_type in ("application/ndjson", "application/jsonl", "Application/X-NDJSON; charset=utf-8"):
        assert queue.accepted(b"4", media_type)["accepted"] == 1
    assert queue.accepted(b"", "application/x-ndjson")["accepted"] == 0


def test_json_without_envelope(create_queue: CreateQueue) -> None:
    queue = create_queue()
    assert queue.accepted([{"k": "a", "n": 1}, {"k": "b", "n": 2}], envelope=False, key_field="k")["accepted"] == 2
    assert [(event.key, event.data["n"]) for event in queue.events()] == [("a", 1), ("b", 2)]
    assert queue.accepted(b'{"k": "c",\n "n": 3}', envelope=False, key_field="k")["accepted"] == 1


def test_fields_named_by_the_request(create_queue: CreateQueue) -> None:
    queue = create_queue(partitions=2)
    lines = [{"tenant": "ada", "order": "o1", "at": NOON}, {"tenant": 7, "order": "o2"}]
    queue.push_lines(lines, key_field="tenant", id_field="order", time_field="at")
    found = {event.id: (event.key, event.event_time) for event in queue.events()}
    assert found == {"o1": ("ada", datetime(2026, 1, 31, 12, tzinfo=UTC)), "o2": ("7", None)}


def test_fields_named_by_the_queue(create_queue: CreateQueue) -> None:
    queue = create_queue(key_field="tenant", id_field="order", time_field="at")
    queue.push_lines([{"tenant": "ada", "order": "o1", "at": NOON, "other": "bob"}])
    queue.push_lines([{"tenant": "ada", "order": "o2", "at": NOON, "other": "bob"}], key_field="other")
    assert [(event.key, event.id) for event in queue.events()] == [("ada", "o1"), ("bob", "o2")]


def test_key_id_and_time_from_headers(create_queue: CreateQueue) -> None:
    queue = create_queue()
    headers = {"Penstock-Key": "ada", "Penstock-Id": "o1", "Penstock-Time": NOON}
    assert queue.push({"data": 1}, headers=headers).status_code == 200
    assert queue.push_lines([1, 2], headers={"Penstock-Key": "bob"}).status_code == 200
    assert queue.accepted({"data": 3, "key": "own", "id": "o3"}, headers=headers)["accepted"] == 1
    assert queue.accepted({"data": 4}, key="eve")["accepted"] == 1
    assert [(event.key, event.data) for event in queue.events()] == [
        ("ada", 1),
        ("bob", 1),
        ("bob", 2),
        ("eve", 4),
        ("own", 3),
    ]
    assert queue.refused([{"data": 1}, {"data": 2}], headers=headers)[:2] == (400, "invalid-request")
    assert queue.refused({"data": 1}, key_field="x")[:2] == (400, "invalid-request")


def test_structured_cloud_events(create_queue: CreateQueue) -> None:
    queue = create_queue()
    one = cloud_event(data={"n": 1}, time=NOON, partitionkey="ada", subject="s")
    assert queue.accepted(one, "application/cloudevents+json")["accepted"] == 1
    # The same event again, and one with the same id from another source.
    batch = [one, cloud_event(source="/other", data={"n": 2}), cloud_event(id="8", data_base64="AAE=")]
    response = queue.accepted(batch, "application/cloudevents-batch+json; charset=UTF-8")
    assert (response["accepted"], response["duplicates"]) == (2, 1)
    by_id = {event.id: event for event in queue.events()}
    assert {id: event.data for id, event in by_id.items()} == {
        "/shop#7": {"n": 1},
        "/other#7": {"n": 2},
        "/shop#8": "AAE=",
    }
    first = by_id["/shop#7"]
    assert (first.key, first.event_time) == ("ada", datetime(2026, 1, 31, 12, tzinfo=UTC))
    assert first.headers["ce-type"] == "order.placed"
    assert by_id["/shop#8"].headers["ce-dataencoding"] == "base64"
    assert queue.accepted(cloud_event(id="9", subject="s"), "application/cloudevents+json", key_field="subject")
    assert {event.key for event in queue.events()} == {"ada", None, "s"}


@pytest.mark.parametrize(
    ("media_type", "body", "data"),
    [
        ("application/json", b'{"n": 1}', {"n": 1}),
        ("application/vnd.shop+json", b"[1]", [1]),
        ("text/plain", "grüß".encode(), "grüß"),
        ("image/png", b"\x89PNG", base64.b64encode(b"\x89PNG").decode()),
        ("application/json", b"", None),
    ],
)
def test_binary_cloud_event(create_queue: CreateQueue, media_type: str, body: bytes, data: object) -> None:
    queue = create_queue()
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/shop", "ce-type": "t", "ce-subject": "a%20b"}
    headers["Content-Type"] = media_type
    response = queue.http.post(queue.path, content=body, headers=headers)
    assert response.status_code == 200, response.text
    (event,) = queue.events()
    assert event.data == data
    assert event.headers["ce-subject"] == "a b"


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "zstd"])
def test_compressed_bodies(create_queue: CreateQueue, encoding: str) -> None:
    queue = create_queue()
    compress = zstandard.ZstdCompressor().compress if encoding == "zstd" else gzip.compress
    text = b"\n".join(json.dumps({"n": n}).encode() for n in range(5000))
    headers = {"Content-Encoding": encoding}
    # Several consecutive members are one body.
    body = compress(text) + compress(b'\n{"n": 5000}')
    assert queue.accepted(body, "application/x-ndjson", headers)["accepted"] == 5001
    assert sorted(event["n"] for event in queue.data()) == list(range(5001))
    assert queue.accepted(compress(b'{"data": 1}'), headers=headers)["accepted"] == 1


def test_last_of_duplicate_members_counts(create_queue: CreateQueue) -> None:
    queue = create_queue()
    queue.push(b'{"key": "a", "data": {"n": 1, "n": 2}, "key": "b"}')
    queue.push(b'{"k": "c", "n": 1, "k": "d"}', "application/x-ndjson", key_field="k")
    assert [(event.key, event.data["n"]) for event in queue.events()] == [("b", 2), ("d", 1)]


def test_any_queue_name(create_queue: CreateQueue) -> None:
    queue = create_queue()
    for name, path in (("a/b", "a%2Fb"), ("..", "%2E%2E"), ("übung 1", "%C3%BCbung%201"), ("50%", "50%25")):
        queue.store.queue(name).create()
        response = queue.http.post(f"/v1/queues/{path}/events", json={"data": name})
        assert response.status_code == 200, response.text
        assert [event.data for event in queue.store.queue(name).browse()] == [name]

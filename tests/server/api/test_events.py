"""``/v1/push``, and reading events without consuming them."""

from __future__ import annotations

import gzip
import json
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
import zstandard

from tests.server.problems import problem_kind


def push(v1: httpx.Client, queue: str, events: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    response = v1.post("push", json={"batches": [{"queue": unquote(queue), "events": events, **more}]})
    assert response.status_code == 200, response.text
    (result,) = response.json()["results"]
    return dict(result)


def test_push_to_several_queues(v1: httpx.Client, queue: str) -> None:
    v1.put("queues/audit")
    batches = [
        {"queue": unquote(queue), "events": [{"data": 1, "key": "a"}, {"data": 2, "key": "b"}]},
        {"queue": "audit", "ndjson": '{"who": "x"}\n{"who": "y"}', "key_field": "who"},
    ]

    orders, audit = v1.post("push", json={"batches": batches}).json()["results"]

    assert (orders["accepted"], audit["accepted"]) == (2, 2)
    assert [placed["partition"] for placed in orders["placed"]] == ["a", "b"]
    assert [event["key"] for event in v1.get("queues/audit/events").json()["events"]] == ["y", "x"]


def test_push_is_atomic(v1: httpx.Client, queue: str) -> None:
    batches = [{"queue": unquote(queue), "events": [{"data": 1}]}, {"queue": "none", "events": [{"data": 1}]}]

    assert problem_kind(v1.post("push", json={"batches": batches})) == (404, "not-found")
    assert v1.get(f"queues/{queue}/events").json() == {"events": [], "more": False}


def test_push_with_idempotency_key_is_stored_once(v1: httpx.Client, queue: str) -> None:
    body = {"batches": [{"queue": unquote(queue), "events": [{"data": 1}]}]}
    headers = {"Idempotency-Key": str(uuid.uuid4())}

    first, second = (v1.post("push", json=body, headers=headers).json()["results"][0] for _ in range(2))

    assert second == {**first, "replayed": True}
    assert len(v1.get(f"queues/{queue}/events").json()["events"]) == 1
    body["batches"][0]["events"] = [{"data": 2}]
    assert problem_kind(v1.post("push", json=body, headers=headers)) == (409, "idempotency-conflict")


def test_data_is_stored_verbatim(v1: httpx.Client, queue: str) -> None:
    data = '{"n": 12345678901234567890.10, "big": 1e999,\n "text": "ü\\u00fc"}'
    body = f'{{"batches": [{{"queue": "{unquote(queue)}", "events": [{{"data": {data}}}]}}]}}'

    assert v1.post("push", content=body).status_code == 200

    text = v1.get(f"queues/{queue}/events").text
    assert '{"n":12345678901234567890.10,"big":1e999,"text":"ü\\u00fc"}' in text


def test_list_events_by_partition_offset_key_id_and_time(v1: httpx.Client, queue: str) -> None:
    push(v1, queue, [{"data": n, "key": f"k{n % 2}", "id": f"i{n}"} for n in range(10)])

    def seen(**which: Any) -> list[int]:
        response = v1.get(f"queues/{queue}/events", params=which)
        assert response.status_code == 200, response.text
        return [event["data"] for event in response.json()["events"]]

    assert seen(partition="k1", offset=1, limit=3) == [3, 5, 7]
    assert seen(partition="k1", offset=-1) == [9]
    number = v1.get(f"queues/{queue}/events", params={"key": "k1"}).json()["events"][0]["partition_id"]
    assert seen(partition_id=number, offset=4) == [9]
    assert seen(key="k0", limit=2) == [8, 6]
    assert seen(id="i4") == [4]
    assert seen(until="2020-01-31T12:00:00Z") == []
    assert len(seen(since="2020-01-31T12:00:00Z")) == 10


def test_large_response_is_cut_and_marked(v1: httpx.Client, queue: str) -> None:
    for n in range(3):
        push(v1, queue, [{"data": [n, "x" * 1_000_000]} for _ in range(9)], key="k")

    first = v1.get(f"queues/{queue}/events", params={"partition": "k", "offset": 0}).json()
    rest = v1.get(f"queues/{queue}/events", params={"partition": "k", "offset": len(first["events"])}).json()

    assert (first["more"], rest["more"]) == (True, False)
    assert len(first["events"]) + len(rest["events"]) == 27


def test_list_events_of_mixed_sizes(v1: httpx.Client, queue: str) -> None:
    push(v1, queue, [{"data": n if n % 40 else "x" * 200_000} for n in range(100)], key="k")
    for offset, limit in ((0, 100), (0, 16), (0, 17), (3, 50), (-40, 100), (99, 5), (100, 5), (-1000, 10_000)):
        asked: dict[str, str | int] = {"partition": "k", "offset": offset, "limit": limit}
        first = max(offset if offset >= 0 else 100 + offset, 0)
        found = v1.get(f"queues/{queue}/events", params=asked).json()
        assert [event["offset"] for event in found["events"]] == list(range(first, min(first + limit, 100)))
        assert found["more"] is False


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({"key": "k"}, "data"),
        ({"data": 1, "kee": "k"}, "kee"),
        ({"data": 1, "key": 7}, "key"),
        ({"data": 1, "id": ""}, "id"),
        ({"data": 1, "time": "noon"}, "time"),
        ({"data": 1, "time": "2026-01-31T12:00:00"}, "time"),
        ({"data": 1, "headers": {"h": 1}}, "headers"),
        ({"data": "x" * 2_000_000}, "data"),
        ("text", "event"),
    ],
)
def test_invalid_event_is_identified(v1: httpx.Client, queue: str, event: object, field: str) -> None:
    response = v1.post("push", json={"batches": [{"queue": unquote(queue), "events": [{"data": 0}, event]}]})

    assert problem_kind(response) == (422, "invalid-event")
    assert (response.json()["index"], response.json()["field"]) == (1, field)
    assert response.json()["reason"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"batches": [{"queue": "none"}]}', (404, "not-found")),
        ('{"batches": [{"queue": ""}]}', (422, "invalid-name")),
        ('{"batches": [{"queue": "none", "events": [{"data": }]}]}', (400, "invalid-json")),
        ('{"batches": [{"queue": "{queue}", "events": {"data": 1}}]}', (400, "invalid-request")),
        ('{"batches": [{"queue": "{queue}", "events": [{"data": "\udcff"}]}]}', (422, "invalid-event")),
        ('{"batches": [{"queue": "{queue}", "events": [{"data": 1}], "ndjson": "1"}]}', (400, "invalid-request")),
        ('{"batches": [{"queue": "{queue}", "events": [{"data": 1}], "key_field": "k"}]}', (400, "invalid-request")),
        ('{"batches": [{"queue": "{queue}", "ndjson": "{"}]}', (422, "invalid-event")),
        ('{"batches": [{"queue": "{queue}", "events": [{"data": ' + "[" * 300 + "]" * 300 + "}]}]}", None),
        ("[]", (400, "invalid-request")),
        ("", (400, "invalid-json")),
    ],
)
def test_invalid_push_bodies(v1: httpx.Client, queue: str, body: str, expected: tuple[int, str] | None) -> None:
    text = body.replace("{queue}", unquote(queue)).encode("utf-8", "surrogateescape")

    response = v1.post("push", content=text)

    assert problem_kind(response)[0] in (400, 422) if expected is None else problem_kind(response) == expected


@pytest.mark.parametrize(
    "which",
    [
        {"offset": 1},
        {"partition_id": 1},
        {"offset": 1, "partition": "k", "partition_id": 1},
        {"offset": 1, "partition": "k", "key": "k"},
        {"limit": 0},
        {"limit": 10**6},
        {"since": "noon"},
    ],
)
def test_invalid_event_queries(v1: httpx.Client, queue: str, which: dict[str, Any]) -> None:
    assert problem_kind(v1.get(f"queues/{queue}/events", params=which)) == (400, "invalid-request")


def test_missing_queue_or_partition_is_not_found(v1: httpx.Client, queue: str) -> None:
    assert problem_kind(v1.get("queues/none/events")) == (404, "not-found")
    nowhere = v1.get(f"queues/{queue}/events", params={"partition_id": 1_000_000, "offset": 0})
    assert problem_kind(nowhere) == (404, "not-found")
    nowhere = v1.get(f"queues/{queue}/events", params={"partition": "none", "offset": 0})
    assert problem_kind(nowhere) == (404, "not-found")


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
def test_compressed_bodies(v1: httpx.Client, queue: str, encoding: str, pack: Callable[[bytes], bytes]) -> None:
    def send(body: bytes) -> httpx.Response:
        headers = {"content-encoding": encoding, "content-type": "application/json"}
        return v1.post("push", content=body, headers=headers)

    body = json.dumps({"batches": [{"queue": unquote(queue), "events": [{"data": 1}]}]}).encode()

    assert send(pack(body)).json()["results"][0]["accepted"] == 1
    assert problem_kind(send(pack(body)[:-5])) == (400, "invalid-encoding")
    assert problem_kind(send(body)) == (400, "invalid-encoding")
    assert problem_kind(send(pack(b" " * (40 << 20)))) == (413, "too-large")
    assert problem_kind(v1.post("push", content=body, headers={"content-encoding": "br"})) == (
        415,
        "unsupported-media-type",
    )


def test_full_queue_returns_retry_after(v1: httpx.Client, queue: str) -> None:
    v1.patch(f"queues/{queue}", json={"options": {"max_depth_events": 1}})
    v1.post(f"queues/{queue}/groups/slow/pop")
    push(v1, queue, [{"data": 1}])

    response = v1.post("push", json={"batches": [{"queue": unquote(queue), "events": [{"data": 2}]}]})

    assert problem_kind(response) == (429, "queue-full")
    assert (response.json()["depth"], response.json()["limit"]) == (1, 1)
    assert int(response.headers["retry-after"]) >= 1
    assert response.headers["ratelimit-policy"] == '"depth";q=1'

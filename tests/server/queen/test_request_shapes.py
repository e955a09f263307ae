"""Every shape of request that the JavaScript and Go clients send, as their encoders write it.

Go encodes a nil slice as null and leaves out empty fields. JavaScript sends null for options that are not set. Both
send streams in snake_case and everything else in camelCase.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import pytest

from tests.server.queen.client import CLIENT_DEFAULTS, QueenClient, data

_TRACE = "0198c0de-0000-7000-8000-000000000001"
_ADDRESS = {"transactionId": "$transaction", "partitionId": "$partition"}
_JS_ACK = {**_ADDRESS, "error": None, "consumerGroup": "g", "leaseId": "$lease"}
_QUERY = {"query_id": "$query", "partition_id": "$source"}
_CYCLE_ACK = {"transactionId": "$source_transaction", "leaseId": "$source_lease", "status": "completed", "count": 1}
_ENTRY = {"ns": "shapes", "key": "$queue"}
_MINUTE = {"ttlSeconds": 60}
_OTHER = {"ns": "shapes", "key": "$queue-other"}
_LOST = {"reason": "kv_precondition", "failedIndex": 0, "kvReason": "exists", "version": "$version", "value": 7}
_TIMER = {"queue": "$queue", "timerKey": "t/1"}
_PAYLOAD = {"payload": "eyJuIjogMX0="}  # {"n": 1}
_GUARD = {"op": "check", "ns": "queen-locks", "key": "$queue#0", "expect": "$token", "required": True}


class Shape(NamedTuple):
    """A request and the fields that its response must have. Names with a dollar sign stand for values of the test."""

    name: str
    method: str
    path: str
    body: Any = None
    expected: Any = None
    status: int = 200


def kv(name: str, operation: dict[str, Any], expected: Any) -> Shape:
    return Shape(name, "POST", "/api/v1/kv", {"operations": [operation]}, {"results": [expected]})


def locks(name: str, operation: dict[str, Any], expected: Any) -> Shape:
    return Shape(name, "POST", "/api/v1/locks", {"operations": [operation]}, {"results": [expected]})


def timers(name: str, operation: dict[str, Any], expected: Any) -> Shape:
    return Shape(name, "POST", "/api/v1/timers", {"operations": [operation]}, {"results": [expected]})


def go_pop(more: str = "", queue: str = "$path") -> str:
    return f"/api/v1/pop/queue/{queue}?batch=10&timeout=30000&wait=false{more}"


SHAPES = [
    Shape("go: create", "POST", "/api/v1/configure", {"queue": "$queue"}, {"configured": True}),
    Shape("go: create with options null", "POST", "/api/v1/configure", {"queue": "$queue", "options": None}),
    Shape(
        "go: replace, with an unknown option",
        "POST",
        "/api/v1/configure",
        {"queue": "$queue", "options": {"leaseTime": 60, "retentionSinkHold": None, "ttl": 0}, "mode": "replace"},
        {"options": {"leaseTime": 60, "ttl": 0}},
    ),
    Shape(
        "js: create",
        "POST",
        "/api/v1/configure",
        {"queue": "$queue", "namespace": None, "task": None, "options": CLIENT_DEFAULTS},
        {"configured": True, "namespace": "", "options": CLIENT_DEFAULTS},
    ),
    Shape("go: push of nothing", "POST", "/api/v1/push", {"items": None}, [], 201),
    Shape(
        "go: push without partition and id",
        "POST",
        "/api/v1/push",
        {"items": [{"queue": "$queue", "payload": {"n": 1}}]},
        [{"status": "queued", "queueName": "$queue"}],
        201,
    ),
    Shape(
        "js: push of a batch to several partitions",
        "POST",
        "/api/v1/push",
        {
            "items": [
                {"queue": "$queue", "partition": "Default", "payload": None, "transactionId": "j1"},
                {"queue": "$queue", "partition": "q", "payload": [1], "transactionId": "j2", "traceId": _TRACE},
                {"queue": "$queue", "partition": "q", "payload": [1], "transactionId": "j2", "traceId": _TRACE},
            ]
        },
        [{"transaction_id": "j1"}, {"trace_id": _TRACE}, {"status": "duplicate"}],
        201,
    ),
    Shape("go: pop of a group", "GET", go_pop("&consumerGroup=h"), None, {"consumerGroup": "h", "queue": "$queue"}),
    Shape("go: pop of a partition", "GET", go_pop("&consumerGroup=h", "$path/partition/p"), None, {"partition": "p"}),
    Shape("go: pop of nothing", "GET", go_pop("", "$path/partition/none%2F"), status=204),
    Shape("go: pop that commits", "GET", go_pop("&consumerGroup=h&autoAck=true"), None, {"leaseId": ""}),
    Shape(
        "go: pop from all",
        "GET",
        go_pop("&consumerGroup=h&subscriptionMode=all&partitions=4"),
        None,
        {"queue": "$queue"},
    ),
    Shape("go: pop from an old mode", "GET", go_pop("&consumerGroup=h&subscriptionMode=from_beginning")),
    Shape("go: pop from now on", "GET", go_pop("&consumerGroup=i&subscriptionFrom=now"), status=204),
    Shape(
        "js: pop without sizes",
        "GET",
        "/api/v1/pop/queue/$path?wait=false&timeout=30000&consumerGroup=h&autopilot=true",
    ),
    Shape("js: long poll", "GET", "/api/v1/pop/queue/$path?batch=1&wait=true&timeout=200&consumerGroup=g", status=204),
    Shape("js: pop of a namespace", "GET", "/api/v1/pop?batch=1&wait=false&timeout=30000&namespace=none", status=204),
    Shape(
        "go: ack",
        "POST",
        "/api/v1/ack",
        {**_ADDRESS, "leaseId": "$lease", "status": "completed", "consumerGroup": "g"},
        [{"success": True}],
    ),
    Shape("js: ack", "POST", "/api/v1/ack", {**_JS_ACK, "status": "completed"}, [{"success": True, "error": None}]),
    Shape("js: nack", "POST", "/api/v1/ack", {**_JS_ACK, "status": "failed", "error": "no"}, [{"leaseReleased": True}]),
    Shape("js: retry", "POST", "/api/v1/ack", {**_JS_ACK, "status": "retry"}, [{"leaseReleased": True, "dlq": False}]),
    Shape("js: dlq", "POST", "/api/v1/ack", {**_JS_ACK, "status": "dlq"}, [{"success": True, "dlq": True}]),
    Shape(
        "js: ack without a group",
        "POST",
        "/api/v1/ack",
        {**_ADDRESS, "status": "completed", "error": None, "consumerGroup": None},
        [{"success": False}],
    ),
    Shape("go: ack of nothing", "POST", "/api/v1/ack/batch", {"acknowledgments": None}, []),
    Shape(
        "js: ack of a batch",
        "POST",
        "/api/v1/ack/batch",
        {
            "acknowledgments": [{**_ADDRESS, "status": "completed", "error": None, "leaseId": "$lease"}],
            "consumerGroup": "g",
        },
        [{"index": 0, "success": True}],
    ),
    Shape("go: extend", "POST", "/api/v1/lease/$lease/extend", {}, {"success": True, "renewed": 1}),
    Shape(
        "go: transaction of a push of nothing and an ack",
        "POST",
        "/api/v1/transaction",
        {
            "operations": [{"type": "push"}, {"type": "ack", **_ADDRESS, "status": "completed", "consumerGroup": "g"}],
            "requiredLeases": ["$lease"],
        },
        {"success": True, "results": [{"type": "ack", "success": True}]},
    ),
    Shape(
        "go: transaction with null lists",
        "POST",
        "/api/v1/transaction",
        {
            "operations": [
                {"type": "push", "items": None},
                {
                    "type": "push",
                    "items": [{"queue": "$queue", "partition": "Default", "payload": {}, "transactionId": "x"}],
                },
            ],
            "requiredLeases": None,
        },
        {"success": True, "results": [{"type": "push", "status": "queued", "transactionId": "x"}]},
    ),
    Shape(
        "js: transaction of an ack and a push",
        "POST",
        "/api/v1/transaction",
        {
            "operations": [
                {"type": "ack", **_ADDRESS, "status": "completed", "consumerGroup": "g", "leaseId": "$lease"},
                {"type": "push", "items": [{"queue": "$queue", "payload": {"n": 9}, "transactionId": "y"}]},
            ],
            "requiredLeases": ["$lease"],
        },
        {"success": True, "results": [{"index": 0, "type": "ack"}, {"index": 1, "type": "push"}]},
    ),
    Shape(
        "go: register",
        "POST",
        "/streams/v1/queries",
        {"name": "$queue-again", "source_queue": "$queue", "config_hash": "h", "reset": False},
        {"success": True, "fresh": True},
    ),
    Shape(
        "js: register with a sink",
        "POST",
        "/streams/v1/queries",
        {"name": "$queue-js", "source_queue": "$queue", "sink_queue": None, "config_hash": "h", "reset": True},
        {"fresh": True, "reset": False},
    ),
    Shape(
        "go: state of all keys",
        "POST",
        "/streams/v1/state/get",
        {**_QUERY, "keys": None},
        {"success": True, "rows": []},
    ),
    Shape(
        "js: ripe state",
        "POST",
        "/streams/v1/state/get",
        {**_QUERY, "keys": [], "key_prefix": "tumb:1\x1f", "ripe_at_or_before": 1_700_000_000_000},
    ),
    Shape("any: state without keys", "POST", "/streams/v1/state/get", _QUERY, {"rows": []}),
    Shape(
        "go: cycle with null lists",
        "POST",
        "/streams/v1/cycle",
        {
            **_QUERY,
            "consumer_group": "$group",
            "state_ops": None,
            "push_items": None,
            "ack": _CYCLE_ACK,
            "release_lease": True,
        },
        {"success": True, "state_ops_applied": 0, "ack_result": {"lease_released": True}},
    ),
    Shape(
        "js: cycle",
        "POST",
        "/streams/v1/cycle",
        {
            **_QUERY,
            "consumer_group": "$group",
            "state_ops": [{"type": "upsert", "key": "k", "value": {"n": 1}}, {"type": "delete", "key": "l"}],
            "push_items": [{"queue": "$queue-out", "partition": "p", "payload": {"value": 1}}],
            "ack": _CYCLE_ACK,
            "release_lease": False,
        },
        {"success": True, "state_ops_applied": 2, "push_results": [{"status": "queued"}]},
    ),
    Shape("any: cycle without lists", "POST", "/streams/v1/cycle", {**_QUERY, "ack": _CYCLE_ACK}, {"success": True}),
    Shape(
        "go: trace",
        "POST",
        "/api/v1/traces",
        {**_ADDRESS, "consumerGroup": "g", "eventType": "info", "data": {"text": "seen"}},
        {"success": True},
        201,
    ),
    Shape(
        "js: trace",
        "POST",
        "/api/v1/traces",
        {**_ADDRESS, "consumerGroup": "g", "traceNames": None, "eventType": "info", "data": {"text": "seen"}},
        {"success": True},
        201,
    ),
    Shape(
        "go: dead letters",
        "GET",
        "/api/v1/dlq?queue=$path&consumerGroup=g&limit=10&offset=0",
        None,
        {"messages": [], "total": 0},
    ),
    Shape("js: message", "GET", "/api/v1/messages/$partition/$transaction", None, {"queue": "$queue"}),
    Shape("js: messages", "GET", "/api/v1/messages?queue=$path&status=pending&limit=5&offset=0"),
    Shape("js: traces of a message", "GET", "/api/v1/traces/$partition/$transaction", None, {"traces": []}),
    Shape("go: group", "GET", "/api/v1/consumer-groups/g"),
    Shape("go: lagging groups", "GET", "/api/v1/consumer-groups/lagging?minLagSeconds=60"),
    Shape("js: statistics", "POST", "/api/v1/stats/refresh", {}),
    Shape(
        "js: seek to the end", "POST", "/api/v1/consumer-groups/g/queues/$path/seek", {"toEnd": True}, {"success": True}
    ),
    Shape(
        "go: seek to a time",
        "POST",
        "/api/v1/consumer-groups/g/queues/$path/seek",
        {"timestamp": "2026-01-01T00:00:00Z"},
        {"success": True},
    ),
    Shape(
        "go: subscribe",
        "POST",
        "/api/v1/consumer-groups/g/subscription",
        {"subscriptionTimestamp": "2026-01-01T00:00:00Z"},
        {"success": True},
    ),
    Shape(
        "go: delete a group",
        "DELETE",
        "/api/v1/consumer-groups/g/queues/$path?deleteMetadata=false",
        None,
        {"success": True},
    ),
    Shape("go: entry", "GET", "/api/v1/kv/shapes/$go_path", None, {"found": True, "value": 7, "version": "$version"}),
    Shape("go: no entry", "GET", "/api/v1/kv/shapes/none%20here", None, {"found": False}),
    Shape("go: put", "PUT", "/api/v1/kv/shapes/$go_path", {"value": None, **_MINUTE}, {"applied": True}),
    Shape(
        "go: put that expects a version",
        "PUT",
        "/api/v1/kv/shapes/$go_path",
        {"value": {"a": 1}, "forever": True, "expect": "$version"},
        {"applied": True, "value": {"a": 1}},
    ),
    Shape(
        "go: put that is required and lost",
        "PUT",
        "/api/v1/kv/shapes/$go_path",
        {"value": 8, **_MINUTE, "expect": 0, "required": True},
        _LOST,
    ),
    Shape("go: delete without a body", "DELETE", "/api/v1/kv/shapes/$go_path", None, {"applied": True}),
    Shape(
        "go: delete that is required and lost",
        "DELETE",
        "/api/v1/kv/shapes/none",
        {"expect": 5, "required": True},
        {"reason": "kv_precondition", "failedIndex": 0, "kvReason": "absent", "version": 0},
    ),
    Shape(
        "go: batch of entries",
        "POST",
        "/api/v1/kv",
        {
            "operations": [
                {"op": "get", **_ENTRY},
                {"op": "getMany", "ns": "shapes", "keys": ["$queue", "none"]},
                {"op": "putIfAbsent", **_OTHER, "value": None, "forever": True},
                {"op": "delete", "ns": "shapes", "key": "none"},
            ]
        },
        {"results": [{"found": True}, {"missing": ["none"]}, {"applied": True}, {"applied": False}]},
    ),
    kv("go: increment", {"op": "incr", **_OTHER, "delta": 0, "min": 0, "max": 5, **_MINUTE}, {"applied": True}),
    kv("js: get", {"op": "get", **_ENTRY}, {"found": True, "value": 7}),
    kv("js: put", {"op": "put", **_ENTRY, "value": {"v": 1}, **_MINUTE, "expect": "$version"}, {"applied": True}),
    kv("js: once", {"op": "putIfAbsent", **_ENTRY, "value": True, **_MINUTE}, {"applied": False, "reason": "exists"}),
    Shape(
        "js: once that is required and lost",
        "POST",
        "/api/v1/kv",
        {"operations": [{"op": "putIfAbsent", **_ENTRY, "value": True, **_MINUTE, "required": True}]},
        {"ok": False, **_LOST},
    ),
    kv(
        "js: increment above the maximum",
        {"op": "incr", **_ENTRY, "delta": 1, "max": 7, **_MINUTE},
        {"reason": "limit"},
    ),
    kv(
        "js: page of a prefix",
        {"op": "getPrefix", "ns": "shapes", "prefix": "$queue", "limit": 1, "keysOnly": True},
        {"rows": [{"key": "$queue"}], "truncated": False, "nextAfter": None},
    ),
    locks(
        "go: acquire a lock that is held",
        {"op": "acquire", "name": "$queue", "ttlSeconds": 30, "owner": "host:1:ab"},
        {"acquired": False, "reason": "held", "holders": [{"slot": 0, "owner": "o", "token": "$token"}]},
    ),
    locks(
        "go: renew",
        {"op": "renew", "name": "$queue", "ttlSeconds": 30, "owner": "o", "token": "$token"},
        {"renewed": True, "slot": 0, "guard": {"op": "check", "ns": "queen-locks", "required": True}},
    ),
    locks("go: release", {"op": "release", "name": "$queue", "token": "$token"}, {"released": True}),
    locks("go: holders", {"op": "get", "name": "$queue"}, {"held": True, "holders": [{"owner": "o"}]}),
    locks(
        "js: acquire of a semaphore",
        {"op": "acquire", "name": "$queue s", "ttlSeconds": 30, "owner": "p", "limit": 4},
        {"acquired": True, "slot": 0, "owner": "p", "guard": {"key": "$queue s#0"}},
    ),
    locks("js: renew that is lost", {"op": "renew", "name": "none", "token": 5, "ttlSeconds": 3}, {"reason": "lost"}),
    timers(
        "go: schedule",
        {"op": "schedule", "queue": "$queue", "timerKey": "n", "partition": "p", "delayMs": -1, "txn": "x", **_PAYLOAD},
        {"ok": True, "status": "scheduled", "txn": "x"},
    ),
    timers(
        "js: reschedule",
        {"op": "schedule", **_TIMER, "delayMs": 60_000, "txn": "y", **_PAYLOAD},
        {"status": "rescheduled", "txn": "y"},
    ),
    timers("go: cancel in a batch", {"op": "cancel", **_TIMER}, {"ok": True, "status": "cancelled"}),
    Shape("go: timer", "GET", "/api/v1/timers/$path/t/1", None, {"found": True, **_PAYLOAD}),
    Shape("js: cancel", "DELETE", "/api/v1/timers/$path/t%2F1?txn=z", None, {"ok": True, "status": "cancelled"}),
    Shape("go: timers", "GET", "/api/v1/timers/$path?after=s&limit=5", None, {"rows": [_TIMER], "truncated": False}),
    Shape(
        "go: transaction with entries and timers",
        "POST",
        "/api/v1/transaction",
        {
            "operations": [{"type": "ack", **_ADDRESS, "status": "completed", "consumerGroup": "g"}],
            "requiredLeases": ["$lease"],
            "kv": [{"op": "put", **_OTHER, "value": 1, **_MINUTE}, {"op": "get", **_ENTRY}],
            "timers": [{"op": "cancel", **_TIMER}],
        },
        {
            "success": True,
            "results": [
                {"index": 0, "type": "ack"},
                {"index": 1, "type": "kv", "opIndex": 0, "op": "put", "applied": True},
                {"index": 2, "type": "kv", "opIndex": 1, "op": "get", "found": True},
                {"index": 3, "type": "timer", "opIndex": 0, "status": "cancelled"},
            ],
        },
    ),
    Shape(
        "js: transaction that is guarded by a lock",
        "POST",
        "/api/v1/transaction",
        {"operations": [], "requiredLeases": [], "kv": [_GUARD]},
        {"success": True, "results": [{"type": "kv", "applied": True}]},
    ),
    Shape(
        "js: transaction whose marker is lost",
        "POST",
        "/api/v1/transaction",
        {
            "operations": [],
            "requiredLeases": [],
            "kv": [{"op": "putIfAbsent", **_ENTRY, "value": True, **_MINUTE, "required": True}],
        },
        {"success": False, "ok": False, **_LOST},
    ),
    Shape("go: delete a queue", "DELETE", "/api/v1/resources/queues/$path", None, {"deleted": True, "existed": True}),
]


@pytest.fixture
def values(queen: QueenClient, queue: str) -> dict[str, Any]:
    """A queue with a space and a slash in its name, a message that group g holds, and one that a stream holds.

    The names of an entry and of a lock, which is held, are those of the queue. The queue has a timer as well.
    """
    name = f"{queue} a/b"
    path = quote(name, safe="")
    queen.push(name, [{"n": 0}], "p")
    (message,) = queen.pop(path, consumerGroup="g")
    group = f"streams.{name}"
    query = queen.post("/streams/v1/queries", {"name": name, "source_queue": name, "config_hash": "h"})
    (held,) = queen.pop(path, consumerGroup=group)
    put = {"op": "put", "ns": "shapes", "key": name, "value": 7, "forever": True}
    (entry,) = queen.post("/api/v1/kv", {"operations": [put]})["results"]
    acquire = {"op": "acquire", "name": name, "ttlSeconds": 60, "owner": "o"}
    (permit,) = queen.post("/api/v1/locks", {"operations": [acquire]})["results"]
    timer = {"op": "schedule", "queue": name, "timerKey": "t/1", "delayMs": 60_000, **_PAYLOAD}
    queen.post("/api/v1/timers", {"operations": [timer]})
    return {
        "$queue": name,
        "$path": path,
        "$go_path": quote(name, safe="/"),
        "$version": entry["version"],
        "$token": permit["token"],
        "$transaction": message["transactionId"],
        "$partition": message["partitionId"],
        "$lease": message["leaseId"],
        "$query": query["query_id"],
        "$group": group,
        "$source_transaction": held["transactionId"],
        "$source_lease": held["leaseId"],
        "$source": held["partitionId"],
    }


def fill(shape: Any, values: dict[str, Any]) -> Any:
    """Replace the names with a dollar sign in a value; longer names first, since one may start another."""
    if isinstance(shape, str):
        if shape in values:
            return values[shape]
        for name in sorted(values, key=len, reverse=True):
            shape = shape.replace(name, str(values[name]))
        return shape
    if isinstance(shape, dict):
        return {name: fill(value, values) for name, value in shape.items()}
    return [fill(each, values) for each in shape] if isinstance(shape, list) else shape


def assert_contains(found: Any, expected: Any) -> None:
    """Check that a JSON value has the expected fields. Lists must be of the same length."""
    if isinstance(expected, dict):
        for name, value in expected.items():
            assert_contains(found[name], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected), found
        for each, value in zip(found, expected, strict=True):
            assert_contains(each, value)
    else:
        assert found == expected


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_request_of_a_client(queen: QueenClient, values: dict[str, Any], shape: Shape) -> None:
    response = queen.http.request(shape.method, fill(shape.path, values), json=fill(shape.body, values))
    assert response.status_code == shape.status, response.text
    if shape.expected is not None:
        assert_contains(response.json(), fill(shape.expected, values))


def test_long_poll_returns_a_message_that_arrives_while_it_waits(queen: QueenClient, queue: str) -> None:
    popped: list[Any] = []

    def wait_for_message() -> None:
        with httpx.Client(base_url=queen.http.base_url, timeout=40) as http:
            popped.extend(QueenClient(http).pop(queue, batch=1, wait="true", timeout=30000))

    consumer = threading.Thread(target=wait_for_message)
    consumer.start()
    queen.push(queue, ["now"])
    consumer.join()
    assert data(popped) == ["now"]

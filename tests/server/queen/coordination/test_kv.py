from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.corpus.hostile import NAMES
from tests.server.queen.client import QueenClient, data


def run(queen: QueenClient, *operations: dict[str, Any], status: int = 200) -> Any:
    body = {"operations": [{"ns": "orders", **operation} for operation in operations]}
    return queen.post("/api/v1/kv", body, status)


def put(key: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"op": "put", "key": key, "value": value, "ttlSeconds": 60, **more}


def test_results_have_the_index_of_their_operation(queen: QueenClient, queue: str) -> None:
    results = run(queen, put(queue, {"n": 1}), {"op": "get", "key": queue}, {"op": "get", "key": "none"})["results"]
    assert [result["index"] for result in results] == [0, 1, 2]
    assert (results[0]["applied"], results[1]["found"], results[2]["found"]) == (True, True, False)
    assert (results[1]["value"], results[1]["version"]) == ({"n": 1}, results[0]["version"])
    assert results[2]["version"] == 0


def test_a_lost_required_operation_rolls_the_batch_back(queen: QueenClient, queue: str) -> None:
    run(queen, put(queue, 1))
    response = run(queen, put(f"{queue}-new", 1), put(queue, 2, expect=0, required=True))
    assert (response["success"], response["reason"], response["failedIndex"]) == (False, "kv_precondition", 1)
    assert [(each["applied"], each["reason"]) for each in response["results"]] == [
        (False, "rolled_back"),
        (False, "exists"),
    ]
    assert (response["ok"], response["kvReason"], response["value"]) == (False, "exists", 1)
    assert response["version"] == run(queen, {"op": "get", "key": queue})["results"][0]["version"]
    assert run(queen, {"op": "get", "key": f"{queue}-new"})["results"][0]["found"] is False


def test_an_entry_by_its_path(queen: QueenClient, queue: str) -> None:
    path = f"/api/v1/kv/orders/{queue}"
    written = queen.http.put(path, json={"value": [1], "ttlSeconds": 60}).json()
    assert (written["applied"], written["op"], written["key"]) == (True, "put", queue)
    found = queen.get(path)
    assert (found["found"], found["value"], found["version"]) == (True, [1], written["version"])
    stale = queen.http.put(path, json={"value": 2, "forever": True, "expect": written["version"] + 1}).json()
    assert (stale["applied"], stale["reason"], stale["value"]) == (False, "version", [1])
    assert queen.http.delete(path).json()["applied"] is True
    assert queen.http.delete(path).json()["applied"] is False
    assert queen.get(path)["found"] is False


def test_a_lost_required_change_of_an_entry_by_its_path(queen: QueenClient, queue: str) -> None:
    path = f"/api/v1/kv/orders/{queue}"
    version = queen.http.put(path, json={"value": 1, "ttlSeconds": 60}).json()["version"]
    lost = queen.http.put(path, json={"value": 2, "ttlSeconds": 60, "expect": 0, "required": True}).json()
    expected = {"ok": False, "reason": "kv_precondition", "failedIndex": 0, "kvReason": "exists", "version": version}
    assert {name: lost[name] for name in expected} == expected
    assert (lost["applied"], lost["value"], queen.get(path)["value"]) == (False, 1, 1)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("orders/a", {"value": 1}),
        ("orders/a", {"value": 1, "ttlSeconds": 0}),
        ("orders/", {"value": 1, "forever": True}),
    ],
)
def test_an_invalid_change_of_an_entry_by_its_path_has_a_code(path: str, body: Any, queen: QueenClient) -> None:
    response = queen.http.put(f"/api/v1/kv/{path}", json=body)
    assert (response.status_code, response.json()["code"]) == (400, "kv_bad_request")


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "put", "key": "a", "value": 1},
        {"op": "put", "key": "a", "value": 1, "ttlSeconds": 5, "forever": True},
        {"op": "put", "key": "a", "value": 1, "ttlSeconds": 0},
        {"op": "put", "key": "a", "value": 1, "ttlSeconds": 60, "expect": None},
        {"op": "put", "key": "a", "value": 1, "ttlSeconds": 60, "expect": -1},
        {"op": "put", "key": "a", "value": "a\x00b", "ttlSeconds": 60},
        {"op": "put", "key": "a", "value": "x" * (1 << 20), "ttlSeconds": 60},
        {"op": "put", "key": "", "value": 1, "ttlSeconds": 60},
        {"op": "put", "key": "x" * 1025, "value": 1, "ttlSeconds": 60},
        {"op": "put", "ns": "a name", "key": "a", "value": 1, "ttlSeconds": 60},
        {"op": "putIfAbsent", "key": "a", "value": 1, "ttlSeconds": 60, "expect": 3},
        {"op": "incr", "key": "a", "delta": "1", "ttlSeconds": 60},
        {"op": "check", "key": "a"},
        {"op": "getPrefix", "prefix": ""},
        {"op": "getMany", "keys": []},
        {"op": "rename", "key": "a"},
    ],
)
def test_an_invalid_operation_has_a_code(operation: dict[str, Any], queen: QueenClient) -> None:
    error = run(queen, put("valid", 1), operation, status=400)
    assert (error["error"], error["code"]) == ("kv_bad_request", "kv_bad_request")
    assert error["detail"]


@pytest.mark.parametrize("name", [name for name in NAMES if name and len(name) < 200], ids=lambda name: name[:20])
def test_hostile_keys_and_values(name: str, queen: QueenClient) -> None:
    response = queen.http.post("/api/v1/kv", json={"operations": [{"ns": "hostile", **put(name, {name: name})}]})
    if response.status_code == 400:
        return
    result = run(queen, {"op": "get", "ns": "hostile", "key": name})["results"][0]
    assert (result["found"], result["value"]) == (True, {name: name})
    if name not in (".", ".."):  # which HTTP clients remove from paths
        assert queen.get(f"/api/v1/kv/hostile/{quote(name, safe='')}")["value"] == {name: name}


def ack(message: dict[str, Any]) -> dict[str, Any]:
    fields = ("transactionId", "partitionId", "leaseId", "consumerGroup")
    return {"type": "ack", "status": "completed", **{field: message[field] for field in fields}}


def test_a_transaction_commits_messages_entries_and_timers(queen: QueenClient, queue: str) -> None:
    queen.push(queue, [1])
    (message,) = queen.pop(queue, consumerGroup="g")
    payload = "eyJuIjogMX0="  # {"n": 1}
    body = {
        "operations": [ack(message), {"type": "push", "items": [{"queue": f"{queue}-out", "payload": 2}]}],
        "kv": [{"ns": "orders", **put(queue, "done", expect=0, required=True)}],
        "timers": [{"op": "schedule", "queue": f"{queue}-late", "timerKey": "a", "payload": payload, "delayMs": -1}],
    }
    response = queen.post("/api/v1/transaction", body)
    assert response["success"] is True
    assert [result["index"] for result in response["results"]] == [0, 1, 2, 3]
    assert (response["results"][2]["applied"], response["results"][3]["status"]) == (True, "scheduled")
    assert [(each["type"], each["opIndex"]) for each in response["results"][2:]] == [("kv", 0), ("timer", 0)]
    assert data(queen.pop(f"{queue}-out")) == [2]
    assert data(queen.pop(f"{queue}-late", wait=True, timeout=20_000)) == [{"n": 1}]
    assert queen.pop(queue, consumerGroup="g") == []
    again = queen.post("/api/v1/transaction", {**body, "operations": body["operations"][1:]})
    assert (again["success"], again["reason"], again["kvReason"]) == (False, "kv_precondition", "exists")
    assert (again["failedIndex"], again["value"], again["ok"]) == (1, "done", False)
    assert "rolled back" in again["error"]
    assert queen.pop(f"{queue}-out", consumerGroup="other") == [] or len(queen.pop(f"{queue}-out")) == 0
    assert queen.get(f"/api/v1/timers/{quote(queue)}-late")["rows"] == []


def test_a_refused_ack_rolls_entries_and_timers_back(queen: QueenClient, queue: str) -> None:
    queen.push(queue, [1])
    (message,) = queen.pop(queue, consumerGroup="g")
    bogus = {**ack(message), "transactionId": "00000000-0000-4000-8000-000000000000"}
    timer = {"op": "schedule", "queue": queue, "timerKey": "a", "payload": "MQ==", "delayMs": 60_000}
    body = {"operations": [bogus], "kv": [{"ns": "orders", **put(queue, 1)}], "timers": [timer]}
    assert queen.post("/api/v1/transaction", body)["success"] is False
    assert run(queen, {"op": "get", "key": queue})["results"][0]["found"] is False
    assert queen.get(f"/api/v1/timers/{queue}")["rows"] == []


def test_a_transaction_of_entries_alone(queen: QueenClient, queue: str) -> None:
    body: dict[str, Any] = {"operations": [], "kv": [{"ns": "orders", **put(queue, 1)}]}
    assert queen.post("/api/v1/transaction", body)["success"] is True
    prefix = {"operations": [], "kv": [{"ns": "orders", "op": "getPrefix", "prefix": "a"}]}
    assert "get_prefix" in queen.post("/api/v1/transaction", prefix, 400)["error"]
    queen.post("/api/v1/transaction", {"operations": [], "kv": [], "timers": None}, 400)

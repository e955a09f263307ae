from __future__ import annotations

from typing import Any

import pytest

from tests.server.queen.client import QueenClient, data


def run(queen: QueenClient, name: str, op: str, **more: Any) -> Any:
    (result,) = queen.post("/api/v1/locks", {"operations": [{"op": op, "name": name, **more}]})["results"]
    return result


def test_a_lock_is_shared_by_servers(queen: QueenClient, other_queen: QueenClient, queue: str) -> None:
    first = run(queen, queue, "acquire", ttlSeconds=60, owner="a")
    refused = run(other_queen, queue, "acquire", ttlSeconds=60, owner="b")
    assert (refused["acquired"], refused["reason"]) == (False, "held")
    assert [holder["owner"] for holder in refused["holders"]] == ["a"]
    assert run(queen, queue, "release", token=first["token"])["released"] is True
    assert run(other_queen, queue, "get")["held"] is False
    assert run(other_queen, queue, "acquire", ttlSeconds=60, owner="b")["token"] > first["token"]


def test_a_transaction_of_a_replaced_holder_pushes_nothing(queen: QueenClient, queue: str) -> None:
    first = run(queen, queue, "acquire", ttlSeconds=60, owner="a")
    assert run(queen, queue, "release", token=first["token"])["released"] is True
    second = run(queen, queue, "acquire", ttlSeconds=60, owner="b")

    def step(guard: dict[str, Any], payload: str) -> Any:
        push = {"type": "push", "items": [{"queue": queue, "payload": payload}]}
        return queen.post("/api/v1/transaction", {"operations": [push], "kv": [guard]})

    assert step(first["guard"], "old")["kvReason"] == "version"
    assert step(second["guard"], "new")["success"] is True
    assert data(queen.pop(queue)) == ["new"]


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "acquire", "name": "a"},
        {"op": "acquire", "name": "a#0", "ttlSeconds": 5},
        {"op": "acquire", "name": "", "ttlSeconds": 5},
        {"op": "acquire", "name": "a", "ttlSeconds": 5, "limit": 5000},
        {"op": "acquire", "name": "a\nb", "ttlSeconds": 5},
        {"op": "renew", "name": "a", "ttlSeconds": 5},
        {"op": "renew", "name": "a", "ttlSeconds": 5, "token": 1, "slot": 1 << 40},
        {"op": "release", "name": "a", "token": -1},
    ],
)
def test_an_invalid_operation_has_a_code(operation: dict[str, Any], queen: QueenClient) -> None:
    assert queen.post("/api/v1/locks", {"operations": [operation]}, 400)["code"] == "locks_bad_request"

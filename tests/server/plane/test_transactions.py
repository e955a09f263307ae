from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.server.plane.speaking import Plane, data


def ack_of(message: dict[str, Any], status: str = "completed", **more: Any) -> dict[str, Any]:
    return {
        "type": "ack",
        "transactionId": message["transactionId"],
        "partitionId": message["partitionId"],
        "consumerGroup": message["consumerGroup"],
        "status": status,
        **more,
    }


def push_of(queue: str, *payloads: object) -> dict[str, Any]:
    return {"type": "push", "items": [{"queue": queue, "payload": payload} for payload in payloads]}


def test_acks_and_pushes_happen_together(plane: Plane, other: Plane, queue: str) -> None:
    plane.push(queue, [1, 2, 3])
    messages = plane.pop(queue, batch=3, consumerGroup="g")
    lease = messages[0]["leaseId"]
    operations = [
        ack_of(messages[0]),
        push_of(f"{queue}-out", "a", "b"),
        ack_of(messages[1]),
        push_of(f"{queue}-out", "c"),
    ]
    # By another process than the one that delivered, under the lease of the whole or of each.
    done = other.post("/api/v1/transaction", {"operations": operations, "requiredLeases": [lease]})
    assert done["success"] is True
    assert [(each["index"], each["type"]) for each in done["results"]] == [
        (0, "ack"),
        (1, "push"),
        (2, "push"),
        (3, "ack"),
        (4, "push"),
    ]
    assert done["results"][1]["queueName"] == f"{queue}-out"
    assert data(plane.pop(f"{queue}-out", batch=5)) == ["a", "b", "c"]
    last = plane.post("/api/v1/transaction", {"operations": [ack_of(messages[2], leaseId=lease)]})
    assert last["success"] is True
    assert plane.pop(queue, consumerGroup="g") == []


def test_one_ack_that_is_refused_undoes_all(plane: Plane, queue: str) -> None:
    plane.push(queue, [1, 2])
    first, second = plane.pop(queue, batch=2)
    plane.ack(first)
    stale = str(uuid.uuid4())
    for operations, leases, word in (
        ([ack_of(second, leaseId=stale)], [], "lease"),
        ([ack_of(second)], [stale], "lease"),
        ([ack_of(second)], ["no uuid"], "lease"),
        ([ack_of(second, leaseId="no uuid")], [], "lease"),
        ([ack_of({**second, "transactionId": "never"})], [], "unresolv"),
        ([ack_of({**second, "partitionId": str(uuid.uuid4())})], [], "unresolv"),
        ([ack_of(first)], [], "committed"),
        ([ack_of(second, leaseId=second["leaseId"]), ack_of(second, leaseId=stale)], [], "lease"),
    ):
        body = {"operations": [push_of(f"{queue}-out", "lost"), *operations], "requiredLeases": leases}
        answer = plane.post("/api/v1/transaction", body)
        assert answer["success"] is False
        assert word in answer["error"], (word, answer)
        assert "rolled back" in answer["error"]
    assert plane.pop(f"{queue}-out") == []
    assert plane.ack(second)["success"] is True


def test_a_transaction_can_retry_and_bury(plane: Plane, queue: str) -> None:
    plane.configure(queue, retryLimit=0)
    plane.push(queue, ["a"])
    (message,) = plane.pop(queue)
    plane.post("/api/v1/transaction", {"operations": [ack_of(message, "retry"), push_of(f"{queue}-out", "retried")]})
    (message,) = plane.pop(queue)
    body = {"operations": [ack_of(message, "dlq", error="bad"), push_of(f"{queue}-out", "buried")]}
    assert plane.post("/api/v1/transaction", body)["results"][0]["dlq"] is True
    (letter,) = plane.get("/api/v1/dlq", queue=queue)["messages"]
    assert letter["errorMessage"] == "bad"
    assert data(plane.pop(f"{queue}-out", batch=5)) == ["retried", "buried"]


def test_a_push_alone_is_a_transaction_too_and_a_known_message_is_said_to_be(plane: Plane, queue: str) -> None:
    item = {"queue": queue, "payload": 1, "transactionId": "once", "partition": "p"}
    operations = {"operations": [{"type": "push", "items": [item]}]}
    assert plane.post("/api/v1/transaction", operations)["results"][0]["status"] == "queued"
    assert plane.post("/api/v1/transaction", operations)["results"][0]["status"] == "duplicate"
    assert data(plane.pop(queue, batch=5)) == [1]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "operations array required"),
        ({"operations": []}, "operations array cannot be empty"),
        ({"operations": 5}, "operations array required"),
        ({"operations": [{"type": "ack"}]}, "transactionId is required"),
        ({"operations": [{"type": "push"}]}, "items array is required"),
        ({"operations": [{"type": "sing"}]}, "sing"),
        ({"operations": [], "kv": [{"op": "set"}]}, "kv is not offered"),
        ({"timers": [{}]}, "timers is not offered"),
    ],
)
def test_transactions_that_cannot_be_are_refused(plane: Plane, body: object, said: str) -> None:
    assert said in plane.post("/api/v1/transaction", body, 400)["error"]


def test_what_a_full_queue_sheds_is_said_to_have_failed(plane: Plane, queue: str) -> None:
    sheds = {"options": {"overflow": "shed", "max_depth_events": 5}}
    assert plane.http.put(f"/v1/queues/{queue}", json=sheds).status_code < 300
    plane.pop(queue, consumerGroup="slow")
    plane.push(queue, range(5))
    while (results := plane.push(queue, ["more"] * 5, ids=[str(uuid.uuid4()) for _ in range(5)]))[0][
        "status"
    ] == "queued":
        pass  # until the depth is measured again
    assert {(each["status"], each["message_id"]) for each in results} == {("failed", None)}
    done = plane.post("/api/v1/transaction", {"operations": [push_of(queue, "x"), push_of(f"{queue}-out", "y")]})
    assert [(each["success"], each["status"]) for each in done["results"]] == [(False, "failed"), (True, "queued")]

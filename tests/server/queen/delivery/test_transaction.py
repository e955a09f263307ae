from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.server.queen.client import QueenClient, data


def ack_operation(message: dict[str, Any], status: str = "completed", **more: Any) -> dict[str, Any]:
    return {
        "type": "ack",
        "transactionId": message["transactionId"],
        "partitionId": message["partitionId"],
        "consumerGroup": message["consumerGroup"],
        "status": status,
        **more,
    }


def push_operation(queue: str, *payloads: object) -> dict[str, Any]:
    return {"type": "push", "items": [{"queue": queue, "payload": payload} for payload in payloads]}


def test_acks_and_pushes_commit_together(queen: QueenClient, other_queen: QueenClient, queue: str) -> None:
    queen.push(queue, [1, 2, 3])
    messages = queen.pop(queue, batch=3, consumerGroup="g")
    lease = messages[0]["leaseId"]
    operations = [
        ack_operation(messages[0]),
        push_operation(f"{queue}-out", "a", "b"),
        ack_operation(messages[1]),
        push_operation(f"{queue}-out", "c"),
    ]
    # Sent to another process than the one that delivered, with the lease of the request or of each ack.
    done = other_queen.post("/api/v1/transaction", {"operations": operations, "requiredLeases": [lease]})
    assert done["success"] is True
    assert [(each["index"], each["type"]) for each in done["results"]] == [
        (0, "ack"),
        (1, "push"),
        (2, "push"),
        (3, "ack"),
        (4, "push"),
    ]
    assert done["results"][1]["queueName"] == f"{queue}-out"
    assert data(queen.pop(f"{queue}-out", batch=5)) == ["a", "b", "c"]
    last = queen.post("/api/v1/transaction", {"operations": [ack_operation(messages[2], leaseId=lease)]})
    assert last["success"] is True
    assert queen.pop(queue, consumerGroup="g") == []


def test_refused_ack_rolls_everything_back(queen: QueenClient, queue: str) -> None:
    queen.push(queue, [1, 2])
    first, second = queen.pop(queue, batch=2)
    queen.ack(first)
    stale = str(uuid.uuid4())
    for operations, leases, word in (
        ([ack_operation(second, leaseId=stale)], [], "lease"),
        ([ack_operation(second)], [stale], "lease"),
        ([ack_operation(second)], ["no uuid"], "lease"),
        ([ack_operation(second, leaseId="no uuid")], [], "lease"),
        ([ack_operation({**second, "transactionId": "never"})], [], "unresolv"),
        ([ack_operation({**second, "partitionId": str(uuid.uuid4())})], [], "unresolv"),
        ([ack_operation(first)], [], "committed"),
        ([ack_operation(second, leaseId=second["leaseId"]), ack_operation(second, leaseId=stale)], [], "lease"),
    ):
        body = {"operations": [push_operation(f"{queue}-out", "lost"), *operations], "requiredLeases": leases}
        answer = queen.post("/api/v1/transaction", body)
        assert answer["success"] is False
        assert word in answer["error"], (word, answer)
        assert "rolled back" in answer["error"]
    assert queen.pop(f"{queue}-out") == []
    assert queen.ack(second)["success"] is True


def test_transaction_retries_and_dead_letters_messages(queen: QueenClient, queue: str) -> None:
    queen.configure(queue, retryLimit=0)
    queen.push(queue, ["a"])
    (message,) = queen.pop(queue)
    queen.post(
        "/api/v1/transaction",
        {"operations": [ack_operation(message, "retry"), push_operation(f"{queue}-out", "retried")]},
    )
    (message,) = queen.pop(queue)
    body = {
        "operations": [ack_operation(message, "dlq", error="bad"), push_operation(f"{queue}-out", "buried")],
    }
    refused = queen.post("/api/v1/transaction", body)
    assert (refused["success"], "name its lease" in refused["error"]) == (False, True)
    body["requiredLeases"] = [message["leaseId"]]
    assert queen.post("/api/v1/transaction", body)["results"][0]["dlq"] is True
    (letter,) = queen.get("/api/v1/dlq", queue=queue)["messages"]
    assert letter["errorMessage"] == "bad"
    assert data(queen.pop(f"{queue}-out", batch=5)) == ["retried", "buried"]


def test_transaction_of_pushes_only_reports_duplicates(queen: QueenClient, queue: str) -> None:
    item = {"queue": queue, "payload": 1, "transactionId": "once", "partition": "p"}
    operations = {"operations": [{"type": "push", "items": [item]}]}
    assert queen.post("/api/v1/transaction", operations)["results"][0]["status"] == "queued"
    assert queen.post("/api/v1/transaction", operations)["results"][0]["status"] == "duplicate"
    assert data(queen.pop(queue, batch=5)) == [1]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "operations array required"),
        ({"operations": []}, "operations array cannot be empty"),
        ({"operations": 5}, "operations array required"),
        ({"operations": [{"type": "ack"}]}, "transactionId is required"),
        ({"operations": [{"type": "sing"}]}, "sing"),
        ({"operations": [], "kv": [{"op": "set"}]}, "set"),
        ({"timers": [{}]}, "op is required"),
    ],
)
def test_invalid_transactions_are_refused(queen: QueenClient, body: object, message: str) -> None:
    assert message in queen.post("/api/v1/transaction", body, 400)["error"]

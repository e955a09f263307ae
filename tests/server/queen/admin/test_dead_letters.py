from __future__ import annotations

import uuid

from tests.server.queen.client import QueenClient, data


def dead_letter(queen: QueenClient, queue: str, payloads: list[object], partition: str = "p", group: str = "g") -> None:
    queen.push(queue, payloads, partition)
    messages = queen.pop(queue, partition, batch=100, consumerGroup=group)
    for message in messages:
        queen.ack(message, "dlq", error=f"no {message['data']}")


def test_dead_letters_are_paged_newest_first(queen: QueenClient, queue: str) -> None:
    dead_letter(queen, queue, ["a", "b", "c"])
    answer = queen.get("/api/v1/dlq", queue=queue, limit=2, offset=1)
    assert data(answer["messages"]) == ["b", "a"]
    assert (answer["total"], answer["pagination"]) == (3, {"limit": 2, "offset": 1})
    letter = answer["messages"][0]
    assert letter["createdAt"].endswith("Z")
    assert letter["failedAt"].endswith("Z")
    del letter["id"], letter["partitionId"], letter["createdAt"], letter["failedAt"]
    assert letter == {
        "transactionId": "t1",
        "queue": queue,
        "partition": "p",
        "consumerGroup": "g",
        "errorMessage": "no b",
        "retryCount": 1,
        "data": "b",
        "producerSub": None,
    }


def test_dead_letters_are_filtered_by_group_partition_and_time(queen: QueenClient, queue: str) -> None:
    dead_letter(queen, queue, ["a"], "p", "g")
    dead_letter(queen, queue, ["b"], "q", "h")
    failed_at = queen.get("/api/v1/dlq", queue=queue)["messages"][0]["failedAt"]
    for parameters, found in (
        ({"consumerGroup": "g"}, ["a"]),
        ({"partition": "q"}, ["b"]),
        ({"from": failed_at}, ["b"]),
        ({"to": failed_at}, ["a"]),
        ({"consumerGroup": "g", "partition": "q"}, []),
    ):
        answer = queen.get("/api/v1/dlq", queue=queue, **parameters)
        assert (data(answer["messages"]), answer["total"]) == (found, len(found))
    assert queen.get("/api/v1/dlq", queue=f"not-{queue}")["messages"] == []
    assert "ISO" in queen.get("/api/v1/dlq", 400, queue=queue, to="yesterday")["error"]
    assert "limit" in queen.get("/api/v1/dlq", 400, queue=queue, limit=0)["error"]


def test_dead_letters_are_deleted_or_replayed_to_their_group(queen: QueenClient, queue: str) -> None:
    dead_letter(queen, queue, ["a"], "p", "g")
    dead_letter(queen, queue, ["b"], "q", "h")
    assert queen.http.delete("/api/v1/dlq", params={"queue": queue, "consumerGroup": "h"}).json()["deleted"] == 1
    (letter,) = queen.get("/api/v1/dlq", queue=queue)["messages"]
    answer = queen.post(f"/api/v1/dlq/{letter['id']}/replay", {})
    assert answer["success"] is True
    assert queen.get("/api/v1/dlq", queue=queue)["total"] == 0
    assert data(queen.pop(queue, "p", consumerGroup="g")) == ["a"]
    assert queen.post(f"/api/v1/dlq/{letter['id']}/replay", {}, 404)["error"]
    assert queen.post(f"/api/v1/dlq/{uuid.uuid4()}/replay", {}, 404) == {"error": "Message not found"}
    assert queen.http.delete("/api/v1/dlq").json() == {"error": "queue is required"}

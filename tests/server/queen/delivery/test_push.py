from __future__ import annotations

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import httpx
import pytest

from tests.server.access_server import JWT_SECRET, AccessServer
from tests.server.keys import sign_token
from tests.server.queen.client import QueenClient, data


def test_pushed_messages_are_popped_in_order_with_all_fields(queen: QueenClient, queue: str) -> None:
    pushed = queen.push(queue, [{"n": 0}, None, [1, "ü"]], "p")
    assert [(each["index"], each["transaction_id"], each["status"], each["queueName"]) for each in pushed] == [
        (0, "t0", "queued", queue),
        (1, "t1", "queued", queue),
        (2, "t2", "queued", queue),
    ]
    answer = queen.get(f"/api/v1/pop/queue/{queue}", batch=10, consumerGroup="g")
    messages = answer["messages"]
    assert data(messages) == [{"n": 0}, None, [1, "ü"]]
    assert [message["id"] for message in messages] == [each["message_id"] for each in pushed]
    assert sorted(message["id"] for message in messages) == [message["id"] for message in messages]
    assert {message["partitionId"] for message in messages} == {each["partition_id"] for each in pushed}
    UUID(messages[0]["partitionId"])
    assert messages[0]["createdAt"].endswith("Z")
    shared = {"success": True, "queue": queue, "partition": "p", "consumerGroup": "g", "partitionsClaimed": 1}
    assert {name: answer[name] for name in shared} == shared
    assert {message["leaseId"] for message in messages} == {answer["leaseId"]}


def test_a_transaction_id_is_stored_once_per_partition(queen: QueenClient, queue: str) -> None:
    first = queen.push(queue, ["a", "b"], "p", ids=["same", "same"])
    assert [each["status"] for each in first] == ["queued", "duplicate"]
    (again,) = queen.push(queue, ["c"], "p", ids=["same"])
    assert again["status"] == "duplicate"
    assert again["message_id"] == first[0]["message_id"] == first[1]["message_id"]
    (elsewhere,) = queen.push(queue, ["d"], "q", ids=["same"])
    assert elsewhere["status"] == "queued"
    assert sorted(data(queen.pop(queue, partitions=5, batch=10))) == ["a", "d"]


def test_one_request_pushes_to_several_queues_and_partitions(queen: QueenClient, queue: str) -> None:
    items = [{"queue": f"{queue}-{i % 2}", "partition": f"p{i % 3}", "payload": i} for i in range(12)]
    results = queen.post("/api/v1/push", {"items": items}, 201)
    assert [each["index"] for each in results] == list(range(12))
    assert [each["queueName"] for each in results] == [item["queue"] for item in items]
    for number in (0, 1):
        messages = queen.pop(f"{queue}-{number}", batch=100, partitions=10)
        assert {(m["partition"], m["data"]) for m in messages} == {(f"p{i % 3}", i) for i in range(number, 12, 2)}
        assert len({m["leaseId"] for m in messages}) == 1


def test_payloads_are_returned_unchanged(queen: QueenClient, queue: str) -> None:
    payload = '{"big":123456789012345678901234567890,"deep":[[[{"a":1.5}]]],"text":"\\u0000\\ud83d\\ude00"}'
    body = f'{{"items":[{{"queue":"{queue}","payload":{payload},"future":true}}]}}'
    answer = queen.http.post("/api/v1/push", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 201
    assert data(queen.pop(queue)) == [json.loads(payload)]


def test_trace_id_is_stored_and_producer_sub_of_the_request_is_ignored(queen: QueenClient, queue: str) -> None:
    trace = "7b1c2f5e-9a55-4d8f-9d3c-0e8d8f7d9c11"
    item = {"queue": queue, "payload": 1, "traceId": trace, "producerSub": "somebody else"}
    assert queen.post("/api/v1/push", {"items": [item]}, 201)[0]["trace_id"] == trace
    (message,) = queen.pop(queue)
    assert (message["traceId"], message["producerSub"]) == (trace, None)


def test_producer_sub_is_the_subject_of_the_token(access_server: AccessServer, queue: str) -> None:
    token = sign_token(JWT_SECRET, "HS256", role="read-write", sub="alice")
    with httpx.Client(base_url=access_server.url, headers={"Authorization": f"Bearer {token}"}) as http:
        queen = QueenClient(http)
        queen.push(queue, [1])
        assert queen.pop(queue)[0]["producerSub"] == "alice"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "items array is required"),
        ({"items": 1}, "items array is required"),
        ({"items": [{"payload": 1}]}, "queue is required"),
        ({"items": [{"queue": 5}]}, "Queue must be a string"),
        ({"items": [{"queue": "q", "partition": 5}]}, "Partition must be a string"),
        ({"items": [{"queue": "q", "transactionId": 5}]}, "TransactionId must be a string"),
        ({"items": [{"queue": "q", "traceId": 5}]}, "TraceId must be a string"),
        ({"items": [{"queue": ""}]}, "the name of a queue must not be empty"),
        ({"items": [{"queue": "q", "transactionId": "x" * 300}]}, "256"),
    ],
)
def test_invalid_push_is_refused_as_a_whole(queen: QueenClient, body: object, message: str) -> None:
    assert message in queen.post("/api/v1/push", body, 400)["error"]


def test_bodies_that_are_not_json_are_refused(queen: QueenClient) -> None:
    assert queen.http.post("/api/v1/push", content=b"").json() == {"error": "Empty request body"}
    answer = queen.http.post("/api/v1/push", content=b"{")
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("Invalid JSON: ")
    assert queen.post("/api/v1/push", {"items": []}, 201) == []
    assert queen.get("/api/v1/nowhere", 404) == {"error": "Not found"}


def test_push_of_null_is_a_push_of_no_items(queen: QueenClient) -> None:
    assert queen.post("/api/v1/push", {"items": None}, 201) == []


def test_messages_of_several_mebibytes_are_accepted(queen: QueenClient, queue: str) -> None:
    large = "x" * (15 << 20)
    queen.push(queue, [large])
    assert data(queen.pop(queue)) == [large]
    refused = {"items": [{"queue": queue, "payload": "x" * (17 << 20)}]}
    assert str(16 << 20) in queen.post("/api/v1/push", refused, 400)["error"]


def test_push_to_a_full_queue_is_rate_limited(queen: QueenClient, queue: str) -> None:
    queen.configure(queue, maxSize=10)
    queen.pop(queue, consumerGroup="slow")
    queen.push(queue, range(10))
    answer = queen.http.post("/api/v1/push", json={"items": [{"queue": queue, "payload": i} for i in range(9)]})
    if answer.status_code == 201:  # the depth was measured before the first push
        answer = queen.http.post("/api/v1/push", json={"items": [{"queue": queue, "payload": 1}]})
    assert answer.status_code == 429
    assert answer.json()["code"] == "rate_limited"
    assert int(answer.headers["Retry-After"]) >= 1


def test_push_waits_until_a_full_queue_has_room(queen: QueenClient, other_queen: QueenClient, queue: str) -> None:
    queen.configure(queue, maxSize=10)
    queen.pop(queue, consumerGroup="slow")
    queen.push(queue, range(10))
    item = {"items": [{"queue": queue, "payload": "late"}]}
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(other_queen.http.post, "/api/v1/push", json=item)
        # This server waits for half a second, the other one for ten seconds.
        while queen.http.post("/api/v1/push", json=item).status_code == 201:
            pass
        messages = queen.pop(queue, consumerGroup="slow", batch=1000)
        queen.ack_all([(message, "completed") for message in messages])
        assert waiting.result().status_code == 201


def test_messages_shed_by_a_full_queue_are_reported_as_failed(queen: QueenClient, queue: str) -> None:
    options = {"options": {"overflow": "shed", "max_depth_events": 5}}
    assert queen.http.put(f"/v1/queues/{queue}", json=options).status_code < 300
    queen.pop(queue, consumerGroup="slow")
    queen.push(queue, range(5))
    while True:  # until the depth of the queue is measured again
        results = queen.push(queue, ["more"] * 5, ids=[str(uuid.uuid4()) for _ in range(5)])
        if results[0]["status"] != "queued":
            break
    assert {(each["status"], each["message_id"]) for each in results} == {("failed", None)}
    items = [[{"queue": queue, "payload": "x"}], [{"queue": f"{queue}-out", "payload": "y"}]]
    operations = [{"type": "push", "items": each} for each in items]
    done = queen.post("/api/v1/transaction", {"operations": operations})
    assert [(each["success"], each["status"]) for each in done["results"]] == [(False, "failed"), (True, "queued")]

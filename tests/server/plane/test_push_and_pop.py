from __future__ import annotations

import json
import threading
import time
from uuid import UUID

import httpx
import pytest

from tests.server.plane.speaking import Plane, data
from tests.server.serving import Serving, serving


def test_what_is_pushed_is_popped_in_order_with_all_that_a_client_reads(plane: Plane, queue: str) -> None:
    pushed = plane.push(queue, [{"n": 0}, None, [1, "ü"]], "p")
    assert [(each["index"], each["transaction_id"], each["status"], each["queueName"]) for each in pushed] == [
        (0, "t0", "queued", queue),
        (1, "t1", "queued", queue),
        (2, "t2", "queued", queue),
    ]
    answer = plane.get(f"/api/v1/pop/queue/{queue}", batch=10, consumerGroup="g")
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


def test_a_push_is_visible_at_once_and_a_second_pop_finds_nothing(plane: Plane, queue: str) -> None:
    for number in range(20):
        plane.push(queue, [number], ids=[f"id{number}"])
        assert data(plane.pop(queue, autoAck="true", wait="false")) == [number]
    assert plane.http.get(f"/api/v1/pop/queue/{queue}").status_code == 204


def test_a_transaction_id_is_stored_once_per_partition(plane: Plane, queue: str) -> None:
    first = plane.push(queue, ["a", "b"], "p", ids=["same", "same"])
    assert [each["status"] for each in first] == ["queued", "duplicate"]
    (again,) = plane.push(queue, ["c"], "p", ids=["same"])
    assert again["status"] == "duplicate"
    assert again["message_id"] == first[0]["message_id"] == first[1]["message_id"]
    (elsewhere,) = plane.push(queue, ["d"], "q", ids=["same"])
    assert elsewhere["status"] == "queued"
    assert sorted(data(plane.pop(queue, partitions=5, batch=10))) == ["a", "d"]


def test_one_request_may_push_to_many_queues_and_partitions(plane: Plane, queue: str) -> None:
    items = [{"queue": f"{queue}-{i % 2}", "partition": f"p{i % 3}", "payload": i} for i in range(12)]
    results = plane.post("/api/v1/push", {"items": items}, 201)
    assert [each["index"] for each in results] == list(range(12))
    assert [each["queueName"] for each in results] == [item["queue"] for item in items]
    for number in (0, 1):
        messages = plane.pop(f"{queue}-{number}", batch=100, partitions=10)
        assert {(m["partition"], m["data"]) for m in messages} == {(f"p{i % 3}", i) for i in range(number, 12, 2)}
        assert len({m["leaseId"] for m in messages}) == 1


def test_a_batch_is_the_most_over_all_partitions(plane: Plane, queue: str) -> None:
    for partition in "abc":
        plane.push(queue, range(4), partition)
    assert len(plane.pop(queue, batch=6, partitions=3)) == 6
    assert len(plane.pop(queue, batch=100, partitions=1)) == 4


def test_one_partition_is_popped_by_its_name(plane: Plane, queue: str) -> None:
    plane.push(queue, ["a"], "first one")
    plane.push(queue, ["b"], "Zweite/2", ids=["x"])
    assert data(plane.pop(queue, "Zweite%2F2")) == ["b"]
    assert data(plane.pop(queue, "first one")) == ["a"]
    assert plane.pop(queue, "third") == []


def test_payloads_are_given_back_as_they_were_sent(plane: Plane, queue: str) -> None:
    payload = '{"big":123456789012345678901234567890,"deep":[[[{"a":1.5}]]],"text":"\\u0000\\ud83d\\ude00"}'
    body = f'{{"items":[{{"queue":"{queue}","payload":{payload},"future":true}}]}}'
    answer = plane.http.post("/api/v1/push", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 201
    assert data(plane.pop(queue)) == [json.loads(payload)]


def test_a_trace_id_is_kept_and_who_pushed_cannot_be_made_up(plane: Plane, queue: str) -> None:
    trace = "7b1c2f5e-9a55-4d8f-9d3c-0e8d8f7d9c11"
    item = {"queue": queue, "payload": 1, "traceId": trace, "producerSub": "somebody else"}
    assert plane.post("/api/v1/push", {"items": [item]}, 201)[0]["trace_id"] == trace
    (message,) = plane.pop(queue)
    assert (message["traceId"], message["producerSub"]) == (trace, None)


@pytest.mark.parametrize(
    ("body", "said"),
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
def test_a_push_that_cannot_be_right_is_refused_whole(plane: Plane, body: object, said: str) -> None:
    assert said in plane.post("/api/v1/push", body, 400)["error"]


def test_bodies_that_are_no_json_are_refused(plane: Plane) -> None:
    assert plane.http.post("/api/v1/push", content=b"").json() == {"error": "Empty request body"}
    answer = plane.http.post("/api/v1/push", content=b"{")
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("Invalid JSON: ")
    assert plane.post("/api/v1/push", {"items": []}, 201) == []
    assert plane.get("/api/v1/nowhere", 404) == {"error": "Not found"}


def test_a_pop_waits_for_a_push_to_a_queue_that_is_not_there_yet(
    plane: Plane, plane_server: Serving, queue: str
) -> None:
    found: list[object] = []

    def wait() -> None:
        with httpx.Client(base_url=plane_server.url, timeout=30) as client:
            found.extend(data(Plane(client).pop(queue, wait="true", timeout=20000, consumerGroup="g")))

    waiting = threading.Thread(target=wait)
    waiting.start()
    while waiting.is_alive() and not found:
        plane.push(queue, ["x"], ids=["only"])
        waiting.join(0.2)
    assert found == ["x"]


def test_a_group_that_wants_what_is_new_gets_all_of_a_queue_that_was_not_there(plane: Plane, queue: str) -> None:
    assert plane.pop(queue, consumerGroup="g", subscriptionMode="new") == []
    plane.push(queue, ["x"])
    assert data(plane.pop(queue, consumerGroup="g", subscriptionMode="new")) == ["x"]


def test_a_pop_that_waits_in_vain_is_answered_in_time(plane: Plane, queue: str) -> None:
    begun = time.monotonic()
    assert plane.http.get(f"/api/v1/pop/queue/{queue}", params={"wait": "true", "timeout": 300}).status_code == 204
    assert time.monotonic() - begun >= 0.3


def test_what_is_pushed_to_one_process_wakes_a_pop_in_another(plane: Plane, other_server: Serving, queue: str) -> None:
    plane.configure(queue)
    found: list[object] = []

    def wait() -> None:
        with httpx.Client(base_url=other_server.url, timeout=30) as client:
            found.extend(data(Plane(client).pop(queue, wait="true", timeout=20000)))

    waiting = threading.Thread(target=wait)
    waiting.start()
    plane.push(queue, ["x"])
    waiting.join(25)
    assert found == ["x"]


def test_nothing_stays_leased_to_a_client_that_has_gone(plane: Plane, plane_server: Serving, queue: str) -> None:
    plane.configure(queue, leaseTime=600)
    for number in range(5):
        with pytest.raises(httpx.ReadTimeout), httpx.Client(base_url=plane_server.url, timeout=0.05) as client:
            client.get(f"/api/v1/pop/queue/{queue}", params={"wait": "true", "timeout": "30000"})
        plane.push(queue, [number], ids=[f"id{number}"])
        assert data(plane.pop(queue, wait="true", timeout=10000, autoAck="true")) == [number]


def test_a_server_that_stops_answers_its_long_polls(database_url: str) -> None:
    with serving(database_url) as running:
        answers: list[int] = []

        def wait() -> None:
            with httpx.Client(base_url=running.url, timeout=60) as client:
                answers.append(client.get("/api/v1/pop/queue/q", params={"wait": "1", "timeout": "50000"}).status_code)

        with httpx.Client(base_url=running.url, timeout=30) as client:
            Plane(client).configure("q")
            waiting = threading.Thread(target=wait)
            waiting.start()
            # Its group is made before it waits.
            while not Plane(client).get("/api/v1/consumer-groups"):
                pass
            running.process.terminate()
            waiting.join(20)
        assert answers == [204]
        assert running.process.wait(20) == 0


def test_a_client_that_leaves_the_size_to_us_is_told_it(plane: Plane, queue: str) -> None:
    plane.push(queue, range(3), "a")
    plane.push(queue, range(3), "b")
    answer = plane.get(f"/api/v1/pop/queue/{queue}", autopilot="true", frames="true")
    assert len(answer["messages"]) == 6
    assert answer["autopilot"] == {"partitions": 8, "batch": 200, "waitMs": 0}
    assert "conflation" in plane.get(f"/api/v1/pop/queue/{queue}", 400, conflation="true", consumerGroup="g")["error"]


def test_queues_of_a_namespace_are_popped_together(plane: Plane, queue: str) -> None:
    plane.push(f"{queue}.mail.out", ["a"])
    plane.push(f"{queue}.sms", ["b"])
    plane.push(queue, ["c"])
    plane.post("/api/v1/configure", {"queue": f"{queue}-told", "namespace": queue, "task": "fax"})
    plane.push(f"{queue}-told", ["d"])
    found: list[object] = []
    while answer := plane.get("/api/v1/pop", status=200 if len(found) < 3 else 204, namespace=queue):
        found += data(answer["messages"])
    assert sorted(map(str, found)) == ["a", "b", "d"]
    only = plane.get("/api/v1/pop", namespace=queue, task="mail", consumerGroup="g", wait="true", timeout=5000)
    assert (only["queue"], data(only["messages"])) == (f"{queue}.mail.out", ["a"])
    assert "namespace or task" in plane.get("/api/v1/pop", 400)["error"]


def test_a_page_of_another_site_cannot_have_a_browser_take_messages(plane: Plane, queue: str) -> None:
    plane.push(queue, [1])
    path = f"/api/v1/pop/queue/{queue}?autoAck=true"
    # An image or a link: it names no origin, but a browser says where it comes from.
    for site in ("cross-site", "same-site"):
        assert plane.http.get(path, headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}).status_code == 403
    # Who asks for the head of an answer would not get what it holds.
    refused = plane.http.head(path)
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET")
    assert plane.http.get("/healthz", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200
    for site in ("none", "same-origin"):
        plane.push(queue, [site], ids=[site])
        assert plane.http.get(path, headers={"Sec-Fetch-Site": site}).status_code == 200

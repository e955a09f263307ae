from __future__ import annotations

from typing import Any

import pytest

from tests.server.plane.speaking import Plane, data

#: What the Python client sends with every create().
CLIENT_DEFAULTS: dict[str, Any] = {
    "leaseTime": 300,
    "retryLimit": 3,
    "priority": 0,
    "delayedProcessing": 0,
    "windowBuffer": 0,
    "maxSize": 0,
    "retentionSeconds": 0,
    "completedRetentionSeconds": 0,
    "encryptionEnabled": False,
}


def test_a_queue_is_made_with_its_options_and_the_partition_default(plane: Plane, queue: str) -> None:
    body = {"queue": queue, "namespace": None, "task": None, "options": {**CLIENT_DEFAULTS, "leaseTime": 2}}
    answer = plane.post("/api/v1/configure", body)
    assert answer["configured"] is True
    assert (answer["queue"], answer["namespace"], answer["task"]) == (queue, "", "")
    assert answer["options"]["leaseTime"] == 2
    assert answer["options"].keys() >= CLIENT_DEFAULTS.keys() | {"retryDelay", "ttl", "maxWaitTimeSeconds"}
    plane.push(queue, [1])
    assert plane.pop(queue)[0]["partitionId"] == answer["partitionId"]


def test_namespace_and_task_are_those_of_a_dotted_name_unless_they_are_told(plane: Plane, queue: str) -> None:
    answer = plane.configure(f"{queue}.mail.out")
    assert (answer["namespace"], answer["task"]) == (queue, "mail")
    told = plane.post("/api/v1/configure", {"queue": f"{queue}.mail.out", "namespace": "n", "task": "t"})
    assert (told["namespace"], told["task"]) == ("n", "t")
    assert plane.configure(f"{queue}.mail.out", leaseTime=9)["namespace"] == "n"


def test_options_that_are_absent_stay_and_null_is_the_default(plane: Plane, queue: str) -> None:
    plane.configure(queue, leaseTime=7, retryLimit=9)
    kept = plane.configure(queue, retryLimit=5)["options"]
    assert (kept["leaseTime"], kept["retryLimit"]) == (7, 5)
    reset = plane.configure(queue, leaseTime=None)["options"]
    assert (reset["leaseTime"], reset["retryLimit"]) == (300, 5)
    body = {"queue": queue, "options": {"leaseTime": 4}, "mode": "replace"}
    replaced = plane.post("/api/v1/configure", body)["options"]
    assert (replaced["leaseTime"], replaced["retryLimit"]) == (4, 3)


def test_a_queue_is_deleted_with_all_it_held(plane: Plane, queue: str) -> None:
    plane.push(queue, [1, 2])
    path = f"/api/v1/resources/queues/{queue}"
    assert plane.http.delete(path).json() == {"deleted": True, "queue": queue, "existed": True}
    assert plane.http.delete(path).json() == {"deleted": True, "queue": queue, "existed": False}
    assert plane.pop(queue) == []
    plane.push(queue, [3])
    assert data(plane.pop(queue)) == [3]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "queue is required"),
        ({"queue": 5}, "Queue must be a string"),
        ({"queue": "q", "options": {"leaseTime": "long"}}, "leaseTime"),
        ({"queue": "q", "options": {"retryLimit": -1}}, "retry_limit"),
        ({"queue": "q", "options": {"encryptionEnabled": True}}, "encryptionEnabled is not offered"),
    ],
)
def test_options_that_cannot_be_are_refused(plane: Plane, body: object, said: str) -> None:
    assert said in plane.post("/api/v1/configure", body, 400)["error"]


def test_a_message_is_not_seen_before_its_delay_is_over(plane: Plane, queue: str) -> None:
    plane.configure(queue, delayedProcessing=1)
    plane.push(queue, ["later"])
    assert plane.pop(queue) == []
    assert data(plane.pop(queue, wait="true", timeout=20000)) == ["later"]


def test_a_partition_is_not_seen_while_it_is_pushed_to(plane: Plane, queue: str) -> None:
    plane.configure(queue, windowBuffer=1)
    plane.push(queue, ["a"], ids=["a"])
    assert plane.pop(queue) == []
    plane.push(queue, ["b"], ids=["b"])
    assert data(plane.pop(queue, wait="true", timeout=20000, batch=10)) == ["a", "b"]


def test_a_queue_at_its_most_tells_producers_to_wait(plane: Plane, queue: str) -> None:
    plane.configure(queue, maxSize=10)
    plane.pop(queue, consumerGroup="slow")
    plane.push(queue, range(10))
    answer = plane.http.post("/api/v1/push", json={"items": [{"queue": queue, "payload": i} for i in range(9)]})
    if answer.status_code == 201:  # measured before the first push was there
        answer = plane.http.post("/api/v1/push", json={"items": [{"queue": queue, "payload": 1}]})
    assert answer.status_code == 429
    assert answer.json()["code"] == "rate_limited"
    assert int(answer.headers["Retry-After"]) >= 1


@pytest.mark.parametrize("name", ["namespace", "task"])
def test_what_the_database_cannot_hold_is_refused(plane: Plane, queue: str, name: str) -> None:
    assert name in plane.post("/api/v1/configure", {"queue": queue, name: "a\x00b"}, 400)["error"]

from __future__ import annotations

import uuid

import pytest

from tests.server.plane.speaking import Plane, data


def bury(plane: Plane, queue: str, payloads: list[object], partition: str = "p", group: str = "g") -> None:
    plane.push(queue, payloads, partition)
    messages = plane.pop(queue, partition, batch=100, consumerGroup=group)
    for message in messages:
        plane.ack(message, "dlq", error=f"no {message['data']}")


def test_dead_letters_are_listed_newest_first_a_page_at_a_time(plane: Plane, queue: str) -> None:
    bury(plane, queue, ["a", "b", "c"])
    answer = plane.get("/api/v1/dlq", queue=queue, limit=2, offset=1)
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


def test_dead_letters_are_found_by_group_partition_and_time(plane: Plane, queue: str) -> None:
    bury(plane, queue, ["a"], "p", "g")
    bury(plane, queue, ["b"], "q", "h")
    failed_at = plane.get("/api/v1/dlq", queue=queue)["messages"][0]["failedAt"]
    for told, found in (
        ({"consumerGroup": "g"}, ["a"]),
        ({"partition": "q"}, ["b"]),
        ({"from": failed_at}, ["b"]),
        ({"to": failed_at}, ["a"]),
        ({"consumerGroup": "g", "partition": "q"}, []),
    ):
        answer = plane.get("/api/v1/dlq", queue=queue, **told)
        assert (data(answer["messages"]), answer["total"]) == (found, len(found))
    assert plane.get("/api/v1/dlq", queue=f"not-{queue}")["messages"] == []
    assert "ISO" in plane.get("/api/v1/dlq", 400, queue=queue, to="yesterday")["error"]
    assert "limit" in plane.get("/api/v1/dlq", 400, queue=queue, limit=0)["error"]


def test_dead_letters_are_deleted_or_sent_back_to_their_group(plane: Plane, queue: str) -> None:
    bury(plane, queue, ["a"], "p", "g")
    bury(plane, queue, ["b"], "q", "h")
    assert plane.http.delete("/api/v1/dlq", params={"queue": queue, "consumerGroup": "h"}).json()["deleted"] == 1
    (letter,) = plane.get("/api/v1/dlq", queue=queue)["messages"]
    answer = plane.post(f"/api/v1/dlq/{letter['id']}/replay", {})
    assert answer["success"] is True
    assert plane.get("/api/v1/dlq", queue=queue)["total"] == 0
    assert data(plane.pop(queue, "p", consumerGroup="g")) == ["a"]
    assert plane.post(f"/api/v1/dlq/{letter['id']}/replay", {}, 404)["error"]
    assert plane.post(f"/api/v1/dlq/{uuid.uuid4()}/replay", {}, 404) == {"error": "Message not found"}
    assert plane.http.delete("/api/v1/dlq").json() == {"error": "queue is required"}


def test_groups_are_listed_with_how_far_they_are(plane: Plane, queue: str) -> None:
    plane.push(queue, range(4), "a")
    plane.push(queue, range(2), "b")
    messages = plane.pop(queue, "a", batch=3, consumerGroup="g", leaseSeconds=60)
    plane.ack(messages[0])
    (group,) = [each for each in plane.get("/api/v1/consumer-groups") if each["queueName"] == queue]
    assert group["name"] == "g"
    assert (group["topics"], group["members"], group["state"]) == ([queue], 1, "Stable")
    assert (group["partitionsWithLag"], group["totalLag"], group["subscriptionMode"]) == (2, 5, "all")
    partitions = plane.get("/api/v1/consumer-groups/g")[queue]["partitions"]
    assert [(p["partition"], p["totalConsumed"], p["offsetLag"], p["leaseActive"]) for p in partitions] == [
        ("a", 1, 3, True),
        ("b", 0, 2, False),
    ]
    late = [
        each for each in plane.get("/api/v1/consumer-groups/lagging", minLagSeconds=0) if each["queue_name"] == queue
    ]
    assert [(each["partition_name"], each["offset_lag"]) for each in late] == [("a", 3), ("b", 2)]
    assert late[0]["worker_id"] == messages[0]["leaseId"]
    assert plane.get("/api/v1/consumer-groups/lagging") == []
    assert plane.http.post("/api/v1/stats/refresh").json() == {"success": True}


def test_a_group_is_moved_to_a_time_or_to_the_end(plane: Plane, queue: str) -> None:
    plane.push(queue, ["a"], ids=["a"])
    plane.push(queue, ["b"], ids=["b"])
    group = f"/api/v1/consumer-groups/g/queues/{queue}"
    second = plane.pop(queue, batch=5, consumerGroup="g", autoAck="true")[1]
    sought = plane.post(f"{group}/seek", {"timestamp": second["createdAt"]})
    assert (sought["partitionsUpdated"], sought["seekToEnd"]) == (1, False)
    assert data(plane.pop(queue, batch=5, consumerGroup="g")) == ["b"]
    assert plane.post(f"{group}/seek", {"toEnd": True})["seekToEnd"] is True
    assert plane.pop(queue, consumerGroup="g") == []
    plane.post(f"{group}/seek", {"timestamp": "2020-01-01T00:00:00Z"})
    one = plane.http.post(f"{group}/partitions/Default/seek").json()
    assert (one["success"], one["updated"], one["cursorMovedTo"]) == (True, True, second["id"])
    assert plane.pop(queue, consumerGroup="g") == []
    assert plane.post(f"{group}/seek", {}, 400)["error"] == "Must specify either 'toEnd': true or 'timestamp'"
    assert plane.post(f"{group}/seek", {"timestamp": "later"}, 400)["error"]
    assert plane.post(f"/api/v1/consumer-groups/nobody/queues/{queue}/seek", {"toEnd": True}, 404)["error"]
    assert plane.http.post(f"{group}/partitions/none/seek").status_code == 404


def test_a_group_is_forgotten_in_one_queue_or_in_all(plane: Plane, queue: str) -> None:
    group = f"group-{queue}"
    for name in (queue, f"{queue}-2"):
        plane.push(name, [1])
        plane.pop(name, consumerGroup=group)
    path = f"/api/v1/consumer-groups/{group}"
    assert plane.http.delete(f"{path}/queues/{queue}", params={"deleteMetadata": "true"}).json() == {
        "success": True,
        "consumerGroup": group,
        "queueName": queue,
        "deletedPartitions": 1,
        "metadataDeleted": True,
    }
    assert list(plane.get(path)) == [f"{queue}-2"]
    assert plane.http.delete(path).json()["deletedPartitions"] == 1
    assert plane.get(path, 404)["error"]
    assert data(plane.pop(queue, consumerGroup=group)) == [1]


def test_when_a_group_subscribed_can_be_noted(plane: Plane, queue: str) -> None:
    group = f"group-{queue}"
    plane.push(queue, [1])
    plane.pop(queue, consumerGroup=group)
    path = f"/api/v1/consumer-groups/{group}/subscription"
    answer = plane.post(path, {"subscriptionTimestamp": "2026-01-02T03:04:05Z"})
    assert (answer["success"], answer["rowsUpdated"]) == (True, 1)
    (listed,) = [each for each in plane.get("/api/v1/consumer-groups") if each["queueName"] == queue]
    assert listed["subscriptionTimestamp"] == "2026-01-02T03:04:05+00:00"
    assert "subscriptionTimestamp is required" in plane.post(path, {}, 400)["error"]


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "soon"])
def test_a_moment_that_is_none_in_utc_is_refused(plane: Plane, queue: str, moment: str) -> None:
    plane.push(queue, [1])
    plane.pop(queue, consumerGroup="g")
    assert plane.post("/api/v1/consumer-groups/g/subscription", {"subscriptionTimestamp": moment}, 400)["error"]
    assert plane.post(f"/api/v1/consumer-groups/g/queues/{queue}/seek", {"timestamp": moment}, 400)["error"]
    assert plane.http.get("/api/v1/messages", params={"from": moment}).status_code == 400

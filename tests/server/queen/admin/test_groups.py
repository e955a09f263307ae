from __future__ import annotations

from tests.server.queen.client import QueenClient, data


def test_groups_are_listed_with_their_lag(queen: QueenClient, queue: str) -> None:
    queen.push(queue, range(4), "a")
    queen.push(queue, range(2), "b")
    messages = queen.pop(queue, "a", batch=3, consumerGroup="g", leaseSeconds=60)
    queen.ack(messages[0])
    (group,) = [each for each in queen.get("/api/v1/consumer-groups") if each["queueName"] == queue]
    assert group["name"] == "g"
    assert (group["topics"], group["members"], group["state"]) == ([queue], 1, "Stable")
    assert (group["partitionsWithLag"], group["totalLag"], group["subscriptionMode"]) == (2, 5, "all")
    partitions = queen.get("/api/v1/consumer-groups/g")[queue]["partitions"]
    assert [(p["partition"], p["totalConsumed"], p["offsetLag"], p["leaseActive"]) for p in partitions] == [
        ("a", 1, 3, True),
        ("b", 0, 2, False),
    ]
    lagging = [
        each for each in queen.get("/api/v1/consumer-groups/lagging", minLagSeconds=0) if each["queue_name"] == queue
    ]
    assert [(each["partition_name"], each["offset_lag"]) for each in lagging] == [("a", 3), ("b", 2)]
    assert lagging[0]["worker_id"] == messages[0]["leaseId"]
    assert queen.get("/api/v1/consumer-groups/lagging") == []
    assert queen.http.post("/api/v1/stats/refresh").json() == {"success": True}


def test_group_is_deleted_in_one_queue_or_in_all(queen: QueenClient, queue: str) -> None:
    group = f"group-{queue}"
    for name in (queue, f"{queue}-2"):
        queen.push(name, [1])
        queen.pop(name, consumerGroup=group)
    path = f"/api/v1/consumer-groups/{group}"
    assert queen.http.delete(f"{path}/queues/{queue}", params={"deleteMetadata": "true"}).json() == {
        "success": True,
        "consumerGroup": group,
        "queueName": queue,
        "deletedPartitions": 1,
        "metadataDeleted": True,
    }
    assert list(queen.get(path)) == [f"{queue}-2"]
    assert queen.http.delete(path).json()["deletedPartitions"] == 1
    assert queen.get(path, 404)["error"]
    assert data(queen.pop(queue, consumerGroup=group)) == [1]

from __future__ import annotations

import pytest

from tests.server.queen.client import QueenClient, data


def test_seek_moves_a_group_to_a_time_or_to_the_end(queen: QueenClient, queue: str) -> None:
    queen.push(queue, ["a"], ids=["a"])
    queen.push(queue, ["b"], ids=["b"])
    group = f"/api/v1/consumer-groups/g/queues/{queue}"
    second = queen.pop(queue, batch=5, consumerGroup="g", autoAck="true")[1]
    moved = queen.post(f"{group}/seek", {"timestamp": second["createdAt"]})
    assert (moved["partitionsUpdated"], moved["seekToEnd"]) == (1, False)
    assert data(queen.pop(queue, batch=5, consumerGroup="g")) == ["b"]
    assert queen.post(f"{group}/seek", {"toEnd": True})["seekToEnd"] is True
    assert queen.pop(queue, consumerGroup="g") == []
    queen.post(f"{group}/seek", {"timestamp": "2020-01-01T00:00:00Z"})
    one = queen.http.post(f"{group}/partitions/Default/seek").json()
    assert (one["success"], one["updated"], one["cursorMovedTo"]) == (True, True, second["id"])
    assert queen.pop(queue, consumerGroup="g") == []
    assert queen.post(f"{group}/seek", {}, 400)["error"] == "Must specify either 'toEnd': true or 'timestamp'"
    assert queen.post(f"{group}/seek", {"timestamp": "later"}, 400)["error"]
    assert queen.post(f"/api/v1/consumer-groups/nobody/queues/{queue}/seek", {"toEnd": True}, 404)["error"]
    assert queen.http.post(f"{group}/partitions/none/seek").status_code == 404


def test_subscription_time_is_recorded(queen: QueenClient, queue: str) -> None:
    group = f"group-{queue}"
    queen.push(queue, [1])
    queen.pop(queue, consumerGroup=group)
    path = f"/api/v1/consumer-groups/{group}/subscription"
    answer = queen.post(path, {"subscriptionTimestamp": "2026-01-02T03:04:05Z"})
    assert (answer["success"], answer["rowsUpdated"]) == (True, 1)
    (listed,) = [each for each in queen.get("/api/v1/consumer-groups") if each["queueName"] == queue]
    assert listed["subscriptionTimestamp"] == "2026-01-02T03:04:05+00:00"
    assert "subscriptionTimestamp is required" in queen.post(path, {}, 400)["error"]


@pytest.mark.parametrize("timestamp", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "soon"])
def test_invalid_timestamps_are_refused(queen: QueenClient, queue: str, timestamp: str) -> None:
    queen.push(queue, [1])
    queen.pop(queue, consumerGroup="g")
    assert queen.post("/api/v1/consumer-groups/g/subscription", {"subscriptionTimestamp": timestamp}, 400)["error"]
    assert queen.post(f"/api/v1/consumer-groups/g/queues/{queue}/seek", {"timestamp": timestamp}, 400)["error"]
    assert queen.http.get("/api/v1/messages", params={"from": timestamp}).status_code == 400

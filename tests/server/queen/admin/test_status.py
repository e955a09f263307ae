from __future__ import annotations

import pytest

from tests.server.queen.client import QueenClient


def test_overview_sums_up_all_queues(queen: QueenClient, queue: str) -> None:
    name = f"{queue}.mail.out"
    before = queen.get("/api/v1/resources/overview")
    queen.push(name, range(3), "p")
    (first, *_) = queen.pop(name, batch=2, consumerGroup="g")
    after = queen.get("/api/v1/status")
    assert after["messages"]["total"] - before["messages"]["total"] == 3
    assert after["queues"] - before["queues"] == after["partitions"] - before["partitions"] == 1
    assert after["leases"]["active"] - before["leases"]["active"] == 1
    queen.ack(first)
    queues = {each["name"]: each for each in queen.get("/api/v1/status/queues")["queues"]}
    assert (queues[name]["namespace"], queues[name]["task"], queues[name]["partitions"]) == (queue, "mail", 1)
    assert queues[name]["messages"] == {"total": 3, "pending": 2, "completed": 1, "deadLetter": 0}


def test_depth_is_that_of_a_group_or_of_the_slowest(queen: QueenClient, queue: str) -> None:
    for partition, count in (("a", 3), ("b", 1)):
        queen.push(queue, range(count), partition)
    path = f"/api/v1/resources/queues/{queue}/depth"
    without_groups = queen.get(path)
    assert (without_groups["pending"], without_groups["group"]) == (4, None)
    queen.pop(queue, consumerGroup="slow")
    queen.ack_all([(message, "completed") for message in queen.pop(queue, "a", batch=2, consumerGroup="quick")])
    quick = queen.get(path, group="quick")
    assert (quick["group"], quick["pending"], quick["partitionsPending"]) == ("quick", 2, 2)
    assert (quick["effectivePending"], quick["conflation"]) == (2, False)
    assert quick["partitions"] == [{"partition": "a", "pending": 1}, {"partition": "b", "pending": 1}]
    slowest = queen.get(f"/api/v1/status/queues/{queue}")
    assert [each["pending"] for each in slowest["partitions"]] == [3, 1]
    queen.get("/api/v1/resources/queues/none/depth", 404)


@pytest.mark.parametrize("path", ["/api/v1/system/maintenance", "/api/v1/system/maintenance/pop"])
def test_maintenance_mode_is_always_off(queen: QueenClient, path: str) -> None:
    for answer in (queen.get(path), queen.post(path, {"enabled": False})):
        assert (answer["maintenanceMode"], answer["popMaintenanceMode"], answer["bufferedMessages"]) == (
            False,
            False,
            0,
        )
    assert "no maintenance mode" in queen.post(path, {"enabled": True}, 409)["error"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/analytics/system-metrics",
        "/api/v1/analytics/worker-metrics",
        "/api/v1/analytics/postgres-stats",
        "/api/v1/status/analytics",
        "/api/v1/status/buffers",
        "/api/v1/ephemeral/queues",
        "/api/v1/system/shared-state",
    ],
)
def test_routes_that_are_not_offered_say_so(queen: QueenClient, path: str) -> None:
    assert "not offered: " in queen.get(path, 404)["error"]


def test_prometheus_metrics_have_the_address_of_queens_server(queen: QueenClient) -> None:
    response = queen.http.get("/metrics/prometheus", headers={"Accept": "application/json"})
    assert response.headers["content-type"].startswith("text/plain")
    assert "penstock_http_requests_total" in response.text

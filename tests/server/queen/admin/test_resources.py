from __future__ import annotations

from tests.server.queen.client import QueenClient


def test_queues_are_listed_with_namespace_and_task(queen: QueenClient, queue: str) -> None:
    queen.push(f"{queue}.mail.out", [1, 2], "p")
    listed = queen.get("/api/v1/resources/queues", namespace=queue)
    assert [(each["name"], each["task"], each["messages"]) for each in listed["queues"]] == [
        (f"{queue}.mail.out", "mail", 2)
    ]
    detail = queen.get(f"/api/v1/resources/queues/{queue}.mail.out")
    assert (detail["namespace"], detail["partitions"], detail["options"]["leaseTime"]) == (queue, 1, 300)
    assert {"name": queue, "queues": 1} in queen.get("/api/v1/resources/namespaces")["namespaces"]
    assert "mail" in [each["name"] for each in queen.get("/api/v1/resources/tasks")["tasks"]]
    (partition,) = queen.get("/api/v1/resources/partitions", queue=f"{queue}.mail.out")["partitions"]
    assert (partition["name"], partition["messages"]) == ("p", 2)
    assert queen.get("/api/v1/resources/queues/none", 404) == {"error": "Queue not found"}


def test_health_has_the_fields_that_clients_read(queen: QueenClient) -> None:
    answer = queen.get("/health")
    assert (answer["status"], answer["database"], answer["server"]) == ("healthy", "connected", "penstock")

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import psycopg

from tests.client.conditions import soon
from tests.server.plane.speaking import Plane, data


def test_messages_are_listed_newest_first_with_how_far_they_are(plane: Plane, queue: str) -> None:
    plane.push(queue, range(4), "p")
    messages = plane.pop(queue, batch=3, consumerGroup="g", leaseSeconds=60)
    plane.ack(messages[0])
    plane.ack(messages[1], "dlq")
    answer = plane.get("/api/v1/messages", queue=queue)
    listed = answer["messages"]
    assert [(each["transactionId"], each["status"]) for each in listed] == [
        ("t3", "pending"),
        ("t2", "processing"),
        ("t1", "dead_letter"),
        ("t0", "completed"),
    ]
    assert answer["mode"] == {"hasQueueMode": False, "busGroupsCount": 1, "type": "bus"}
    assert listed[0]["queuePath"] == f"{queue}/p"
    assert (listed[3]["busStatus"], listed[0]["busStatus"]) == (
        {"consumedBy": 1, "totalGroups": 1},
        {"consumedBy": 0, "totalGroups": 1},
    )
    page = plane.get("/api/v1/messages", queue=queue, limit=2, offset=1)["messages"]
    assert [each["transactionId"] for each in page] == ["t2", "t1"]
    pending = plane.http.get("/api/v1/messages", params={"queue": queue, "status": "pending"}).json()["messages"]
    assert [each["transactionId"] for each in pending] == ["t3"]
    assert plane.get("/api/v1/messages", queue=queue, partition="q")["messages"] == []
    assert plane.get("/api/v1/messages", queue=queue, to="2020-01-01T00:00:00Z")["messages"] == []
    assert plane.get("/api/v1/messages", 400, queue=queue, to="then")["error"]


def test_a_message_is_looked_at_by_its_partition_and_id(plane: Plane, queue: str) -> None:
    plane.push(queue, [{"n": 1}], "p")
    plane.pop(queue, consumerGroup="g", leaseSeconds=60)
    (message,) = plane.pop(queue)
    path = f"/api/v1/messages/{message['partitionId']}"
    one = plane.get(f"{path}/t0")
    assert (one["payload"], one["status"], one["isEncrypted"]) == ({"n": 1}, "processing", False)
    assert (one["id"], one["partition"], one["queue"]) == (message["id"], "p", queue)
    assert one["queueConfig"].keys() == {"leaseTime", "retryLimit", "retryDelay", "ttl", "priority"}
    assert [(each["name"], each["consumed"]) for each in one["consumerGroups"]] == [
        ("__QUEUE_MODE__", False),
        ("g", False),
    ]
    assert one["consumerGroups"][1]["leaseExpiresAt"].endswith("Z")
    assert one["mode"]["type"] == "hybrid"
    plane.ack(message, "dlq", error="why")
    assert plane.get(f"{path}/t0")["errorMessage"] == "why"
    assert plane.get(f"{path}/none", 404) == {"error": "Message not found"}
    assert plane.get(f"/api/v1/messages/{uuid.uuid4()}/t0", 404) == {"error": "Message not found"}


def test_a_message_is_moved_to_the_dead_letters_and_back_but_never_deleted(plane: Plane, queue: str) -> None:
    plane.push(queue, ["a", "b"])
    (message,) = plane.pop(queue, batch=1)
    plane.ack(message, "retry")
    path = f"/api/v1/messages/{message['partitionId']}/t0"
    assert "dead letter" in plane.post(f"{path}/retry", {}, 409)["error"]
    assert plane.post(f"{path}/dlq", {})["success"] is True
    assert data(plane.pop(queue, batch=5, autoAck="true")) == ["b"]
    assert plane.http.post(f"{path}/retry").json()["success"] is True
    assert data(plane.pop(queue, batch=5)) == ["a"]
    refused = plane.http.delete(path)
    assert (refused.status_code, "append-only" in refused.json()["error"]) == (409, True)
    assert plane.http.delete(f"/api/v1/queues/{queue}/clear").status_code == 409


def test_traces_are_kept_with_their_message_and_under_their_names(plane: Plane, queue: str) -> None:
    plane.push(queue, [{"n": 1}])
    (message,) = plane.pop(queue)
    body = {
        "transactionId": "t0",
        "partitionId": message["partitionId"],
        "consumerGroup": "g",
        "traceNames": [f"order-{queue}", f"user-{queue}"],
        "eventType": "info",
        "data": {"text": "begun", "n": 1.5},
    }
    made = plane.post("/api/v1/traces", body, 201)
    assert made["success"] is True
    plane.post("/api/v1/traces", {**body, "traceNames": f"order-{queue}", "data": None, "consumerGroup": None}, 201)
    found = plane.get(f"/api/v1/traces/{message['partitionId']}/t0")["traces"]
    assert [(each["data"], each["consumer_group"]) for each in found] == [
        ({"text": "begun", "n": 1.5}, "g"),
        (None, "__QUEUE_MODE__"),
    ]
    assert found[0]["id"] == made["traceId"]
    named = plane.get(f"/api/v1/traces/by-name/order-{queue}", limit=1, offset=1)
    assert (named["total"], named["pagination"]) == (2, {"limit": 1, "offset": 1})
    (trace,) = named["traces"]
    assert (trace["queue_name"], trace["partition_name"], trace["message_payload"]) == (queue, "Default", {"n": 1})
    names = {each["trace_name"]: each for each in plane.get("/api/v1/traces/names", limit=1000)["trace_names"]}
    assert (names[f"order-{queue}"]["trace_count"], names[f"order-{queue}"]["message_count"]) == (2, 1)
    missing = plane.post("/api/v1/traces", {**body, "transactionId": "none"}, 404)
    assert missing == {"success": False, "error": "Message not found"}
    assert "data is required" in plane.post("/api/v1/traces", {"transactionId": "t", "partitionId": "p"}, 400)["error"]
    assert plane.post("/api/v1/traces", {**body, "data": {"nul": "\x00"}}, 400)["error"]


def test_queues_are_listed_with_namespace_and_task(plane: Plane, queue: str) -> None:
    plane.push(f"{queue}.mail.out", [1, 2], "p")
    listed = plane.get("/api/v1/resources/queues", namespace=queue)
    assert [(each["name"], each["task"], each["messages"]) for each in listed["queues"]] == [
        (f"{queue}.mail.out", "mail", 2)
    ]
    detail = plane.get(f"/api/v1/resources/queues/{queue}.mail.out")
    assert (detail["namespace"], detail["partitions"], detail["options"]["leaseTime"]) == (queue, 1, 300)
    assert {"name": queue, "queues": 1} in plane.get("/api/v1/resources/namespaces")["namespaces"]
    assert "mail" in [each["name"] for each in plane.get("/api/v1/resources/tasks")["tasks"]]
    (partition,) = plane.get("/api/v1/resources/partitions", queue=f"{queue}.mail.out")["partitions"]
    assert (partition["name"], partition["messages"]) == ("p", 2)
    assert plane.get("/api/v1/resources/queues/none", 404) == {"error": "Queue not found"}


def test_health_is_what_clients_ask_for(plane: Plane) -> None:
    answer = plane.get("/health")
    assert (answer["status"], answer["database"], answer["server"]) == ("healthy", "connected", "penstock")


def test_looks_that_take_long_keep_nobody_from_pushing_and_end_when_their_callers_leave(
    plane: Plane, queue: str, plane_url: str
) -> None:
    plane.push(queue, [1])
    paths = [f"/v1/queues/{queue}/events?id=nothing", f"/api/v1/messages?queue={queue}"]

    def look(path: str) -> None:
        with suppress(httpx.TimeoutException):
            httpx.get(str(plane.http.base_url) + path, timeout=1)

    with psycopg.connect(plane_url) as holder, psycopg.connect(plane_url, autocommit=True) as watcher:
        ((table,),) = holder.execute(
            "SELECT format('chunks_%%s_%%s', id, segment) FROM penstock.queues WHERE name = %s", [queue]
        ).fetchall()

        def looks() -> int:
            ((count,),) = watcher.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s",
                [f"%k.body FROM penstock.{table} k%"],
            ).fetchall()
            return int(count)

        holder.execute(f"LOCK TABLE penstock.{table} IN ACCESS EXCLUSIVE MODE".encode())
        with ThreadPoolExecutor(12) as callers:
            asked = [callers.submit(look, path) for path in paths * 6]
            soon(lambda: looks() == 2)
            # Of eight connections two are for looking.
            plane.push(f"{queue}-other", [1])
            assert looks() <= 2
        soon(lambda: looks() == 0)
        assert all(each.done() for each in asked)
    assert [plane.http.get(path).status_code for path in paths] == [200, 200]

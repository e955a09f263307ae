from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import psycopg
import pytest

from tests.conditions import eventually
from tests.server.queen.client import QueenClient, data


def test_messages_are_listed_newest_first_with_their_status(queen: QueenClient, queue: str) -> None:
    queen.push(queue, range(4), "p")
    messages = queen.pop(queue, batch=3, consumerGroup="g", leaseSeconds=60)
    queen.ack(messages[0])
    queen.ack(messages[1], "dlq")
    answer = queen.get("/api/v1/messages", queue=queue)
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
    page = queen.get("/api/v1/messages", queue=queue, limit=2, offset=1)["messages"]
    assert [each["transactionId"] for each in page] == ["t2", "t1"]
    pending = queen.http.get("/api/v1/messages", params={"queue": queue, "status": "pending"}).json()["messages"]
    assert [each["transactionId"] for each in pending] == ["t3"]
    assert queen.get("/api/v1/messages", queue=queue, partition="q")["messages"] == []
    assert queen.get("/api/v1/messages", queue=queue, to="2020-01-01T00:00:00Z")["messages"] == []
    assert queen.get("/api/v1/messages", 400, queue=queue, to="then")["error"]


def test_message_is_shown_by_partition_and_id(queen: QueenClient, queue: str) -> None:
    queen.push(queue, [{"n": 1}], "p")
    queen.pop(queue, consumerGroup="g", leaseSeconds=60)
    (message,) = queen.pop(queue)
    path = f"/api/v1/messages/{message['partitionId']}"
    one = queen.get(f"{path}/t0")
    assert (one["payload"], one["status"], one["isEncrypted"]) == ({"n": 1}, "processing", False)
    assert (one["id"], one["partition"], one["queue"]) == (message["id"], "p", queue)
    assert one["queueConfig"].keys() == {"leaseTime", "retryLimit", "retryDelay", "ttl", "priority"}
    assert [(each["name"], each["consumed"]) for each in one["consumerGroups"]] == [
        ("__QUEUE_MODE__", False),
        ("g", False),
    ]
    assert one["consumerGroups"][1]["leaseExpiresAt"].endswith("Z")
    assert one["mode"]["type"] == "hybrid"
    queen.ack(message, "dlq", error="why")
    assert queen.get(f"{path}/t0")["errorMessage"] == "why"
    assert queen.get(f"{path}/none", 404) == {"error": "Message not found"}
    assert queen.get(f"/api/v1/messages/{uuid.uuid4()}/t0", 404) == {"error": "Message not found"}


def test_message_is_dead_lettered_and_replayed_but_never_deleted(queen: QueenClient, queue: str) -> None:
    queen.push(queue, ["a", "b"])
    (message,) = queen.pop(queue, batch=1)
    queen.ack(message, "retry")
    path = f"/api/v1/messages/{message['partitionId']}/t0"
    assert "dead letter" in queen.post(f"{path}/retry", {}, 409)["error"]
    assert queen.post(f"{path}/dlq", {})["success"] is True
    assert data(queen.pop(queue, batch=5, autoAck="true")) == ["b"]
    assert queen.http.post(f"{path}/retry").json()["success"] is True
    assert data(queen.pop(queue, batch=5)) == ["a"]
    refused = queen.http.delete(path)
    assert (refused.status_code, "append-only" in refused.json()["error"]) == (409, True)
    assert queen.http.delete(f"/api/v1/queues/{queue}/clear").status_code == 409


@pytest.mark.slow
def test_slow_searches_do_not_block_pushes_and_end_with_their_clients(
    queen: QueenClient, queue: str, queen_url: str
) -> None:
    queen.push(queue, [1])
    paths = [f"/v1/queues/{queue}/events?id=nothing", f"/api/v1/messages?queue={queue}"]

    def search(path: str) -> None:
        with suppress(httpx.TimeoutException):
            httpx.get(str(queen.http.base_url) + path, timeout=1)

    with psycopg.connect(queen_url) as holder, psycopg.connect(queen_url, autocommit=True) as watcher:
        ((table,),) = holder.execute(
            "SELECT format('chunks_%%s_%%s', id, segment) FROM penstock.queues WHERE name = %s", [queue]
        ).fetchall()

        def running_searches() -> int:
            ((count,),) = watcher.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %s",
                [f"%k.body FROM penstock.{table} k%"],
            ).fetchall()
            return int(count)

        holder.execute(f"LOCK TABLE penstock.{table} IN ACCESS EXCLUSIVE MODE".encode())
        with ThreadPoolExecutor(12) as callers:
            searches = [callers.submit(search, path) for path in paths * 6]
            eventually(lambda: running_searches() == 2)
            # Two of the eight connections are for searches.
            queen.push(f"{queue}-other", [1])
            assert running_searches() <= 2
        eventually(lambda: running_searches() == 0)
        assert all(each.done() for each in searches)
    assert [queen.http.get(path).status_code for path in paths] == [200, 200]

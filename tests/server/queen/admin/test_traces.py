from __future__ import annotations

from tests.server.queen.client import QueenClient


def test_traces_are_listed_by_message_and_by_name(queen: QueenClient, queue: str) -> None:
    queen.push(queue, [{"n": 1}])
    (message,) = queen.pop(queue)
    body = {
        "transactionId": "t0",
        "partitionId": message["partitionId"],
        "consumerGroup": "g",
        "traceNames": [f"order-{queue}", f"user-{queue}"],
        "eventType": "info",
        "data": {"text": "begun", "n": 1.5},
    }
    made = queen.post("/api/v1/traces", body, 201)
    assert made["success"] is True
    queen.post("/api/v1/traces", {**body, "traceNames": f"order-{queue}", "data": None, "consumerGroup": None}, 201)
    found = queen.get(f"/api/v1/traces/{message['partitionId']}/t0")["traces"]
    assert [(each["data"], each["consumer_group"]) for each in found] == [
        ({"text": "begun", "n": 1.5}, "g"),
        (None, "__QUEUE_MODE__"),
    ]
    assert found[0]["id"] == made["traceId"]
    named = queen.get(f"/api/v1/traces/by-name/order-{queue}", limit=1, offset=1)
    assert (named["total"], named["pagination"]) == (2, {"limit": 1, "offset": 1})
    (trace,) = named["traces"]
    assert (trace["queue_name"], trace["partition_name"], trace["message_payload"]) == (queue, "Default", {"n": 1})
    names = {each["trace_name"]: each for each in queen.get("/api/v1/traces/names", limit=1000)["trace_names"]}
    assert (names[f"order-{queue}"]["trace_count"], names[f"order-{queue}"]["message_count"]) == (2, 1)
    missing = queen.post("/api/v1/traces", {**body, "transactionId": "none"}, 404)
    assert missing == {"success": False, "error": "Message not found"}
    assert "data is required" in queen.post("/api/v1/traces", {"transactionId": "t", "partitionId": "p"}, 400)["error"]
    assert queen.post("/api/v1/traces", {**body, "data": {"nul": "\x00"}}, 400)["error"]

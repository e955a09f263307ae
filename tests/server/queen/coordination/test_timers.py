from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest
import zstandard

from tests.corpus.hostile import NAMES
from tests.server.queen.client import QueenClient, data


def schedule(queue: str, key: str, value: Any, delay_ms: int, **more: Any) -> dict[str, Any]:
    payload = base64.b64encode(json.dumps(value).encode()).decode()
    return {"op": "schedule", "queue": queue, "timerKey": key, "payload": payload, "delayMs": delay_ms, **more}


def run(queen: QueenClient, *operations: dict[str, Any], status: int = 200) -> Any:
    return queen.post("/api/v1/timers", {"operations": operations}, status)


def test_a_message_has_the_ids_that_were_promised(queen: QueenClient, queue: str) -> None:
    (result,) = run(queen, schedule(queue, "a", {"n": 1}, 100, txn="t1", partition="p"))["results"]
    assert (result["ok"], result["status"], result["txn"]) == (True, "scheduled", "t1")
    (message,) = queen.pop(queue, wait=True, timeout=20_000)
    assert (message["data"], message["partition"]) == ({"n": 1}, "p")
    assert (message["transactionId"], message["id"]) == ("t1", result["messageId"])
    listed = queen.get("/api/v1/messages", queue=queue)["messages"]
    assert [each["id"] for each in listed] == [result["messageId"]]
    assert queen.ack(message)["success"] is True


def test_the_payload_of_a_scheduled_message_can_be_read(queen: QueenClient, queue: str) -> None:
    run(queen, schedule(queue, "a/b", {"n": 1}, 60_000))
    found = queen.get(f"/api/v1/timers/{queue}/a/b")
    assert (found["found"], json.loads(base64.b64decode(found["payload"]))) == (True, {"n": 1})
    assert queen.get(f"/api/v1/timers/{queue}/none") == {"found": False}
    assert queen.get(f"/api/v1/timers/{queue}-none")["rows"] == []


def test_a_compressed_payload(queen: QueenClient, queue: str) -> None:
    packed = base64.b64encode(zstandard.compress(b'{"n": 2}')).decode()
    run(queen, {**schedule(queue, "a", None, -1), "payload": packed, "payloadZstd": True})
    assert data(queen.pop(queue, wait=True, timeout=20_000)) == [{"n": 2}]


def test_compressed_payloads_are_limited_in_total(queen: QueenClient, queue: str) -> None:
    packed = base64.b64encode(zstandard.compress(b'"' + b"x" * (12 << 20) + b'"')).decode()
    operations = [
        {**schedule(queue, f"timer {n}", None, 600_000), "payload": packed, "payloadZstd": True} for n in range(3)
    ]
    assert "in total" in run(queen, *operations, status=400)["detail"]
    assert queen.get(f"/api/v1/timers/{queue}")["rows"] == []


@pytest.mark.parametrize(
    "change",
    [
        {"payload": "not base64"},
        {"payload": base64.b64encode(b"not json").decode()},
        {"payload": base64.b64encode(b"not zstd").decode(), "payloadZstd": True},
        {"payload": None},
        {"delayMs": None},
        {"delayMs": 1e18},
        {"timerKey": ""},
        {"queue": ""},
        {"producerSub": "somebody"},
        {"deliverAt": "2030-01-01"},
    ],
    ids=str,
)
def test_an_invalid_operation_has_a_code(change: dict[str, Any], queen: QueenClient, queue: str) -> None:
    error = run(queen, {**schedule(queue, "a", 1, 60_000), **change}, status=400)
    assert error["code"] == "timers_bad_request"


@pytest.mark.parametrize("name", [name for name in NAMES if name.isprintable() and name != ".."], ids=lambda n: n[:20])
def test_hostile_keys(name: str, queen: QueenClient) -> None:
    queue = "hostile timers"
    run(queen, schedule(queue, name, name, 600_000, txn=name))
    path = f"/api/v1/timers/{quote(queue)}/{quote(name, safe='')}"
    found = queen.get(path)
    assert (found["timerKey"], found["txn"]) == (name, name)
    response = queen.http.delete(path)
    assert (response.json()["status"], queen.get(path)) == ("cancelled", {"found": False})

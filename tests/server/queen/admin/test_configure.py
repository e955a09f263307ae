from __future__ import annotations

import base64
import os
from typing import Any

import httpx
import pytest

from tests.conditions import eventually
from tests.server.queen.client import CLIENT_DEFAULTS, QueenClient, data
from tests.server.server_process import run_server


def test_configure_creates_a_queue_with_its_options_and_the_default_partition(queen: QueenClient, queue: str) -> None:
    body = {"queue": queue, "namespace": None, "task": None, "options": {**CLIENT_DEFAULTS, "leaseTime": 2}}
    answer = queen.post("/api/v1/configure", body)
    assert answer["configured"] is True
    assert (answer["queue"], answer["namespace"], answer["task"]) == (queue, "", "")
    assert answer["options"]["leaseTime"] == 2
    assert answer["options"].keys() >= CLIENT_DEFAULTS.keys() | {"retryDelay", "ttl", "maxWaitTimeSeconds"}
    queen.push(queue, [1])
    assert queen.pop(queue)[0]["partitionId"] == answer["partitionId"]


def test_namespace_and_task_default_to_the_parts_of_a_dotted_name(queen: QueenClient, queue: str) -> None:
    answer = queen.configure(f"{queue}.mail.out")
    assert (answer["namespace"], answer["task"]) == (queue, "mail")
    explicit = queen.post("/api/v1/configure", {"queue": f"{queue}.mail.out", "namespace": "n", "task": "t"})
    assert (explicit["namespace"], explicit["task"]) == ("n", "t")
    assert queen.configure(f"{queue}.mail.out", leaseTime=9)["namespace"] == "n"


@pytest.mark.slow
def test_encryption_is_an_option_of_a_queue(queen_url: str, queue: str) -> None:
    key = base64.b64encode(os.urandom(32)).decode()
    with (
        run_server(queen_url, environ={"PENSTOCK_ENCRYPTION_KEYS": key}) as server,
        httpx.Client(base_url=server.url) as http,
    ):
        queen = QueenClient(http)
        assert queen.configure(queue, encryptionEnabled=True)["options"]["encryptionEnabled"] is True
        queen.push(queue, [{"n": 1}])
        (message,) = queen.pop(queue)
        assert message["data"] == {"n": 1}
        detail = queen.get(f"/api/v1/messages/{message['partitionId']}/{message['transactionId']}")
        assert (detail["isEncrypted"], detail["payload"]) == (True, {"n": 1})
    with run_server(queen_url) as server, httpx.Client(base_url=server.url) as http:
        response = http.get(f"/api/v1/pop/queue/{queue}", params={"consumerGroup": "g"})
        assert response.status_code == 500
        assert "is not among the keys" in response.json()["error"]


def test_absent_options_keep_their_value_and_null_resets_them(queen: QueenClient, queue: str) -> None:
    queen.configure(queue, leaseTime=7, retryLimit=9)
    merged = queen.configure(queue, retryLimit=5)["options"]
    assert (merged["leaseTime"], merged["retryLimit"]) == (7, 5)
    reset = queen.configure(queue, leaseTime=None)["options"]
    assert (reset["leaseTime"], reset["retryLimit"]) == (300, 5)
    body = {"queue": queue, "options": {"leaseTime": 4}, "mode": "replace"}
    replaced = queen.post("/api/v1/configure", body)["options"]
    assert (replaced["leaseTime"], replaced["retryLimit"]) == (4, 3)


@pytest.mark.slow
def test_retention_and_longest_wait_drop_messages_that_nobody_has_read(queen: QueenClient, queue: str) -> None:
    limits: list[dict[str, Any]] = [{"retentionEnabled": True, "retentionSeconds": 1}, {"maxWaitTimeSeconds": 1}]
    names = [f"{queue}-{n}" for n in range(len(limits))]
    for name, options in zip(names, limits, strict=True):
        assert queen.configure(name, **options)["options"].items() >= options.items()
        queen.push(name, [1])
    for name in names:
        eventually(lambda name=name: queen.get("/api/v1/messages", queue=name)["messages"] == [])  # type: ignore[misc]
        # The log forgets the id of a message with the message.
        assert queen.push(name, [2])[0]["status"] == "queued"


def test_delete_removes_a_queue_with_its_messages(queen: QueenClient, queue: str) -> None:
    queen.push(queue, [1, 2])
    path = f"/api/v1/resources/queues/{queue}"
    assert queen.http.delete(path).json() == {"deleted": True, "queue": queue, "existed": True}
    assert queen.http.delete(path).json() == {"deleted": True, "queue": queue, "existed": False}
    assert queen.pop(queue) == []
    queen.push(queue, [3])
    assert data(queen.pop(queue)) == [3]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "queue is required"),
        ({"queue": 5}, "Queue must be a string"),
        ({"queue": "q", "options": {"leaseTime": "long"}}, "leaseTime"),
        ({"queue": "q", "options": {"retryLimit": -1}}, "retry_limit"),
        ({"queue": "q", "options": {"encryptionEnabled": True}}, "no key to encrypt"),
    ],
)
def test_invalid_options_are_refused(queen: QueenClient, body: object, message: str) -> None:
    assert message in queen.post("/api/v1/configure", body, 400)["error"]


@pytest.mark.parametrize("name", ["namespace", "task"])
def test_null_characters_are_refused(queen: QueenClient, queue: str, name: str) -> None:
    assert name in queen.post("/api/v1/configure", {"queue": queue, name: "a\x00b"}, 400)["error"]


def test_max_size_limits_read_and_unread_messages_until_it_is_reset(queen: QueenClient, queue: str) -> None:
    def limits() -> tuple[int | None, int | None]:
        options = queen.get(f"/v1/queues/{queue}")["options"]
        return options["max_depth_events"], options["max_unread_events"]

    queen.configure(queue)
    assert limits() == (100_000, None)
    queen.configure(queue, maxSize=10)
    assert limits() == (10, 10)
    queen.configure(queue, leaseTime=5)
    assert limits() == (10, 10)
    queen.configure(queue, maxSize=None)
    assert limits() == (100_000, None)

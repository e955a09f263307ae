"""Acks, by the process that delivered a message and by another one."""

from __future__ import annotations

import uuid

import pytest

from tests.conditions import eventually
from tests.log.logs import ask
from tests.server.queen.client import QueenClient, data


@pytest.fixture(params=["same process", "another process"])
def acker(request: pytest.FixtureRequest, queen: QueenClient) -> QueenClient:
    """The server process that receives the acks of messages that ``queen`` has delivered."""
    if request.param == "same process":
        return queen
    other_queen: QueenClient = request.getfixturevalue("other_queen")
    return other_queen


def test_completed_message_completes_earlier_ones(queen: QueenClient, acker: QueenClient, queue: str) -> None:
    queen.push(queue, range(5))
    messages = queen.pop(queue, batch=5)
    answer = acker.ack(messages[2])
    assert answer == {
        "index": 0,
        "transactionId": "t2",
        "success": True,
        "error": None,
        "queueName": queue,
        "partitionName": "Default",
        "leaseReleased": False,
        "dlq": False,
        "noop": False,
    }
    assert acker.ack(messages[4])["leaseReleased"] is True
    assert queen.pop(queue) == []


def test_failed_message_is_redelivered_with_all_later_ones(queen: QueenClient, acker: QueenClient, queue: str) -> None:
    queen.push(queue, range(5))
    messages = queen.pop(queue, batch=5)
    statuses = ["completed", "failed", "completed", "completed", "completed"]
    answers = acker.ack_all(zip(messages, statuses, strict=True))
    assert [answer["success"] for answer in answers] == [True, True, False, False, False]
    assert [answer["index"] for answer in answers] == list(range(5))
    assert data(queen.pop(queue, batch=5)) == [1, 2, 3, 4]


def test_failed_message_becomes_a_dead_letter_after_its_retries(queen: QueenClient, queue: str) -> None:
    queen.configure(queue, retryLimit=2)
    queen.push(queue, ["bad", "good"])
    for attempt in range(3):
        messages = queen.pop(queue, batch=1)
        assert [(m["data"], m["retryCount"], m["deliveryAttempt"]) for m in messages] == [("bad", attempt, attempt + 1)]
        assert queen.ack(messages[0], "failed", error="it is bad")["dlq"] is (attempt == 2)
    assert data(queen.pop(queue, batch=5)) == ["good"]


def test_last_failure_ends_the_lease_as_any_failure_does(queen: QueenClient, acker: QueenClient, queue: str) -> None:
    queen.configure(queue, retryLimit=0)
    queen.push(queue, range(4))
    messages = queen.pop(queue, batch=4)
    assert acker.ack(messages[0])["leaseReleased"] is False
    answer = acker.ack(messages[1], "failed")
    assert (answer["success"], answer["dlq"], answer["leaseReleased"]) == (True, True, True)
    # A client of 0.15 goes on with the batch that it has: its acks are refused, and nothing is lost.
    assert acker.ack(messages[2])["success"] is False
    again = queen.pop(queue, batch=4)
    assert data(again) == [2, 3]
    assert acker.ack(again[1])["success"] is True
    assert queen.pop(queue) == []


def test_retry_uses_no_attempt_and_dlq_takes_effect_at_once(queen: QueenClient, acker: QueenClient, queue: str) -> None:
    queen.configure(queue, retryLimit=0)
    queen.push(queue, [0])
    for _ in range(5):
        (message,) = queen.pop(queue)
        answer = acker.ack(message, "retry")
        assert (answer["success"], answer["dlq"], answer["leaseReleased"]) == (True, False, True)
    (message,) = queen.pop(queue)
    assert acker.ack(message, "dlq")["dlq"] is True
    assert queen.pop(queue) == []


def test_expired_lease_uses_no_attempt_and_refuses_acks(queen: QueenClient, acker: QueenClient, queue: str) -> None:
    queen.configure(queue, leaseTime=0.2, retryLimit=0)
    queen.push(queue, ["a", "b"])
    stale = queen.pop(queue, batch=2)
    again = queen.pop(queue, batch=2, wait="true", timeout=10000, leaseSeconds=60)
    assert [(m["data"], m["retryCount"]) for m in again] == [("a", 0), ("b", 0)]
    for status in ("completed", "failed"):
        refused = acker.ack(stale[0], status)
        assert refused["success"] is False
        assert "lease" in refused["error"]
    assert acker.ack(again[1])["success"] is True


def test_ack_without_a_lease_is_accepted_after_expiry(
    queen: QueenClient, acker: QueenClient, queue: str, queen_url: str
) -> None:
    queen.configure(queue, leaseTime=0.1)
    queen.push(queue, ["a", "b"])
    (first,) = queen.pop(queue, batch=1, consumerGroup="g")
    expired = "SELECT available_at < clock_timestamp() FROM penstock.positions WHERE lease_id = %s"
    eventually(lambda: bool(ask(queen_url, expired, first["leaseId"])))
    assert acker.ack(first, leaseId=None)["success"] is True
    assert data(queen.pop(queue, batch=2, consumerGroup="g")) == ["b"]


@pytest.mark.parametrize("status", ["completed", "failed", "retry", "dlq"])
def test_ack_without_a_lease_does_not_affect_the_next_holder(
    queen: QueenClient, acker: QueenClient, queue: str, status: str
) -> None:
    queen.configure(queue, leaseTime=0.1)
    queen.push(queue, ["a", "b", "c"])
    stale = queen.pop(queue, batch=2)
    held = queen.pop(queue, batch=3, wait="true", timeout=10000, leaseSeconds=60)
    assert data(held) == ["a", "b", "c"]
    for message in stale:
        refused = acker.ack(message, status, leaseId=None)
        assert refused["success"] is False
        assert "name its lease" in refused["error"]
    # The holder may leave the lease out for a message that nobody else has got.
    assert acker.ack(held[1])["success"] is True
    assert acker.ack(held[2], leaseId=None)["leaseReleased"] is True


@pytest.mark.parametrize("status", ["failed", "retry"])
def test_ack_without_a_lease_after_the_lease_was_given_up_is_late(
    queen: QueenClient, acker: QueenClient, queue: str, status: str
) -> None:
    queen.push(queue, ["a", "b", "c"])
    messages = queen.pop(queue, batch=3)
    assert acker.ack(messages[0], status, leaseId=None)["leaseReleased"] is True
    late = acker.ack(messages[2], leaseId=None)
    assert (late["success"], "late" in late["error"]) == (False, True)
    assert data(queen.pop(queue, batch=3)) == ["a", "b", "c"]


def test_ack_behind_the_position_is_a_noop_or_refused(queen: QueenClient, acker: QueenClient, queue: str) -> None:
    queen.push(queue, ["a", "b"])
    messages = queen.pop(queue, batch=2)
    queen.ack(messages[1])
    for lease in (messages[0]["leaseId"], None):
        done = acker.ack(messages[0], leaseId=lease)
        assert (done["success"], done["noop"]) == (True, True)
        late = acker.ack(messages[0], "failed", leaseId=lease)
        assert late["success"] is False
        assert "committed" in late["error"]


def test_ack_of_an_unknown_message_is_unresolved(queen: QueenClient, acker: QueenClient, queue: str) -> None:
    queen.push(queue, ["a"])
    (message,) = queen.pop(queue)
    for changes in (
        {"transactionId": "never pushed"},
        {"transactionId": "never pushed", "leaseId": None},
        {"partitionId": str(uuid.uuid4())},
        {"partitionId": "no uuid"},
        {"consumerGroup": "never popped", "leaseId": None},
    ):
        answer = acker.ack(message, **changes)
        assert answer["success"] is False
        assert "unresolv" in answer["error"]
    assert "lease" in acker.ack(message, leaseId=str(uuid.uuid4()))["error"]
    assert "lease" in acker.ack(message, leaseId="no uuid")["error"]
    assert "is not a status" in acker.ack(message, "burnt")["error"]
    assert acker.ack(message)["success"] is True


def test_undelivered_message_cannot_be_completed(queen: QueenClient, acker: QueenClient, queue: str) -> None:
    queen.push(queue, ["a", "b", "c"])
    (message,) = queen.pop(queue, batch=1)
    for lease in (message["leaseId"], None):
        ahead = acker.ack(message, transactionId="t2", leaseId=lease)
        assert ahead["success"] is False
        assert "lease" in ahead["error"]
    acker.ack(message)
    assert data(queen.pop(queue, batch=5)) == ["b", "c"]


def test_acks_of_one_group_do_not_affect_another(queen: QueenClient, acker: QueenClient, queue: str) -> None:
    queen.push(queue, [1, 2])
    for group in ("a", "b"):
        messages = queen.pop(queue, batch=5, consumerGroup=group)
        assert data(messages) == [1, 2]
        assert acker.ack(messages[1])["leaseReleased"] is True
    assert data(queen.pop(queue, batch=5)) == [1, 2]


def test_lease_is_extended_in_all_its_partitions(queen: QueenClient, acker: QueenClient, queue: str) -> None:
    queen.configure(queue, leaseTime=30)
    for partition in "abc":
        queen.push(queue, [partition], partition)
    messages = queen.pop(queue, batch=10, partitions=10)
    answer = acker.http.post(f"/api/v1/lease/{messages[0]['leaseId']}/extend")
    extended = answer.json()
    assert (extended["success"], extended["renewed"], extended["error"]) == (True, 3, None)
    assert extended["expiresAt"] == extended["newExpiresAt"] == extended["lease_expires_at"]
    longer = acker.post(f"/api/v1/lease/{messages[0]['leaseId']}/extend", {"seconds": 3600})
    assert longer["newExpiresAt"] > extended["newExpiresAt"]
    # An extension never shortens a lease.
    shorter = acker.post(f"/api/v1/lease/{messages[0]['leaseId']}/extend", {"seconds": 1})
    assert shorter["newExpiresAt"] == longer["newExpiresAt"]
    acker.ack(messages[0])
    two = acker.post(f"/api/v1/lease/{messages[0]['leaseId']}/extend", {})
    assert two["renewed"] == 2
    for message in messages[1:]:
        acker.ack(message)
    none = acker.post(f"/api/v1/lease/{messages[0]['leaseId']}/extend", {})
    assert (none["success"], none["renewed"], none["newExpiresAt"]) == (False, 0, None)
    assert acker.http.post("/api/v1/lease/no-uuid/extend").json()["success"] is False
    assert "seconds" in acker.post(f"/api/v1/lease/{uuid.uuid4()}/extend", {"seconds": -1}, 400)["error"]


def test_replayed_message_is_acked_under_its_old_id(queen: QueenClient, acker: QueenClient, queue: str) -> None:
    queen.push(queue, ["x", "y"])
    first = queen.pop(queue, batch=1, consumerGroup="g")
    assert acker.ack(first[0], "dlq")["dlq"] is True
    (letter,) = queen.get("/api/v1/dlq", queue=queue)["messages"]
    assert queen.http.post(f"/api/v1/dlq/{letter['id']}/replay").status_code == 200
    # The replayed message has the same id at another offset.
    back = queen.pop(queue, batch=5, consumerGroup="g", wait="true", timeout=5000)
    assert [(m["data"], m["transactionId"]) for m in back] == [("y", "t1"), ("x", "t0")]
    assert [answer["success"] for answer in acker.ack_all((m, "completed") for m in back)] == [True, True]
    assert queen.pop(queue, consumerGroup="g") == []


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/api/v1/ack", {}, "transactionId is required"),
        ("/api/v1/ack", {"transactionId": "t"}, "partitionId is required to ensure message uniqueness"),
        ("/api/v1/ack", {"transactionId": 1, "partitionId": "p"}, "TransactionId must be a string"),
        ("/api/v1/ack/batch", {}, "acknowledgments array is required"),
        ("/api/v1/ack/batch", {"acknowledgments": [{"transactionId": "t"}]}, "partitionId is required"),
    ],
)
def test_invalid_acks_are_refused(queen: QueenClient, path: str, body: object, message: str) -> None:
    assert message in queen.post(path, body, 400)["error"]


def test_empty_batch_of_acks_has_no_results(queen: QueenClient) -> None:
    assert queen.post("/api/v1/ack/batch", {"acknowledgments": []}) == []


def test_names_with_a_null_character_are_unresolved(queen: QueenClient, queue: str) -> None:
    queen.push(queue, [1])
    (message,) = queen.pop(queue)
    for name in ("transactionId", "consumerGroup"):
        answer = queen.ack({**message, name: "a\x00"})
        assert (answer["success"], "unresolv" in answer["error"]) == (False, True)
    assert queen.ack(message, "failed", error="a\x00")["success"]

"""Acknowledging: the corrected semantics, and that any process can take what another delivered."""

from __future__ import annotations

import uuid

import pytest

from tests.server.plane.speaking import Plane, data


@pytest.fixture(params=["same process", "another process"])
def acker(request: pytest.FixtureRequest, plane: Plane) -> Plane:
    """Who takes the acks of what ``plane`` delivers."""
    if request.param == "same process":
        return plane
    other: Plane = request.getfixturevalue("other")
    return other


def test_a_completed_message_completes_those_before_it(plane: Plane, acker: Plane, queue: str) -> None:
    plane.push(queue, range(5))
    messages = plane.pop(queue, batch=5)
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
    assert plane.pop(queue) == []


def test_a_message_that_failed_comes_again_with_all_after_it(plane: Plane, acker: Plane, queue: str) -> None:
    plane.push(queue, range(5))
    messages = plane.pop(queue, batch=5)
    said = ["completed", "failed", "completed", "completed", "completed"]
    answers = acker.ack_all(zip(messages, said, strict=True))
    assert [answer["success"] for answer in answers] == [True, True, False, False, False]
    assert [answer["index"] for answer in answers] == list(range(5))
    assert data(plane.pop(queue, batch=5)) == [1, 2, 3, 4]


def test_a_failed_message_is_a_dead_letter_after_its_retries(plane: Plane, queue: str) -> None:
    plane.configure(queue, retryLimit=2)
    plane.push(queue, ["bad", "good"])
    for attempt in range(3):
        messages = plane.pop(queue, batch=1)
        assert [(m["data"], m["retryCount"], m["deliveryAttempt"]) for m in messages] == [("bad", attempt, attempt + 1)]
        assert plane.ack(messages[0], "failed", error="it is bad")["dlq"] is (attempt == 2)
    assert data(plane.pop(queue, batch=5)) == ["good"]


def test_a_retry_costs_nothing_and_a_dlq_is_at_once(plane: Plane, acker: Plane, queue: str) -> None:
    plane.configure(queue, retryLimit=0)
    plane.push(queue, [0])
    for _ in range(5):
        (message,) = plane.pop(queue)
        answer = acker.ack(message, "retry")
        assert (answer["success"], answer["dlq"], answer["leaseReleased"]) == (True, False, True)
    (message,) = plane.pop(queue)
    assert acker.ack(message, "dlq")["dlq"] is True
    assert plane.pop(queue) == []


def test_a_lease_that_ends_costs_nothing_and_its_acks_are_stale(plane: Plane, acker: Plane, queue: str) -> None:
    plane.configure(queue, leaseTime=0.2, retryLimit=0)
    plane.push(queue, ["a", "b"])
    stale = plane.pop(queue, batch=2)
    again = plane.pop(queue, batch=2, wait="true", timeout=10000, leaseSeconds=60)
    assert [(m["data"], m["retryCount"]) for m in again] == [("a", 0), ("b", 0)]
    for status in ("completed", "failed"):
        refused = acker.ack(stale[0], status)
        assert refused["success"] is False
        assert "lease" in refused["error"]
    assert acker.ack(again[1])["success"] is True


def test_an_ack_without_a_lease_is_taken_after_the_lease_has_ended(plane: Plane, acker: Plane, queue: str) -> None:
    plane.configure(queue, leaseTime=0.1)
    plane.push(queue, ["a", "b"])
    (first,) = plane.pop(queue, batch=1)
    assert data(plane.pop(queue, batch=1, wait="true", timeout=10000)) == ["a"]
    assert acker.ack(first, leaseId=None)["success"] is True
    assert data(plane.pop(queue, batch=2, wait="true", timeout=10000)) == ["b"]


def test_what_is_said_behind_the_group_is_nothing_new_or_too_late(plane: Plane, acker: Plane, queue: str) -> None:
    plane.push(queue, ["a", "b"])
    messages = plane.pop(queue, batch=2)
    plane.ack(messages[1])
    for lease in (messages[0]["leaseId"], None):
        done = acker.ack(messages[0], leaseId=lease)
        assert (done["success"], done["noop"]) == (True, True)
        late = acker.ack(messages[0], "failed", leaseId=lease)
        assert late["success"] is False
        assert "committed" in late["error"]


def test_an_ack_of_what_nobody_knows_is_unresolved(plane: Plane, acker: Plane, queue: str) -> None:
    plane.push(queue, ["a"])
    (message,) = plane.pop(queue)
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
    assert "cannot be said" in acker.ack(message, "burnt")["error"]
    assert acker.ack(message)["success"] is True


def test_what_was_not_delivered_cannot_be_completed(plane: Plane, acker: Plane, queue: str) -> None:
    plane.push(queue, ["a", "b", "c"])
    (message,) = plane.pop(queue, batch=1)
    for lease in (message["leaseId"], None):
        ahead = acker.ack(message, transactionId="t2", leaseId=lease)
        assert ahead["success"] is False
        assert "lease" in ahead["error"]
    acker.ack(message)
    assert data(plane.pop(queue, batch=5)) == ["b", "c"]


def test_groups_do_not_disturb_each_other(plane: Plane, acker: Plane, queue: str) -> None:
    plane.push(queue, [1, 2])
    for group in ("a", "b"):
        messages = plane.pop(queue, batch=5, consumerGroup=group)
        assert data(messages) == [1, 2]
        assert acker.ack(messages[1])["leaseReleased"] is True
    assert data(plane.pop(queue, batch=5)) == [1, 2]


def test_messages_of_several_partitions_share_a_lease_that_is_extended_in_all(
    plane: Plane, acker: Plane, queue: str
) -> None:
    plane.configure(queue, leaseTime=30)
    for partition in "abc":
        plane.push(queue, [partition], partition)
    messages = plane.pop(queue, batch=10, partitions=10)
    answer = acker.http.post(f"/api/v1/lease/{messages[0]['leaseId']}/extend")
    extended = answer.json()
    assert (extended["success"], extended["renewed"], extended["error"]) == (True, 3, None)
    assert extended["expiresAt"] == extended["newExpiresAt"] == extended["lease_expires_at"]
    longer = acker.post(f"/api/v1/lease/{messages[0]['leaseId']}/extend", {"seconds": 3600})
    assert longer["newExpiresAt"] > extended["newExpiresAt"]
    # Never shorter than it was.
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


def test_what_came_without_an_id_and_what_was_sent_back_are_acked_too(plane: Plane, acker: Plane, queue: str) -> None:
    plane.push(queue, ["x", "y"])
    first = plane.pop(queue, batch=1, consumerGroup="g")
    assert acker.ack(first[0], "dlq")["dlq"] is True
    (letter,) = plane.get("/api/v1/dlq", queue=queue)["messages"]
    assert plane.http.post(f"/api/v1/dlq/{letter['id']}/replay").status_code == 200
    # The same id again, at another place.
    back = plane.pop(queue, batch=5, consumerGroup="g", wait="true", timeout=5000)
    assert [(m["data"], m["transactionId"]) for m in back] == [("y", "t1"), ("x", "t0")]
    assert [answer["success"] for answer in acker.ack_all((m, "completed") for m in back)] == [True, True]
    assert plane.pop(queue, consumerGroup="g") == []


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/api/v1/ack", {}, "transactionId is required"),
        ("/api/v1/ack", {"transactionId": "t"}, "partitionId is required to ensure message uniqueness"),
        ("/api/v1/ack", {"transactionId": 1, "partitionId": "p"}, "TransactionId must be a string"),
        ("/api/v1/ack/batch", {}, "acknowledgments array is required"),
        ("/api/v1/ack/batch", {"acknowledgments": [{"transactionId": "t"}]}, "partitionId is required"),
    ],
)
def test_acks_that_name_no_message_are_refused(plane: Plane, path: str, body: object, said: str) -> None:
    assert said in plane.post(path, body, 400)["error"]


def test_an_empty_batch_of_acks_is_nothing(plane: Plane) -> None:
    assert plane.post("/api/v1/ack/batch", {"acknowledgments": []}) == []


def test_what_is_committed_at_delivery_has_no_lease(plane: Plane, queue: str) -> None:
    plane.push(queue, [1])
    (message,) = plane.pop(queue, autoAck="true")
    assert message["leaseId"] == ""
    assert plane.pop(queue) == []
    assert plane.ack(message)["noop"] is True


def test_a_new_group_starts_at_the_beginning_unless_it_says_otherwise(plane: Plane, queue: str) -> None:
    plane.push(queue, ["old"])
    assert data(plane.pop(queue, consumerGroup="all")) == ["old"]
    assert data(plane.pop(queue, consumerGroup="told", subscriptionMode="all")) == ["old"]
    # Whoever shares the queue with others never skips what waits in it.
    assert data(plane.pop(queue, subscriptionMode="new")) == ["old"]
    for group, told in (
        ("new", {"subscriptionMode": "new"}),
        ("new-only", {"subscriptionMode": "new-only"}),
        ("now", {"subscriptionFrom": "now", "subscriptionMode": "all"}),
    ):
        assert plane.pop(queue, consumerGroup=group, **told) == []
        plane.push(queue, [group], f"made later for {group}", ids=[group])
        assert group in data(plane.pop(queue, consumerGroup=group, partitions=10, **told))
    assert (
        "subscriptionMode"
        in plane.get(f"/api/v1/pop/queue/{queue}", 400, consumerGroup="x", subscriptionMode="some")["error"]
    )
    assert "ISO" in plane.get(f"/api/v1/pop/queue/{queue}", 400, consumerGroup="x", subscriptionFrom="some")["error"]


def test_a_group_can_start_at_a_time(plane: Plane, queue: str) -> None:
    plane.push(queue, ["a"], ids=["a"])
    plane.push(queue, ["b"], ids=["b"])
    later = plane.pop(queue, batch=2)[1]["createdAt"]
    assert data(plane.pop(queue, batch=5, consumerGroup="g", subscriptionFrom=later)) == ["b"]
    naive = later.removesuffix("Z")
    assert data(plane.pop(queue, batch=5, consumerGroup="h", subscriptionFrom=naive)) == ["b"]


def test_names_that_the_database_cannot_hold_are_those_of_nobody(plane: Plane, queue: str) -> None:
    plane.push(queue, [1])
    (message,) = plane.pop(queue)
    for name in ("transactionId", "consumerGroup"):
        answer = plane.ack({**message, name: "a\x00"})
        assert (answer["success"], "unresolv" in answer["error"]) == (False, True)
    assert plane.ack(message, "failed", error="a\x00")["success"]

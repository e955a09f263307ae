"""Consuming over HTTP: pop, acknowledge, extend, transactions."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote

import httpx
import pytest

from tests.conditions import eventually
from tests.server.api.group_client import GroupClient, lease_of
from tests.server.problems import problem_kind
from tests.server.server_process import RunningServer


@pytest.fixture
def group(v1: httpx.Client, queue: str) -> GroupClient:
    return GroupClient(v1, queue)


def test_pop_and_ack(group: GroupClient) -> None:
    group.push(*range(4))

    events = group.pop(batch=10)

    assert [event["data"] for event in events] == [0, 1, 2, 3]
    assert group.ack(events[:3]) == [{"success": True}] * 3
    assert group.ack(events[:1]) == [{"success": True, "noop": True}]
    assert group.ack(events[3:], status="dead_letter", error="no") == [{"success": True, "dead_letter": True}]
    assert (group.pop(), group.leases) == ([], 0)


def test_acks_with_different_statuses(v1: httpx.Client, group: GroupClient) -> None:
    group.push(*range(3))
    events = group.pop(batch=3)
    acks = [
        {**lease_of(event), "status": status}
        for event, status in zip(events, ["completed", "dead_letter", "retry"], strict=True)
    ]

    results = v1.post(f"{group.path}/ack", json={"acks": acks}).json()["results"]

    assert results == [{"success": True}, {"success": True, "dead_letter": True}, {"success": True}]
    assert [event["data"] for event in group.pop(batch=3)] == [2]


def test_popped_event_has_all_fields(v1: httpx.Client, queue: str, group: GroupClient) -> None:
    event = {"data": {"n": 1}, "key": "k", "id": "i", "headers": {"h": "v"}, "time": "2026-01-31T12:00:00Z"}
    v1.post("push", json={"batches": [{"queue": unquote(queue), "events": [event]}]})

    (got,) = group.pop(lease_seconds=9)

    assert (got["partition"], got["key"], got["id"], got["headers"]) == ("k", "k", "i", {"h": "v"})
    assert (got["event_time"], got["offset"], got["data"]) == ("2026-01-31T12:00:00Z", 0, {"n": 1})
    assert got["lease_until"] > got["appended_at"]


def test_ack_with_expired_lease_is_refused(group: GroupClient) -> None:
    group.push(1)
    events = group.pop()
    group.ack(events, status="retry")

    (result,) = group.ack(events)

    assert not result["success"]
    assert result["error"].startswith("late")


def test_ack_affects_only_its_queue_and_group(v1: httpx.Client, queue: str, group: GroupClient) -> None:
    group.push(1)
    events = group.pop()
    v1.put("queues/another")
    others = [GroupClient(v1, "another"), GroupClient(v1, queue, "another")]

    for other in others:
        other.pop()
        (result,) = other.ack(events)
        assert not result["success"]
        extended = v1.post(
            f"{other.path}/extend",
            json={"lease_id": events[0]["lease_id"], "partition_ids": [events[0]["partition_id"]]},
        )
        assert extended.json() == {"lease_until": None}

    assert group.leases == 1 + 1  # the other group of the queue has one too
    assert group.ack(events) == [{"success": True}]


def test_extend_lease(v1: httpx.Client, group: GroupClient) -> None:
    group.push(1)
    (event,) = group.pop(lease_seconds=5)
    extension = {"lease_id": event["lease_id"], "partition_ids": [event["partition_id"]], "seconds": 60}

    until = v1.post(f"{group.path}/extend", json=extension).json()["lease_until"]

    assert until > event["lease_until"]
    group.ack([event])
    assert v1.post(f"{group.path}/extend", json=extension).json() == {"lease_until": None}


def test_pop_waits_for_events(group: GroupClient) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(group.pop, wait_seconds=20)
        group.push("at last")

        assert [event["data"] for event in waiting.result()] == ["at last"]


def test_pop_from_one_or_several_partitions(v1: httpx.Client, queue: str, group: GroupClient) -> None:
    events = [{"data": n, "key": f"k{n % 3}"} for n in range(6)]
    v1.post("push", json={"batches": [{"queue": unquote(queue), "events": events}]})

    assert [event["data"] for event in group.pop(batch=10, partition="k1")] == [1, 4]
    assert sorted(event["data"] for event in group.pop(batch=10, partitions=10)) == [0, 2, 3, 5]


def test_pop_response_size_is_limited(v1: httpx.Client, queue: str, group: GroupClient) -> None:
    for n in range(20):
        batch = {"queue": unquote(queue), "key": str(n), "events": [{"data": [n, "x" * 1_000_000]}]}
        assert v1.post("push", json={"batches": [batch]}).status_code == 200
    first = group.pop(batch=1000, partitions=1000)
    assert 10 <= len(first) <= 16
    # The other events can be popped at once.
    second = group.pop(batch=1000, partitions=1000)
    assert sorted(event["data"][0] for event in [*first, *second]) == list(range(20))


def test_subscribe_from_end_and_auto_ack(v1: httpx.Client, queue: str) -> None:
    GroupClient(v1, queue).push("old")
    late = GroupClient(v1, queue, "late")
    assert late.pop(subscribe_from="now") == []
    late.push("new")

    assert [event["data"] for event in late.pop(auto_ack=True)] == ["new"]
    assert (late.pop(), late.leases) == ([], 0)


def test_disconnect_during_a_poll_leases_nothing(
    shared_server: RunningServer, v1: httpx.Client, group: GroupClient
) -> None:
    url = f"{shared_server.url}/v1/{group.path}/pop"
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(url, json={"wait_seconds": 30}, timeout=0.2)
    group.push("for somebody who is there")

    def delivered() -> bool:
        return bool(group.pop(wait_seconds=1))

    eventually(delivered)


def test_lost_pop_response_can_be_requested_again(group: GroupClient) -> None:
    group.push(*range(3))
    lost, again = str(uuid.uuid4()), str(uuid.uuid4())
    group.pop(batch=3, lease_id=lost)
    assert group.pop(batch=3) == []

    events = group.pop(batch=3, lease_id=again, instead_of=lost)

    assert [event["data"] for event in events] == [0, 1, 2]
    assert {event["lease_id"] for event in events} == {again}
    assert [event.get("attempts", 0) for event in events] == [0, 0, 0]


def test_transaction_is_atomic(v1: httpx.Client, group: GroupClient) -> None:
    name = unquote(group.queue)
    v1.put("queues/shipments")
    group.push(1)
    events = group.pop()
    body = {
        "acks": [{**lease_of(event), "queue": name, "group": "g"} for event in events],
        "pushes": [{"queue": "shipments", "events": [{"data": "to berlin"}]}],
    }

    done = v1.post("transaction", json=body)

    assert done.status_code == 200, done.text
    assert (done.json()["acked"], done.json()["results"][0]["accepted"]) == (1, 1)
    assert problem_kind(v1.post("transaction", json=body)) == (409, "transaction-refused")
    assert len(v1.get("queues/shipments/events").json()["events"]) == 1


def test_transaction_with_idempotency_key_runs_once(v1: httpx.Client, group: GroupClient) -> None:
    name = unquote(group.queue)
    v1.put("queues/once")
    group.push(1)
    events = group.pop()
    body = {
        "acks": [{**lease_of(event), "queue": name, "group": "g"} for event in events],
        "pushes": [{"queue": "once", "events": [{"data": 1}]}],
    }
    headers = {"Idempotency-Key": str(uuid.uuid4())}

    first, second = (v1.post("transaction", json=body, headers=headers) for _ in range(2))

    assert first.json()["results"][0] | {"replayed": True} == second.json()["results"][0]
    assert len(v1.get("queues/once/events").json()["events"]) == 1
    assert problem_kind(v1.post("transaction", json={**body, "acks": []}, headers=headers)) == (
        409,
        "idempotency-conflict",
    )


LEASE = {"partition_id": 1, "offset": 0, "lease_id": str(uuid.uuid4())}


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("queues/none/groups/g/pop", {}, (404, "not-found")),
        ("queues/none/groups/g/ack", {"acks": [LEASE]}, (404, "not-found")),
        ("queues/none/groups/g/extend", {"lease_id": LEASE["lease_id"], "partition_ids": [1]}, (404, "not-found")),
        ("queues/{queue}/groups/%20g/pop", {}, (422, "invalid-name")),
        ("queues/{queue}/groups/g/pop", {"batch": 0}, (400, "invalid-request")),
        ("queues/{queue}/groups/g/pop", {"wait_seconds": -1}, (400, "invalid-request")),
        ("queues/{queue}/groups/g/pop", {"lease_seconds": 10**9}, (400, "invalid-request")),
        ("queues/{queue}/groups/g/pop", {"subscribe_from": "yesterday"}, (400, "invalid-request")),
        ("queues/{queue}/groups/g/pop", {"batches": 1}, (400, "invalid-request")),
        ("queues/{queue}/groups/g/ack", {"acks": [{**LEASE, "lease_id": None}]}, (400, "invalid-request")),
        ("queues/{queue}/groups/g/ack", {"acks": [{**LEASE, "status": "done"}]}, (400, "invalid-request")),
        ("queues/{queue}/groups/g/ack", {"acks": [{**LEASE, "offset": -1}]}, (400, "invalid-request")),
        ("queues/{queue}/groups/g/ack", {"acks": [{**LEASE, "offset": 2**64}]}, (400, "invalid-request")),
        ("queues/{queue}/groups/g/extend", {"lease_id": LEASE["lease_id"]}, (400, "invalid-request")),
        (
            "queues/{queue}/groups/g/extend",
            {"lease_id": LEASE["lease_id"], "partition_ids": [1], "seconds": 0},
            (400, "invalid-request"),
        ),
        ("transaction", {"acks": [{**LEASE, "queue": "none", "group": "g"}]}, (404, "not-found")),
        ("transaction", {"pushes": [{"queue": "none"}]}, (404, "not-found")),
        ("transaction", {"acks": [LEASE]}, (400, "invalid-request")),
    ],
)
def test_invalid_consume_requests(
    v1: httpx.Client, queue: str, path: str, body: object, expected: tuple[int, str]
) -> None:
    assert problem_kind(v1.post(path.format(queue=queue), json=body)) == expected


def test_ack_of_unknown_lease_is_unresolved(group: GroupClient) -> None:
    assert group.ack([LEASE]) == [{"success": False, "error": "unresolved: group 'g' is gone"}]
    group.pop()
    assert group.ack([LEASE]) == [{"success": False, "error": "unresolved: group 'g' is gone"}]

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

from tests.client.conditions import PATIENCE, soon
from tests.server.refusals import refusal
from tests.server.serving import Serving


class Group:
    """A consumer group as a caller without our client works with it."""

    def __init__(self, v1: httpx.Client, queue: str, name: str = "g") -> None:
        self._v1 = v1
        self.queue = queue
        self.path = f"queues/{queue}/groups/{name}"

    def push(self, *events: Any) -> None:
        batch = {"queue": unquote(self.queue), "events": [{"data": event} for event in events]}
        assert self._v1.post("push", json={"batches": [batch]}).status_code == 200

    def pop(self, **asked: Any) -> list[dict[str, Any]]:
        answer = self._v1.post(f"{self.path}/pop", json=asked)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["events"]
        return found

    def ack(self, events: list[dict[str, Any]], **said: Any) -> list[dict[str, Any]]:
        answer = self._v1.post(f"{self.path}/ack", json={"acks": [{**lease_of(event), **said} for event in events]})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["results"]
        return found

    @property
    def leases(self) -> int:
        groups = self._v1.get(f"queues/{self.queue}/groups").json()["groups"]
        return sum(group["leases"] for group in groups)


def lease_of(event: dict[str, Any]) -> dict[str, Any]:
    return {name: event[name] for name in ("partition_id", "offset", "lease_id")}


@pytest.fixture
def group(v1: httpx.Client, queue: str) -> Group:
    return Group(v1, queue)


def test_events_are_popped_and_acknowledged(group: Group) -> None:
    group.push(*range(4))

    events = group.pop(batch=10)

    assert [event["data"] for event in events] == [0, 1, 2, 3]
    assert group.ack(events[:3]) == [{"success": True}] * 3
    assert group.ack(events[:1]) == [{"success": True, "noop": True}]
    assert group.ack(events[3:], status="dead_letter", error="no") == [{"success": True, "dead_letter": True}]
    assert (group.pop(), group.leases) == ([], 0)


def test_each_ack_has_a_status_of_its_own(v1: httpx.Client, group: Group) -> None:
    group.push(*range(3))
    events = group.pop(batch=3)
    acks = [
        {**lease_of(event), "status": status}
        for event, status in zip(events, ["completed", "dead_letter", "retry"], strict=True)
    ]

    results = v1.post(f"{group.path}/ack", json={"acks": acks}).json()["results"]

    assert results == [{"success": True}, {"success": True, "dead_letter": True}, {"success": True}]
    assert [event["data"] for event in group.pop(batch=3)] == [2]


def test_an_event_tells_all_there_is_to_know(v1: httpx.Client, queue: str, group: Group) -> None:
    event = {"data": {"n": 1}, "key": "k", "id": "i", "headers": {"h": "v"}, "time": "2026-01-31T12:00:00Z"}
    v1.post("push", json={"batches": [{"queue": unquote(queue), "events": [event]}]})

    (got,) = group.pop(lease_seconds=9)

    assert (got["partition"], got["key"], got["id"], got["headers"]) == ("k", "k", "i", {"h": "v"})
    assert (got["event_time"], got["offset"], got["data"]) == ("2026-01-31T12:00:00Z", 0, {"n": 1})
    assert got["lease_until"] > got["appended_at"]


def test_an_ack_under_a_lease_that_has_ended_is_refused(group: Group) -> None:
    group.push(1)
    events = group.pop()
    group.ack(events, status="retry")

    (result,) = group.ack(events)

    assert not result["success"]
    assert result["error"].startswith("late")


def test_an_ack_moves_no_other_queue_and_no_other_group(v1: httpx.Client, queue: str, group: Group) -> None:
    group.push(1)
    events = group.pop()
    v1.put("queues/another")
    others = [Group(v1, "another"), Group(v1, queue, "another")]

    for other in others:
        other.pop()
        (result,) = other.ack(events)
        assert not result["success"]
        extended = v1.post(
            f"{other.path}/extend",
            json={"lease_id": events[0]["lease_id"], "partition_ids": [events[0]["partition_id"]]},
        )
        assert extended.json() == {"lease_until": None}

    assert group.leases == 1 + 1  # of the other group of the same queue
    assert group.ack(events) == [{"success": True}]


def test_a_lease_lasts_longer_when_it_is_extended(v1: httpx.Client, group: Group) -> None:
    group.push(1)
    (event,) = group.pop(lease_seconds=5)
    asked = {"lease_id": event["lease_id"], "partition_ids": [event["partition_id"]], "seconds": 60}

    until = v1.post(f"{group.path}/extend", json=asked).json()["lease_until"]

    assert until > event["lease_until"]
    group.ack([event])
    assert v1.post(f"{group.path}/extend", json=asked).json() == {"lease_until": None}


def test_a_pop_waits_for_events(group: Group) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(group.pop, wait_seconds=PATIENCE)
        group.push("at last")

        assert [event["data"] for event in waiting.result()] == ["at last"]


def test_a_pop_can_take_several_partitions_or_one(v1: httpx.Client, queue: str, group: Group) -> None:
    events = [{"data": n, "key": f"k{n % 3}"} for n in range(6)]
    v1.post("push", json={"batches": [{"queue": unquote(queue), "events": events}]})

    assert [event["data"] for event in group.pop(batch=10, partition="k1")] == [1, 4]
    assert sorted(event["data"] for event in group.pop(batch=10, partitions=10)) == [0, 2, 3, 5]


def test_a_pop_brings_no_more_than_a_server_likes_to_hold(v1: httpx.Client, queue: str, group: Group) -> None:
    for n in range(20):
        batch = {"queue": unquote(queue), "key": str(n), "events": [{"data": [n, "x" * 1_000_000]}]}
        assert v1.post("push", json={"batches": [batch]}).status_code == 200
    first = group.pop(batch=1000, partitions=1000)
    assert 10 <= len(first) <= 16
    # The rest is for others, at once.
    second = group.pop(batch=1000, partitions=1000)
    assert sorted(event["data"][0] for event in [*first, *second]) == list(range(20))


def test_a_group_can_begin_at_the_end_and_complete_as_it_reads(v1: httpx.Client, queue: str) -> None:
    Group(v1, queue).push("old")
    late = Group(v1, queue, "late")
    assert late.pop(subscribe_from="now") == []
    late.push("new")

    assert [event["data"] for event in late.pop(auto_ack=True)] == ["new"]
    assert (late.pop(), late.leases) == ([], 0)


def test_who_leaves_in_the_middle_of_a_poll_leaves_nothing_leased(
    shared_server: Serving, v1: httpx.Client, group: Group
) -> None:
    url = f"{shared_server.url}/v1/{group.path}/pop"
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(url, json={"wait_seconds": 30}, timeout=0.2)
    group.push("for somebody who is there")

    def delivered() -> bool:
        return bool(group.pop(wait_seconds=1))

    soon(delivered)


def test_an_answer_that_was_lost_is_asked_for_again_under_its_lease(group: Group) -> None:
    group.push(*range(3))
    lost, again = str(uuid.uuid4()), str(uuid.uuid4())
    group.pop(batch=3, lease_id=lost)
    assert group.pop(batch=3) == []

    events = group.pop(batch=3, lease_id=again, instead_of=lost)

    assert [event["data"] for event in events] == [0, 1, 2]
    assert {event["lease_id"] for event in events} == {again}
    assert [event.get("attempts", 0) for event in events] == [0, 0, 0]


def test_a_long_poll_is_answered_when_the_server_stops(server_process: Serving) -> None:
    with httpx.Client(base_url=f"{server_process.url}/v1", timeout=PATIENCE) as v1:
        v1.put("queues/jobs")
        group = Group(v1, "jobs")
        begun = threading.Event()

        def poll() -> list[dict[str, Any]]:
            begun.set()
            return group.pop(wait_seconds=60)

        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(poll)
            begun.wait(PATIENCE)
            soon(lambda: v1.get("groups").json()["groups"])
            server_process.process.terminate()

            assert waiting.result(PATIENCE) == []
    assert server_process.process.wait(PATIENCE) == 0


def test_acks_and_pushes_happen_together_or_not_at_all(v1: httpx.Client, group: Group) -> None:
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
    assert refusal(v1.post("transaction", json=body)) == (409, "transaction-refused")
    assert len(v1.get("queues/shipments/events").json()["events"]) == 1


def test_a_transaction_under_a_key_happens_once_however_often_it_is_asked_for(v1: httpx.Client, group: Group) -> None:
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
    assert refusal(v1.post("transaction", json={**body, "acks": []}, headers=headers)) == (409, "idempotency-conflict")


LEASE = {"partition_id": 1, "offset": 0, "lease_id": str(uuid.uuid4())}


@pytest.mark.parametrize(
    ("path", "body", "says"),
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
def test_what_cannot_be_consumed_is_a_problem(
    v1: httpx.Client, queue: str, path: str, body: object, says: tuple[int, str]
) -> None:
    assert refusal(v1.post(path.format(queue=queue), json=body)) == says


def test_an_ack_of_what_never_was_says_so(group: Group) -> None:
    assert group.ack([LEASE]) == [{"success": False, "error": "unresolved: group 'g' is gone"}]
    group.pop()
    assert group.ack([LEASE]) == [{"success": False, "error": "unresolved: group 'g' is gone"}]

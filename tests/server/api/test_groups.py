"""``/v1/groups``: list, seek, change and delete."""

from __future__ import annotations

import httpx
import pytest

from tests.server.api.group_client import GroupClient
from tests.server.problems import problem_kind


def test_list_groups_with_lag(v1: httpx.Client, queue: str) -> None:
    group = GroupClient(v1, queue, "billing")
    group.push(*range(3))
    group.ack(group.pop())

    (listed,) = v1.get(f"queues/{queue}/groups").json()["groups"]

    assert (listed["group"], listed["lag"], listed["leases"]) == ("billing", 2, 0)
    assert listed in v1.get("groups").json()["groups"]
    assert v1.get("groups", params={"queue": listed["queue"]}).json()["groups"] == [listed]
    (position,) = v1.get(f"{group.path}/partitions").json()["partitions"]
    assert (position["partition"], position["next_offset"], position["end_offset"]) == ("Default", 1, 3)


def test_seek_and_delete_group(v1: httpx.Client, queue: str) -> None:
    group = GroupClient(v1, queue)
    group.push(*range(3))
    group.ack(group.pop(batch=3))

    assert v1.post(f"{group.path}/seek", json={"to": "beginning"}).json() == {"partitions": 1}
    assert [event["data"] for event in group.pop(batch=3)] == [0, 1, 2]
    v1.post(f"{group.path}/seek", json={"to": 2, "partition": "Default"})
    assert [event["data"] for event in group.pop(batch=3)] == [2]
    v1.post(f"{group.path}/seek", json={"to": "2020-01-31T12:00:00Z"})
    assert [event["data"] for event in group.pop(batch=3)] == [0, 1, 2]

    assert v1.patch(group.path, json={"counts": False}).status_code == 204
    assert [each["counts"] for each in v1.get(f"queues/{queue}/groups").json()["groups"]] == [False]
    assert v1.delete(group.path).status_code == 204
    assert v1.get(f"queues/{queue}/groups").json()["groups"] == []


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "groups?queue=none", None, (404, "not-found")),
        ("GET", "queues/none/groups", None, (404, "not-found")),
        ("GET", "queues/{queue}/groups/none/partitions", None, (404, "not-found")),
        ("PATCH", "queues/{queue}/groups/none", {"counts": True}, (404, "not-found")),
        ("PATCH", "queues/{queue}/groups/none", {"counts": "no"}, (400, "invalid-request")),
        ("DELETE", "queues/{queue}/groups/none", None, (404, "not-found")),
        ("POST", "queues/{queue}/groups/none/seek", {"to": "end"}, (404, "not-found")),
        ("POST", "queues/{queue}/groups/none/seek", {"to": "yesterday"}, (400, "invalid-request")),
        ("POST", "queues/{queue}/groups/none/seek", {"to": 7}, (400, "invalid-request")),
        ("POST", "queues/{queue}/groups/none/seek", {}, (400, "invalid-request")),
    ],
)
def test_invalid_group_requests(
    v1: httpx.Client, queue: str, method: str, path: str, body: object, expected: tuple[int, str]
) -> None:
    assert problem_kind(v1.request(method, path.format(queue=queue), json=body)) == expected

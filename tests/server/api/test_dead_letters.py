"""``/v1/dead-letters``: list, inspect, redrive and purge."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import httpx
import pytest

from tests.server.api.group_client import GroupClient
from tests.server.problems import problem_kind


@pytest.fixture
def group(v1: httpx.Client, queue: str) -> GroupClient:
    """A group with a dead letter for each of four errors."""
    group = GroupClient(v1, queue)
    group.push(*range(4))
    for event, error in zip(group.pop(batch=4), ["timeout", "bad", "timeout", "worse"], strict=True):
        group.ack([event], status="dead_letter", error=error, traceback="line 1")
    return group


def list_letters(v1: httpx.Client, client: GroupClient, **which: Any) -> list[dict[str, Any]]:
    response = v1.get("dead-letters", params={"queue": unquote(client.queue), **which})
    assert response.status_code == 200, response.text
    letters: list[dict[str, Any]] = response.json()["dead_letters"]
    return letters


def test_list_count_and_get_dead_letters(v1: httpx.Client, group: GroupClient) -> None:
    assert [letter["data"] for letter in list_letters(v1, group)] == [3, 2, 1, 0]
    assert [letter["data"] for letter in list_letters(v1, group, error="timeout", limit=1, offset=1)] == [0]
    assert list_letters(v1, group, group="another") == []
    count = v1.get("dead-letters/count", params={"queue": unquote(group.queue), "error": "timeout"})
    assert count.json() == {"count": 2}

    worst = list_letters(v1, group)[0]

    assert v1.get(f"dead-letters/{worst['id']}").json() == worst
    assert (worst["error"], worst["traceback"], worst["group"]) == ("worse", "line 1", "g")
    assert list_letters(v1, group, ids=f"{worst['id']},1000000000") == [worst]


def test_redrive_by_id_and_filter_oldest_first(v1: httpx.Client, group: GroupClient) -> None:
    name = unquote(group.queue)
    worst = list_letters(v1, group)[0]["id"]

    assert v1.post("dead-letters/redrive", json={"ids": [worst]}).json()["replayed"] == 1
    assert v1.post("dead-letters/redrive", json={"queue": name, "limit": 1}).json()["replayed"] == 1
    assert v1.post("dead-letters/redrive", json={"queue": name, "error": "bad"}).json()["replayed"] == 1
    assert v1.post("dead-letters/redrive", json={"queue": name, "all": True}).json()["replayed"] == 1

    assert sorted(event["data"] for event in group.pop(batch=10)) == [0, 1, 2, 3]


def test_purge_of_everything_must_be_explicit(v1: httpx.Client, group: GroupClient) -> None:
    name = unquote(group.queue)

    assert problem_kind(v1.post("dead-letters/purge", json={"queue": name})) == (400, "invalid-request")
    assert v1.post("dead-letters/purge", json={"queue": name, "error": "timeout"}).json() == {"count": 2}
    assert v1.post("dead-letters/purge", json={"queue": name, "all": True}).json() == {"count": 2}


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("GET", "dead-letters?queue=none", None, (404, "not-found")),
        ("GET", "dead-letters?ids=one", None, (400, "invalid-request")),
        ("GET", "dead-letters?limit=0", None, (400, "invalid-request")),
        ("GET", "dead-letters?since=yesterday", None, (400, "invalid-request")),
        ("GET", "dead-letters?since=2026-01-31T12:00:00", None, (400, "invalid-request")),
        ("GET", "dead-letters/1000000000", None, (404, "not-found")),
        ("GET", "dead-letters/worst", None, (404, "not-found")),
        ("POST", "dead-letters/redrive", {"ids": ["1"]}, (400, "invalid-request")),
        ("POST", "dead-letters/redrive", {"queue": "none"}, (404, "not-found")),
        ("POST", "dead-letters/purge", {}, (400, "invalid-request")),
        ("POST", "dead-letters/purge", {"colour": "red"}, (400, "invalid-request")),
    ],
)
def test_invalid_dead_letter_requests(
    v1: httpx.Client, method: str, path: str, body: object, expected: tuple[int, str]
) -> None:
    assert problem_kind(v1.request(method, path, json=body)) == expected


def test_filters_by_partition_kind_and_stage_apply_to_every_operation(v1: httpx.Client, group: GroupClient) -> None:
    name = unquote(group.queue)
    newest, *_ = list_letters(v1, group)

    assert [letter["data"] for letter in list_letters(v1, group, kind="timeout")] == [2, 0]
    assert list_letters(v1, group, stage="parse") == []
    assert len(list_letters(v1, group, stage="consumer", partition=newest["partition"])) == 4
    assert list_letters(v1, group, partition="another") == []
    assert [letter["data"] for letter in list_letters(v1, group, oldest_first=True, limit=2)] == [0, 1]
    assert [letter["id"] for letter in list_letters(v1, group, after=newest["id"] - 1)] == [newest["id"]]
    count = v1.get("dead-letters/count", params={"queue": name, "kind": "timeout", "stage": "parse"})
    assert count.json() == {"count": 0}
    assert v1.post("dead-letters/purge", json={"queue": name, "stage": "parse"}).json() == {"count": 0}
    assert v1.post("dead-letters/redrive", json={"queue": name, "partition": "another"}).json()["replayed"] == 0
    assert v1.post("dead-letters/redrive", json={"queue": name, "kind": "bad"}).json()["replayed"] == 1


def test_a_mapping_is_previewed_and_then_redriven(v1: httpx.Client, queue: str) -> None:
    group = GroupClient(v1, queue)
    group.push({"prise": "1.50", "id": 12345678901234567890}, {"id": 2})
    group.ack(group.pop(batch=2), status="dead_letter", error="no price")
    request = {"queue": unquote(group.queue), "mapping": "* EXCEPT (prise), cast(prise AS decimal) + 0 AS price"}

    preview = v1.post("dead-letters/redrive/preview", json={**request, "limit": 1})

    assert preview.status_code == 200, preview.text
    assert preview.json()["matching"] == 2
    (edit,) = preview.json()["edits"]
    assert (edit["after"], edit["problem"]) == ({"id": 12345678901234567890, "price": 1.5}, None)
    assert '"price":1.50' in preview.text
    assert len(list_letters(v1, group)) == 2

    assert v1.post("dead-letters/redrive", json=request).json() == {"replayed": 2, "failed": 0, "problems": {}}
    assert [event["data"]["price"] for event in group.pop(batch=2)] == [1.5, None]


def test_new_data_can_be_given_by_id(v1: httpx.Client, group: GroupClient) -> None:
    oldest, second, *_ = list_letters(v1, group, oldest_first=True)

    done = v1.post("dead-letters/redrive", json={"edits": {oldest["id"]: {"n": 1}, second["id"]: "two"}})

    assert done.json()["replayed"] == 2, done.text
    assert [event["data"] for event in group.pop(batch=10)] == [{"n": 1}, "two"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("redrive", {"mapping": "foo(a) AS b"}),
        ("redrive", {"mapping": "a AS b", "edits": {"1": 1}}),
        ("redrive", {"ids": [1], "edits": {"1": 1}}),
        ("redrive", {"edits": {"one": 1}}),
        ("redrive/preview", {}),
        ("redrive/preview", {"mapping": "a b c d"}),
        ("redrive/preview", {"mapping": "*", "limit": 1001}),
    ],
)
def test_invalid_mappings_are_refused(v1: httpx.Client, group: GroupClient, path: str, body: dict[str, Any]) -> None:
    response = v1.post(f"dead-letters/{path}", json=body)
    assert problem_kind(response)[0] == 400, response.text
    assert len(list_letters(v1, group)) == 4

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import httpx
import pytest

from tests.server.refusals import refusal
from tests.server.test_consume import Group


@pytest.fixture
def group(v1: httpx.Client, queue: str) -> Group:
    """A group with a dead letter for each of four errors."""
    group = Group(v1, queue)
    group.push(*range(4))
    for event, error in zip(group.pop(batch=4), ["timeout", "bad", "timeout", "worse"], strict=True):
        group.ack([event], status="dead_letter", error=error, traceback="line 1")
    return group


def letters(v1: httpx.Client, of: Group, **which: Any) -> list[dict[str, Any]]:
    answer = v1.get("dead-letters", params={"queue": unquote(of.queue), **which})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["dead_letters"]
    return found


def test_dead_letters_are_listed_counted_and_shown(v1: httpx.Client, group: Group) -> None:
    assert [letter["data"] for letter in letters(v1, group)] == [3, 2, 1, 0]
    assert [letter["data"] for letter in letters(v1, group, error="timeout", limit=1, offset=1)] == [0]
    assert letters(v1, group, group="another") == []
    count = v1.get("dead-letters/count", params={"queue": unquote(group.queue), "error": "timeout"})
    assert count.json() == {"count": 2}

    worst = letters(v1, group)[0]

    assert v1.get(f"dead-letters/{worst['id']}").json() == worst
    assert (worst["error"], worst["traceback"], worst["group"]) == ("worse", "line 1", "g")
    assert letters(v1, group, ids=f"{worst['id']},1000000000") == [worst]


def test_dead_letters_are_sent_back_by_id_by_filter_and_oldest_first(v1: httpx.Client, group: Group) -> None:
    name = unquote(group.queue)
    worst = letters(v1, group)[0]["id"]

    assert v1.post("dead-letters/redrive", json={"ids": [worst]}).json()["replayed"] == 1
    assert v1.post("dead-letters/redrive", json={"queue": name, "limit": 1}).json()["replayed"] == 1
    assert v1.post("dead-letters/redrive", json={"queue": name, "error": "bad"}).json()["replayed"] == 1
    assert v1.post("dead-letters/redrive", json={"queue": name, "all": True}).json()["replayed"] == 1

    assert sorted(event["data"] for event in group.pop(batch=10)) == [0, 1, 2, 3]


def test_dead_letters_are_purged_and_everything_has_to_be_said(v1: httpx.Client, group: Group) -> None:
    name = unquote(group.queue)

    assert refusal(v1.post("dead-letters/purge", json={"queue": name})) == (400, "invalid-request")
    assert v1.post("dead-letters/purge", json={"queue": name, "error": "timeout"}).json() == {"count": 2}
    assert v1.post("dead-letters/purge", json={"queue": name, "all": True}).json() == {"count": 2}


@pytest.mark.parametrize(
    ("method", "path", "body", "says"),
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
        ("POST", "dead-letters/purge", {"kind": "old"}, (400, "invalid-request")),
    ],
)
def test_what_cannot_be_done_to_dead_letters_is_a_problem(
    v1: httpx.Client, method: str, path: str, body: object, says: tuple[int, str]
) -> None:
    assert refusal(v1.request(method, path, json=body)) == says

"""Requests of which some is bad, and requests that are sent again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.conditions import soon
from tests.server.ingest.pushing import Door

NDJSON = "application/x-ndjson"


def cloud(**more: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", **more}


@pytest.mark.parametrize(
    ("body", "kind", "good", "bad"),
    [
        (
            [{"data": 0}, {"data": 1, "key": 5}, {"data": 2}, {"dat": 3}, {"data": 4, "time": "soon"}, {"data": 5}],
            "application/json",
            [0, 2, 5],
            {1: "key", 3: "dat", 4: "time"},
        ),
        (b'0\n{"a\n2\n\n[[\xff]]\n4', NDJSON, [0, 2, 4], {1: "data", 3: "data"}),
        (
            [cloud(data=0), cloud(id="2", specversion="9"), cloud(id="3", data=2)],
            "application/cloudevents-batch+json",
            [0, 2],
            {1: "specversion"},
        ),
    ],
)
def test_the_good_are_kept_and_the_bad_are_dead_letters(
    door: Callable[..., Door], body: Any, kind: str, good: list[Any], bad: dict[int, str]
) -> None:
    queue = door()
    answer = queue.accepted(body, kind, partial=True)
    assert answer["accepted"] == len(good)
    assert {each["index"]: each["field"] for each in answer["rejected"]} == bad
    assert queue.data() == good
    letters = queue.dead_letters()
    assert {letter.stage for letter in letters} == {"ingest"}
    assert sorted(letter.error.partition(":")[0] for letter in letters) == sorted(bad.values())


def test_what_was_sent_can_be_read_in_its_dead_letter(door: Callable[..., Door]) -> None:
    queue = door()
    queue.push(b'{"n": 1, "at": "soon"}\nnot json \xff\x00', NDJSON, partial=True, time_field="at")
    assert sorted(json.dumps(letter.data) for letter in queue.dead_letters()) == [
        '"not json \\\\xff\\ufffd"',
        '{"n": 1, "at": "soon"}',
    ]
    redriven = queue.store.queue(queue.queue).dlq().redrive()
    assert (redriven.replayed, redriven.failed) == (0, 2)
    assert all("push it again" in reason for reason in redriven.problems.values())


def test_nothing_good_is_no_error_if_that_was_asked_for(door: Callable[..., Door]) -> None:
    queue = door()
    answer = queue.accepted(b"a\nb", NDJSON, partial=True)
    assert (answer["accepted"], len(answer["rejected"])) == (0, 2)
    assert len(queue.dead_letters()) == 2
    # A body that cannot be taken apart is refused all the same.
    assert queue.refused(b"[1,", partial=True)[:2] == (400, "invalid-json")


def test_a_request_that_is_sent_again_stores_nothing_and_is_answered_as_before(door: Callable[..., Door]) -> None:
    queue = door()
    said = {"Idempotency-Key": "mine"}
    first = queue.accepted([{"data": 1}, {"data": 2}], headers=said)
    again = queue.accepted([{"data": 1}, {"data": 2}], headers={"Idempotency-Key": '"mine"'})
    assert (first["accepted"], first["replayed"], again["accepted"], again["replayed"]) == (2, False, 2, True)
    assert queue.data() == [1, 2]
    status, name, problem = queue.refused([{"data": 3}], headers=said)
    assert (status, name) == (409, "idempotency-conflict")
    assert "http:" not in problem["detail"]
    assert queue.refused({"data": 1}, headers={"Idempotency-Key": "x" * 201})[:2] == (400, "invalid-request")


def test_bad_events_of_a_request_that_is_sent_again_are_dead_letters_once(door: Callable[..., Door]) -> None:
    queue = door()
    said = {"Idempotency-Key": "k"}
    for replayed in (False, True):
        answer = queue.accepted(b"1\n{", NDJSON, said, partial=True)
        assert (answer["accepted"], len(answer["rejected"]), answer["replayed"]) == (1, 1, replayed)
        only_bad = queue.accepted(b"{", NDJSON, {"Idempotency-Key": "b"}, partial=True)
        assert (len(only_bad["rejected"]), only_bad["replayed"]) == (1, replayed)
    assert len(queue.dead_letters()) == 2
    assert queue.refused(b"1\n[", NDJSON, said, partial=True)[1] == "idempotency-conflict"


def test_a_key_is_of_one_queue_alone_and_not_of_one_that_was_made_anew(door: Callable[..., Door]) -> None:
    one, other = door(), door()
    said = {"Idempotency-Key": "same"}
    assert not one.accepted({"data": 1}, headers=said)["replayed"]
    assert not other.accepted({"data": 2}, headers=said)["replayed"]
    one.store.queue(one.queue).delete()
    one.store.queue(one.queue).create()
    one.http.get("/healthz")

    def pushed() -> bool:
        return one.push({"data": 1}, headers=said).json().get("replayed") is False

    soon(pushed)
    assert one.data() == [1]


def test_ids_that_are_known_are_duplicates(door: Callable[..., Door]) -> None:
    queue = door()
    assert queue.accepted([{"data": 1, "id": "a"}, {"data": 2, "id": "b"}])["accepted"] == 2
    answer = queue.accepted([{"data": 1, "id": "a"}, {"data": 3, "id": "c"}])
    assert (answer["accepted"], answer["duplicates"]) == (1, 1)

"""Partial pushes, and repeated requests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conditions import eventually
from tests.server.ingest.push_client import CreateQueue

NDJSON = "application/x-ndjson"


def cloud(**more: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", **more}


@pytest.mark.parametrize(
    ("body", "media_type", "valid", "invalid"),
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
def test_partial_push_stores_valid_events_and_dead_letters_the_others(
    create_queue: CreateQueue, body: Any, media_type: str, valid: list[Any], invalid: dict[int, str]
) -> None:
    queue = create_queue()
    response = queue.accepted(body, media_type, partial=True)
    assert response["accepted"] == len(valid)
    assert {each["index"]: each["field"] for each in response["rejected"]} == invalid
    assert queue.data() == valid
    letters = queue.dead_letters()
    assert {letter.stage for letter in letters} == {"ingest"}
    assert sorted(letter.error.partition(":")[0] for letter in letters) == sorted(invalid.values())


def test_dead_letter_contains_the_rejected_input(create_queue: CreateQueue) -> None:
    queue = create_queue()
    queue.push(b'{"n": 1, "at": "soon"}\nnot json \xff\x00', NDJSON, partial=True, time_field="at")
    assert sorted(json.dumps(letter.data) for letter in queue.dead_letters()) == [
        '"not json \\\\xff\\ufffd"',
        '{"n": 1, "at": "soon"}',
    ]
    redriven = queue.store.queue(queue.queue).dlq().redrive()
    assert (redriven.replayed, redriven.failed) == (0, 2)
    assert all("redrive it with corrected data" in reason for reason in redriven.problems.values())


def test_partial_push_without_valid_events_succeeds(create_queue: CreateQueue) -> None:
    queue = create_queue()
    response = queue.accepted(b"a\nb", NDJSON, partial=True)
    assert (response["accepted"], len(response["rejected"])) == (0, 2)
    assert len(queue.dead_letters()) == 2
    # A body that is not JSON is refused nevertheless.
    assert queue.refused(b"[1,", partial=True)[:2] == (400, "invalid-json")


def test_lines_without_a_key_are_independent_by_default(create_queue: CreateQueue) -> None:
    queue = create_queue()
    body = b'0\n\n{"a\n1\r\n[\n'
    response = queue.accepted(body, NDJSON)
    assert (response["accepted"], queue.data()) == (2, [0, 1])
    assert [(each["index"], each["line"], each["field"]) for each in response["rejected"]] == [
        (1, 3, "data"),
        (3, 5, "data"),
    ]
    assert len(queue.dead_letters()) == 2
    for refused in (
        queue.refused(body, NDJSON, {"Idempotency-Key": "k"}),
        queue.refused(body, NDJSON, partial="false"),
        queue.refused(b"{\n[", NDJSON),
        queue.refused([{"data": 1}, {"dat": 2}]),
    ):
        assert refused[:2] == (422, "invalid-event")
    assert (queue.data(), len(queue.dead_letters())) == ([0, 1], 2)


def test_queue_decides_about_invalid_events(create_queue: CreateQueue) -> None:
    strict, lenient = create_queue(invalid_events="refuse"), create_queue(invalid_events="dead_letter")
    assert strict.refused(b"0\n{", NDJSON)[:2] == (422, "invalid-event")
    assert strict.accepted(b"0\n{", NDJSON, partial=True)["accepted"] == 1
    response = lenient.accepted([{"data": 1}, {"dat": 2}], headers={"Idempotency-Key": "k"})
    assert (response["accepted"], [(each["index"], each["line"]) for each in response["rejected"]]) == (1, [(1, None)])
    assert lenient.refused(b"0\n{", NDJSON, partial="false")[:2] == (422, "invalid-event")


def test_repeated_request_is_replayed(create_queue: CreateQueue) -> None:
    queue = create_queue()
    headers = {"Idempotency-Key": "mine"}
    first = queue.accepted([{"data": 1}, {"data": 2}], headers=headers)
    again = queue.accepted([{"data": 1}, {"data": 2}], headers={"Idempotency-Key": '"mine"'})
    assert (first["accepted"], first["replayed"], again["accepted"], again["replayed"]) == (2, False, 2, True)
    assert queue.data() == [1, 2]
    status, name, problem = queue.refused([{"data": 3}], headers=headers)
    assert (status, name) == (409, "idempotency-conflict")
    assert "http:" not in problem["detail"]
    assert queue.refused({"data": 1}, headers={"Idempotency-Key": "x" * 201})[:2] == (400, "invalid-request")


def test_repeated_partial_push_makes_dead_letters_once(create_queue: CreateQueue) -> None:
    queue = create_queue()
    headers = {"Idempotency-Key": "k"}
    for replayed in (False, True):
        response = queue.accepted(b"1\n{", NDJSON, headers, partial=True)
        assert (response["accepted"], len(response["rejected"]), response["replayed"]) == (1, 1, replayed)
        only_invalid = queue.accepted(b"{", NDJSON, {"Idempotency-Key": "b"}, partial=True)
        assert (len(only_invalid["rejected"]), only_invalid["replayed"]) == (1, replayed)
    assert len(queue.dead_letters()) == 2
    assert queue.refused(b"1\n[", NDJSON, headers, partial=True)[1] == "idempotency-conflict"


def test_idempotency_key_belongs_to_one_queue(create_queue: CreateQueue) -> None:
    one, other = create_queue(), create_queue()
    headers = {"Idempotency-Key": "same"}
    assert not one.accepted({"data": 1}, headers=headers)["replayed"]
    assert not other.accepted({"data": 2}, headers=headers)["replayed"]
    one.store.queue(one.queue).delete()
    one.store.queue(one.queue).create()
    one.http.get("/healthz")

    def pushed() -> bool:
        return one.push({"data": 1}, headers=headers).json().get("replayed") is False

    eventually(pushed)
    assert one.data() == [1]


def test_known_ids_are_duplicates(create_queue: CreateQueue) -> None:
    queue = create_queue()
    assert queue.accepted([{"data": 1, "id": "a"}, {"data": 2, "id": "b"}])["accepted"] == 2
    response = queue.accepted([{"data": 1, "id": "a"}, {"data": 3, "id": "c"}])
    assert (response["accepted"], response["duplicates"]) == (1, 1)

"""Redriving many dead letters with an edit."""

from __future__ import annotations

import pytest

from penstock.core.errors import InvalidRequest
from penstock.log.dead_letters.dead_letter import DeadLetter, DeadLetterFilter
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from tests.log.logs import GROUP, QUEUE, letters, pop, push

ALL = DeadLetterFilter(queue=QUEUE)


async def _bury(log: Log, data: list[object], error: str = "no price") -> None:
    await push(log, data, key="ada")
    for event in await pop(log, batch=len(data)):
        await log.ack([event], "dead_letter", error=error)


def _mend(letter: DeadLetter) -> bytes:
    if "prise" not in letter.data:
        raise InvalidRequest("it has no prise")
    return b'{"price": %d}' % letter.data["prise"]


async def test_a_preview_changes_nothing_and_names_what_cannot_be_edited(log: Log) -> None:
    await log.configure(QUEUE)
    await _bury(log, [{"prise": 1}, {"other": 2}, {"prise": 3}])
    before = await letters(log)

    edits = await log.preview_redrive(ALL, _mend)

    assert [(edit.before, edit.after, edit.problem) for edit in edits] == [
        ({"prise": 1}, {"price": 1}, None),
        ({"other": 2}, None, "it has no prise"),
        ({"prise": 3}, {"price": 3}, None),
    ]
    assert [edit.is_changed for edit in edits] == [True, False, True]
    assert await letters(log) == before


async def test_edited_letters_are_sent_back_and_the_others_stay(log: Log) -> None:
    await log.configure(QUEUE)
    await _bury(log, [{"prise": 1}, {"other": 2}, {"prise": 3}])

    done = await log.redrive(ALL, edit=_mend)

    assert (done.replayed, done.failed, list(done.problems.values())) == (2, 1, ["it has no prise"])
    assert [letter.data for letter in await letters(log)] == [{"other": 2}]
    events = await pop(log, batch=10)
    assert [event.data for event in events] == [{"price": 1}, {"price": 3}]
    for event in events:
        await log.ack([event], "dead_letter", error="still wrong")
    assert [
        (letter.data, letter.history[0]["data"]) for letter in await letters(log) if letter.error == "still wrong"
    ] == [({"price": 1}, '{"prise":1}'), ({"price": 3}, '{"prise":3}')]


async def test_an_edit_that_changes_nothing_leaves_no_trace_in_the_history(log: Log) -> None:
    await log.configure(QUEUE)
    await _bury(log, [{"prise": 1}])

    (edit,) = await log.preview_redrive(ALL, lambda letter: letter.raw)
    assert not edit.is_changed
    await log.redrive(ALL, edit=lambda letter: letter.raw)

    (event,) = await pop(log)
    await log.ack([event], "dead_letter", error="again")
    (letter,) = await letters(log)
    assert ["data" in entry for entry in letter.history] == [False]


@pytest.mark.parametrize("data", [b"{", b'"' + b"x" * 200 + b'"'])
async def test_an_edit_that_returns_no_valid_event_is_a_problem(log: Log, data: bytes) -> None:
    await log.configure(QUEUE, {"max_event_bytes": 100})
    await _bury(log, [{"prise": 1}])

    (edit,) = await log.preview_redrive(ALL, lambda letter: data)
    assert edit.problem is not None
    assert edit.after is None
    assert (await log.redrive(ALL, edit=lambda letter: data)).failed == 1
    assert [letter.data for letter in await letters(log)] == [{"prise": 1}]


async def test_a_preview_names_deleted_groups_and_the_cap_of_redrives(log: Log) -> None:
    await log.configure(QUEUE, {"max_redrives": 0})
    await _bury(log, [{"prise": 1}])
    (edit,) = await log.preview_redrive(ALL, _mend)
    assert "the cap of the queue is 0" in (edit.problem or "")

    await log.delete_group(QUEUE, GROUP)

    (edit,) = await log.preview_redrive(ALL, _mend)
    assert "no longer exists" in (edit.problem or "")


async def test_rejected_input_becomes_an_event_when_it_is_edited(log: Log) -> None:
    await log.configure(QUEUE, {"key_field": "customer"})
    await log.push([Batch(QUEUE, b'{"customer": {"id": 7}, "n": 1}\n{"customer": "ada", "n": 2}\n')], partial=True)
    assert [letter.stage for letter in await letters(log)] == ["ingest"]

    assert (await log.redrive(ALL)).failed == 1
    done = await log.redrive(ALL, edit=lambda letter: b'{"customer": "7", "n": %d}' % letter.data["n"])

    assert (done.replayed, done.failed) == (1, 0)
    assert await letters(log) == []
    events = [*await pop(log, batch=10), *await pop(log, batch=10)]
    assert sorted((event.key, event.data["n"]) for event in events) == [("7", 1), ("ada", 2)]


async def test_filters_by_kind_stage_and_id_are_independent(log: Log) -> None:
    await log.configure(QUEUE)
    await _bury(log, [{"n": 1}], "order 1234 is late")
    await _bury(log, [{"n": 2}], "no price")
    oldest, newest = await letters(log)

    async def found(**conditions: object) -> list[int]:
        return await log.dead_letter_ids(DeadLetterFilter(queue=QUEUE, **conditions))  # type: ignore[arg-type]

    assert await found(kind="order # is late") == [oldest.id]
    assert await found(stage="consumer") == [oldest.id, newest.id]
    assert await found(stage="parse") == []
    assert await found(kind="no price", stage="parse") == []
    assert await found(after=oldest.id) == [newest.id]

"""Redriving a dead letter with other data."""

from __future__ import annotations

import pytest

from penstock.core.errors import InvalidEvent
from penstock.log.dead_letters.dead_letter import DeadLetterFilter
from penstock.log.log import Log
from tests.log.logs import GROUP, QUEUE, letters, pop, push


async def _bury(log: Log, errors: list[str]) -> None:
    await push(log, list(range(len(errors))), key="ada")
    for event, error in zip(await pop(log, batch=len(errors)), errors, strict=True):
        await log.ack([event], "dead_letter", error=error)


async def test_an_edited_redrive_keeps_the_old_data_in_the_history(log: Log) -> None:
    await log.configure(QUEUE, {"retry_limit": 0})
    await push(log, [{"total": "12,50"}], key="ada", ids=["one"])
    await log.ack(await pop(log), False, error="no number")
    (letter,) = await letters(log)

    done = await log.redrive_edited(letter.id, b'{\n  "total": 12.5\n}')

    assert done.replayed == 1
    (event,) = await pop(log)
    assert (event.data, event.key, event.given_id) == ({"total": 12.5}, "ada", "one")
    await log.ack([event], False, error="still wrong")
    (letter,) = await letters(log)
    assert letter.data == {"total": 12.5}
    assert [past.get("data") for past in letter.history] == ['{"total":"12,50"}', None]


@pytest.mark.parametrize("text", [b"", b"{", b"NaN", b'{"a": 1} {"b": 2}', b"\xff"])
async def test_an_edited_redrive_with_invalid_data_is_refused(log: Log, text: bytes) -> None:
    await log.configure(QUEUE)
    await _bury(log, ["why"])
    (letter,) = await letters(log)

    with pytest.raises(InvalidEvent):
        await log.redrive_edited(letter.id, text)

    assert await letters(log) == [letter]


async def test_an_edited_redrive_for_a_deleted_group_keeps_the_data(log: Log) -> None:
    await log.configure(QUEUE)
    await _bury(log, ["why"])
    (letter,) = await letters(log)
    await log.delete_group(QUEUE, GROUP)

    assert (await log.redrive_edited(letter.id, b"7")).failed == 1
    assert await letters(log) == [letter]
    assert await log.dead_letter_ids(DeadLetterFilter(queue=QUEUE)) == [letter.id]

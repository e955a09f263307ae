"""Dead letters counted by kind of error."""

from __future__ import annotations

from penstock.log.log import Log
from tests.log.logs import GROUP, QUEUE, letters, pop, push


async def _bury(log: Log, errors: list[str]) -> None:
    await push(log, list(range(len(errors))), key="ada")
    for event, error in zip(await pop(log, batch=len(errors)), errors, strict=True):
        await log.ack([event], "dead_letter", error=error)


async def test_dead_letters_are_counted_by_kind_of_error(log: Log) -> None:
    await log.configure(QUEUE)
    await _bury(
        log,
        [
            "KeyError: 'total'\nline 2",
            "KeyError: 'total'\nline 3",
            "order 48213 is too old",
            "order 48299 is too old",
            "HTTP 500",
            "HTTP 404",
            "text (12,91 EUR) is no number",
            "text (1.157,2 EUR) is no number",
        ],
    )

    kinds = {kind.kind: kind for kind in await log.dead_letter_kinds()}

    assert {name: kind.count for name, kind in kinds.items()} == {
        "KeyError: 'total'": 2,
        "order # is too old": 2,
        "HTTP 500": 1,
        "HTTP 404": 1,
        "text (# EUR) is no number": 2,
    }
    old = kinds["order # is too old"]
    assert (old.queue, old.group, old.is_whole) == (QUEUE, GROUP, True)
    assert len(await log.dead_letter_ids(old.filter)) == 2
    assert await log.purge(old.filter) == 2
    assert await log.purge(kinds["text (# EUR) is no number"].filter) == 2
    done = await log.redrive(kinds["KeyError: 'total'"].filter)
    assert done.replayed == 2
    assert {letter.error for letter in await letters(log)} == {"HTTP 500", "HTTP 404"}

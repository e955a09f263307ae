"""What people see of queues with very many partitions, and of very many dead letters: a page of it, at a small cost."""

from __future__ import annotations

import pytest

from penstock.core.errors import InvalidEvent, NotFound
from penstock.db.statements import Statements
from penstock.log.dead_letters import Filter
from penstock.log.log import Batch, Log
from tests.log.logs import GROUP, QUEUE, data, drain, letters, pop, push
from tests.log.plans import explain

_browse = Statements("penstock.log.read", "browse.sql")


async def _lanes(log: Log, count: int) -> None:
    await log.push([Batch(QUEUE, [{"data": n, "key": f"tenant-{n:04}"} for n in range(count)])])


async def test_partitions_are_shown_a_page_at_a_time_and_found_by_a_part_of_their_name(log: Log) -> None:
    await log.configure(QUEUE)
    await _lanes(log, 120)

    first = await log.lanes(QUEUE, limit=50)
    third = await log.lanes(QUEUE, limit=50, offset=100)

    assert [lane.name for lane in first] == [f"tenant-{n:04}" for n in range(50)]
    assert len(third) == 20
    assert [lane.name for lane in await log.lanes(QUEUE, search="ENANT-011")] == [
        f"tenant-{n:04}" for n in range(110, 120)
    ]
    assert await log.lanes(QUEUE, search="nobody") == []


async def test_a_partition_shows_what_it_holds_and_its_slowest_group(log: Log) -> None:
    await log.configure(QUEUE)
    await log.subscribe(QUEUE, "fast")
    await log.subscribe(QUEUE, "slow")
    await push(log, [1, 2, 3], key="ada")
    await drain(log, group="fast")
    await pop(log, group="slow")

    (lane,) = await log.lanes(QUEUE)

    assert (lane.name, lane.first, lane.end, lane.lag, lane.leases) == ("ada", 0, 3, 3, 1)
    assert lane.last_at is not None


async def test_partitions_of_a_hash_queue_come_in_the_order_of_their_numbers(log: Log) -> None:
    await log.configure("hashed", partitioning="hash", partitions=12)

    assert [lane.name for lane in await log.lanes("hashed")] == [str(n) for n in range(12)]


async def test_where_a_group_is_furthest_behind_comes_first(log: Log) -> None:
    await log.configure(QUEUE)
    await log.subscribe(QUEUE, GROUP)
    await push(log, [1], key="ada")
    await push(log, [1, 2, 3], key="bob")

    assert [(lane.partition, lane.lag) for lane in await log.lanes_behind(QUEUE, GROUP)] == [("bob", 3), ("ada", 1)]
    await drain(log)
    assert await log.lanes_behind(QUEUE, GROUP) == []
    with pytest.raises(NotFound):
        await log.lanes_behind(QUEUE, "nobody")


async def test_the_newest_events_of_all_partitions_come_first(log: Log) -> None:
    await log.configure(QUEUE)
    for n in range(30):
        await push(log, [n], key=f"tenant-{n % 7}")
    await push(log, [100, 101, 102], key="ada")

    assert data(await log.latest(QUEUE, 5)) == [102, 101, 100, 29, 28]
    assert len(await log.latest(QUEUE, 1000)) == 33
    queue = await log.queue(QUEUE)
    async with log.database.connection() as conn:
        statement = _browse.table("at_the_end", queue.id, queue.segment)
        explained = await explain(conn, statement, {"first": "(0,0)", "last": "(1,0)"})
    assert {node.kind for node in explained.scans("chunks")} == {"Tid Range Scan"}


async def test_the_newest_events_go_back_over_segments(log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, [1, 2], key="ada")
    await log.segments.roll(await log.catalog.refresh(QUEUE))
    assert data(await log.latest(QUEUE, 10)) == [2, 1]
    await push(log, [3], key="ada")
    assert data(await log.latest(QUEUE, 2)) == [3, 2]


async def _bury(log: Log, errors: list[str]) -> None:
    await push(log, list(range(len(errors))), key="ada")
    for event, error in zip(await pop(log, batch=len(errors)), errors, strict=True):
        await log.ack([event], "dead_letter", error=error)


async def test_dead_letters_are_grouped_by_what_their_errors_have_in_common(log: Log) -> None:
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


async def test_a_dead_letter_is_sent_back_with_other_data_and_keeps_what_it_had(log: Log) -> None:
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
async def test_a_dead_letter_is_not_sent_back_with_what_is_no_event(log: Log, text: bytes) -> None:
    await log.configure(QUEUE)
    await _bury(log, ["why"])
    (letter,) = await letters(log)

    with pytest.raises(InvalidEvent):
        await log.redrive_edited(letter.id, text)

    assert await letters(log) == [letter]


async def test_a_dead_letter_of_a_group_that_is_gone_keeps_its_data(log: Log) -> None:
    await log.configure(QUEUE)
    await _bury(log, ["why"])
    (letter,) = await letters(log)
    await log.delete_group(QUEUE, GROUP)

    assert (await log.redrive_edited(letter.id, b"7")).failed == 1
    assert await letters(log) == [letter]
    assert await log.dead_letter_ids(Filter(queue=QUEUE)) == [letter.id]

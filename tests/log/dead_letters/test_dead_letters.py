"""Dead letters: stored, listed, redriven and purged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.core.clock import Clock
from penstock.core.errors import NotFound
from penstock.engine.joins.expired_event import ExpiredEvent
from penstock.log.dead_letters.dead_letter import DEAD_LETTER_HEADER, DeadLetterFilter, FailedEvent
from penstock.log.dead_letters.redrive import Redriver
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from tests.log.logs import GROUP, QUEUE, data, drain, lag, letters, pop, push, roll


async def bury(log: Log, datas: Sequence[Any], *, group: str = GROUP, key: str = "ada", error: str = "why") -> None:
    await push(log, datas, key=key)
    await log.ack(await pop(log, group=group), "dead_letter", error=error)


async def test_a_redriven_event_is_delivered_only_to_its_group(log: Log) -> None:
    await log.configure(QUEUE)
    await bury(log, [1])
    await log.subscribe(QUEUE, "at the end", "end")
    assert data(await drain(log, group="another")) == [1]
    await push(log, [2], key="ada")
    done = await log.redrive(DeadLetterFilter(queue=QUEUE))
    assert (done.replayed, done.failed) == (1, 0)
    await push(log, [3], key="ada")
    assert await letters(log) == []
    assert data(await drain(log)) == [2, 1, 3]
    for group in ("another", "at the end"):
        assert data(await drain(log, group=group)) == [2, 3]
        assert await lag(log, group=group) == 0
    assert data(await drain(log, group="a new one")) == [1, 2, 3]


async def test_redriven_events_do_not_delay_other_groups(log: Log) -> None:
    await log.configure(QUEUE)
    await bury(log, [1])
    await log.redrive(DeadLetterFilter(queue=QUEUE))
    assert data(await drain(log, group="another")) == [1]
    await push(log, [2], key="ada")
    assert data(await pop(log, group="another")) == [2]


async def test_an_event_that_retention_has_dropped_is_stored_from_its_copy(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"retention_seconds": 3600})
    await push(log, [1, 2], key="ada")
    first, second = await pop(log)
    await log.ack([first, second])
    await roll(log)
    failed = [FailedEvent(second.offset, "too late", "cycle", attempts=3)]

    async def bury_read(copy: Event | None) -> None:
        async with log.database.connection() as conn, conn.transaction():
            await log.dead_letter_store.add(conn, await log.queue(QUEUE), GROUP, second.partition_id, failed, copy)

    await bury_read(first)  # not needed
    clock.advance(90_000)
    assert (await log.upkeep()).dropped
    with pytest.raises(NotFound, match="no longer exists"):
        await bury_read(None)
    await bury_read(ExpiredEvent(1, second.partition_id, second.offset, "ada", 5, '{"of": "it"}').as_event())
    found = [(letter.data, letter.key, letter.offset, letter.error, letter.attempts) for letter in await letters(log)]
    assert found == [(2, "ada", 1, "too late", 3), ({"of": "it"}, "ada", 1, "too late", 3)]


async def test_an_event_that_fails_again_updates_its_dead_letter(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE, {"retry_limit": 0})
    await push(log, [{"n": 1}], key="ada", ids=["one"])
    for i in range(4):
        (event,) = await pop(log)
        assert (event.data, event.key, event.given_id) == ({"n": 1}, "ada", "one")
        await log.ack([event], False, error=f"failure {i}")
        clock.advance(10)
        (letter,) = await letters(log)
        assert (letter.error, letter.redrives, letter.event_id) == (f"failure {i}", i, "one")
        assert [past["error"] for past in letter.history] == [f"failure {n}" for n in range(i)]
        assert await log.dead_letter(letter.id) == letter
        assert (await log.redrive(DeadLetterFilter(ids=[letter.id]))).replayed == 1
        with pytest.raises(NotFound):
            await log.dead_letter(letter.id)
    assert len(await drain(log)) == 1
    assert await letters(log) == []


async def test_max_redrives_limits_redrives(log: Log) -> None:
    await log.configure(QUEUE, {"max_redrives": 2})
    await bury(log, [1])
    for _ in range(2):
        assert (await log.redrive(DeadLetterFilter(queue=QUEUE))).replayed == 1
        await log.ack(await pop(log), "dead_letter")
    done = await log.redrive(DeadLetterFilter(queue=QUEUE))
    assert (done.replayed, done.failed) == (0, 1)
    assert "max_redrives" in next(iter(done.problems.values()))
    assert await pop(log) == []
    await log.configure(QUEUE, {"max_redrives": 3})
    assert (await log.redrive(DeadLetterFilter(queue=QUEUE))).replayed == 1


async def test_concurrent_redrives_send_each_dead_letter_once(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    await bury(log, range(30))
    done = await asyncio.gather(*(mine.redrive(DeadLetterFilter(queue=QUEUE)) for mine in [log, other_log] * 3))
    assert sum(some.replayed for some in done) == 30
    assert sorted(data(await drain(log))) == list(range(30))


def redriver(log: Log, **limits: int) -> Redriver:
    """A redriver with other limits than the log's own."""
    return Redriver(
        log.database.pool,
        log.catalog,
        log.consumer_groups,
        log.dead_letter_store,
        log.appender,
        log.clock,
        log.database.settings.max_event_bytes,
        **limits,
    )


async def test_many_are_redriven_in_batches_and_in_order(log: Log) -> None:
    await log.configure(QUEUE)
    await log.configure("others")
    for n in range(30):
        await push(log, [[n, "x" * (n % 3 * 500)]], key="ada", queue=QUEUE if n % 4 else "others")
    for queue in (QUEUE, "others"):
        assert all(await log.ack(await pop(log, queue), "dead_letter"))
    batches = redriver(log, batch_size=7, batch_bytes=2_000)
    done = await batches.redrive(DeadLetterFilter(group=GROUP), limit=None)
    assert (done.replayed, done.failed) == (30, 0)
    sent = [event.data[0] for queue in (QUEUE, "others") for event in await drain(log, queue)]
    assert sent == [n for n in range(30) if n % 4] + [n for n in range(30) if n % 4 == 0]


async def test_a_page_ends_at_its_size_limit(log: Log) -> None:
    await log.configure(QUEUE)
    await bury(log, [[n, "x" * 1000] for n in range(5)])
    found, more = await log.dead_letter_page(DeadLetterFilter(queue=QUEUE), 4, 0, 2_500)
    assert ([letter.data[0] for letter in found], more) == ([4, 3], True)
    found, more = await log.dead_letter_page(DeadLetterFilter(queue=QUEUE), 4, 2, 10_000)
    assert ([letter.data[0] for letter in found], more) == ([2, 1, 0], False)
    found, more = await log.dead_letter_page(DeadLetterFilter(queue=QUEUE), 4, 4, 1)
    assert ([letter.data[0] for letter in found], more) == ([0], False)
    assert await log.dead_letter_page(DeadLetterFilter(queue=QUEUE), 4, 5, 1) == ([], False)


async def test_the_size_limit_counts_all_texts_of_a_dead_letter(log: Log) -> None:
    await log.configure(QUEUE)
    long = "x" * 10_000
    await log.push([Batch(QUEUE, [{"data": 0, "headers": {"why": long}}])])
    await push(log, [1])
    assert all(await log.ack(await pop(log), "dead_letter", error=long))
    # These texts are stored compressed. The limit counts their full size.
    await log.redrive(DeadLetterFilter(queue=QUEUE))
    assert all(await log.ack(await pop(log), "dead_letter"))
    for most, fit in ((25_000, 1), (35_000, 2)):
        found, more = await log.dead_letter_page(DeadLetterFilter(queue=QUEUE), 2, 0, most)
        assert (len(found), more) == (fit, fit < 2)


async def test_a_redrive_for_a_deleted_group_fails(log: Log) -> None:
    await log.configure(QUEUE)
    await bury(log, [1])
    await log.delete_group(QUEUE, GROUP)
    done = await log.redrive(DeadLetterFilter(queue=QUEUE))
    assert (done.replayed, done.failed) == (0, 1)
    assert len(await letters(log)) == 1


async def test_a_redrive_reports_the_first_problems_only(log: Log) -> None:
    await log.configure(QUEUE)
    await bury(log, range(8))
    await log.delete_group(QUEUE, GROUP)
    done = await redriver(log, batch_size=3, max_problems=4).redrive(DeadLetterFilter(queue=QUEUE), limit=None)
    assert (done.replayed, done.failed) == (0, 8)
    assert list(done.problems) == [letter.id for letter in (await letters(log))[:4]]


async def test_dead_letters_are_filtered_by_each_condition(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE)
    await log.configure("another")
    await log.subscribe(QUEUE, "second")
    await bury(log, [1], key="ada", error="division by zero")
    await bury(log, [2], key="bob", error="100% _wrong_")
    clock.advance(100)
    await bury(log, [3], key="ada", error="timeout")
    await log.ack(await pop(log, group="second"), "dead_letter", error="no")
    everything = await letters(log)
    assert len(everything) == 6
    between = everything[2].failed_at
    found = {
        "group": await letters(log, group=GROUP),
        "key": await letters(log, group=GROUP, key="ada"),
        "error": await letters(log, error="100% _"),
        "since": await letters(log, group=GROUP, since=between),
        "until": await letters(log, group=GROUP, until=between),
        "ids": await letters(log, ids=[everything[0].id]),
        "nothing": await letters(log, ids=[]),
        "queue": await letters(log, "another"),
    }
    assert {name: sorted(letter.data for letter in some) for name, some in found.items()} == {
        "group": [1, 2, 3],
        "key": [1, 3],
        "error": [2],
        "since": [3],
        "until": [1, 2],
        "ids": [1],
        "nothing": [],
        "queue": [],
    }
    assert await log.count_dead_letters(DeadLetterFilter(queue=QUEUE)) == 6
    assert await log.purge(DeadLetterFilter(queue=QUEUE, group="second")) == 3
    assert await log.count_dead_letters(DeadLetterFilter(queue=QUEUE)) == 3


async def test_a_forged_dead_letter_header_is_ignored(log: Log) -> None:
    await log.configure(QUEUE)
    await bury(log, ["first"])
    (letter,) = await letters(log)
    await log.redrive(DeadLetterFilter(queue=QUEUE))
    await drain(log)
    await log.push([Batch(QUEUE, [{"data": "second", "headers": {DEAD_LETTER_HEADER: str(letter.id)}}])])
    await log.ack(await pop(log), "dead_letter")
    assert [found.data for found in await letters(log)] == ["second"]


async def test_a_dead_letter_keeps_key_id_time_and_headers(log: Log) -> None:
    await log.configure(QUEUE, partitioning="hash", partitions=1)
    event = {
        "data": {"text": "\u0000 \U0001f600", "number": 10**40, "none": None},
        "key": "k\u20ac\u00fc",
        "id": "i\u20ac",
        "time": "2026-01-31T12:00:00.123456Z",
        "headers": {"a\u0000": "\U0001f600\u0000"},
    }
    await log.push([Batch(QUEUE, [event])])
    (before,) = await pop(log)
    await log.ack([before], "dead_letter", error="bad \x00 \ud800", traceback="\x00")
    (letter,) = await letters(log)
    assert (letter.data, letter.key, letter.event_id) == (event["data"], event["key"], event["id"])
    assert (letter.headers, letter.event_time) == (event["headers"], before.time)
    await log.redrive(DeadLetterFilter(queue=QUEUE))
    (after,) = await pop(log)
    assert after.raw == before.raw
    assert (after.key, after.given_id, after.time) == (before.key, before.given_id, before.time)
    assert {name: value for name, value in after.headers.items() if name != DEAD_LETTER_HEADER} == event["headers"]


async def test_a_redrive_notices_a_group_that_was_just_deleted(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE)
    await push(log, [1])
    await log.ack(await pop(log), "dead_letter")
    assert await pop(log) == []  # this log caches the group for a second
    await other_log.delete_group(QUEUE, GROUP)
    done = await log.redrive(DeadLetterFilter(queue=QUEUE))
    assert (done.replayed, done.failed) == (0, 1)
    assert "no longer exists" in next(iter(done.problems.values()))
    assert len(await letters(log)) == 1

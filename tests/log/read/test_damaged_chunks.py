"""Damaged chunks: their events become dead letters, consumers go on, and a repaired chunk can be redriven."""

from __future__ import annotations

import logging
from typing import Any

import psycopg
import pytest
from psycopg import sql

from penstock.core.errors import CorruptChunk
from penstock.log.dead_letters.dead_letter import DAMAGED_STAGE, DeadLetterFilter
from penstock.log.log import Log
from tests.log.logs import GROUP, QUEUE, ask, by_key, data, drain, lag, letters, pop, push, roll

EVERYTHING = [[part, i] for part in range(3) for i in range(3)]


def change(url: str, queue_id: int, key: str, end_offset: int, body: str, segment: int = 1) -> None:
    statement = sql.SQL(
        "UPDATE {} SET body = {} "
        "WHERE partition_id = (SELECT id FROM penstock.partitions WHERE name = %s) AND end_offset = %s"
    ).format(sql.Identifier("penstock", f"chunks_{queue_id}_{segment}"), sql.SQL(body))
    with psycopg.connect(url, autocommit=True) as conn:
        assert conn.execute(statement, (key, end_offset)).rowcount == 1


def damage(url: str, queue_id: int, key: str, end_offset: int, segment: int = 1) -> None:
    """Flip a byte in the middle of a stored chunk. A second call repairs it."""
    change(
        url,
        queue_id,
        key,
        end_offset,
        "set_byte(body, length(body) / 2, get_byte(body, length(body) / 2) # 255)",
        segment,
    )


async def fill(log: Log, *keys: str) -> int:
    """Push three chunks of three events for each key. Return the id of the queue."""
    queue = await log.configure(QUEUE)
    for key in keys:
        for part in range(3):
            await push(log, [(part, i) for i in range(3)], key=key)
    return queue.id


async def test_a_damaged_chunk_is_logged_and_skipped(
    log: Log, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    id = await fill(log, "ada", "bob", "cyd")
    damage(database_url, id, "bob", 6)
    partition_id = ask(database_url, "SELECT id FROM penstock.partitions WHERE name = 'bob'")
    with caplog.at_level(logging.ERROR, "penstock.log"):
        found = by_key(await drain(log))
    assert found == {"ada": EVERYTHING, "bob": EVERYTHING[:3] + EVERYTHING[6:], "cyd": EVERYTHING}
    assert await lag(log) == 0
    dead = await letters(log)
    assert [(d.partition, d.key, d.offset, d.stage, d.data) for d in dead] == [
        ("bob", "bob", offset, DAMAGED_STAGE, None) for offset in (3, 4, 5)
    ]
    for statuses in (caplog.text, dead[0].error):
        for word in (QUEUE, f"partition {partition_id}", "offsets 3 to 5", f"chunks_{id}_1", "redrive"):
            assert word in statuses
    assert caplog.text.count("are damaged") == 1


async def test_events_of_a_repaired_chunk_can_be_redriven(log: Log, database_url: str) -> None:
    id = await fill(log, "ada")
    damage(database_url, id, "ada", 6)
    await drain(log)
    sent = await log.redrive(DeadLetterFilter(queue=QUEUE))
    assert (sent.replayed, sent.failed) == (0, 3)
    assert all("are damaged" in problem for problem in sent.problems.values())
    assert len(await letters(log)) == 3

    damage(database_url, id, "ada", 6)
    assert (await log.redrive(DeadLetterFilter(queue=QUEUE))).replayed == 3
    assert data(await drain(log)) == EVERYTHING[3:6]
    assert not await letters(log)


async def test_each_group_gets_its_own_dead_letters(log: Log, database_url: str) -> None:
    id = await fill(log, "ada")
    damage(database_url, id, "ada", 3)
    for group in ("one", "two"):
        assert data(await drain(log, group=group)) == EVERYTHING[3:]
    assert {(d.group, d.offset) for d in await letters(log)} == {(g, o) for g in ("one", "two") for o in range(3)}


async def test_pops_of_one_event_skip_a_damaged_chunk(log: Log, database_url: str) -> None:
    id = await fill(log, "ada")
    damage(database_url, id, "ada", 6)
    found: list[Any] = []
    while events := await pop(log, batch=1):
        found += data(events)
        assert all(await log.ack(events))
    assert found == EVERYTHING[:3] + EVERYTHING[6:]
    assert len(await letters(log)) == 3


async def test_a_chunk_that_is_damaged_while_a_group_reads_it(log: Log, other_log: Log, database_url: str) -> None:
    id = await fill(log, "ada")
    (first,) = await pop(log, batch=1)
    damage(database_url, id, "ada", 3)
    # The consumer fails on an event that cannot be read any more.
    assert all(await log.ack([first], "dead_letter", error="no good"))
    assert data(await drain(other_log)) == EVERYTHING[3:]
    dead = await letters(log)
    assert [d.offset for d in dead] == [0, 1, 2]
    assert dead[0].error.startswith("no good; ")
    damage(database_url, id, "ada", 3)
    assert (await log.redrive(DeadLetterFilter(queue=QUEUE))).replayed == 3
    assert data(await drain(other_log)) == EVERYTHING[:3]


async def test_adjacent_damaged_chunks_in_a_sealed_segment(log: Log, database_url: str) -> None:
    id = await fill(log, "ada", "bob")
    await roll(log)
    await push(log, ["after"], key="ada")
    for end in (3, 6, 9):
        damage(database_url, id, "ada", end)
    found = by_key(await drain(log))
    assert found == {"ada": ["after"], "bob": EVERYTHING}
    assert [d.offset for d in await letters(log)] == list(range(9))


async def test_a_damaged_chunk_for_another_group_is_skipped(log: Log, database_url: str) -> None:
    id = await fill(log, "ada")
    events = await pop(log, batch=1, group="one")
    assert all(await log.ack(events, "dead_letter", error="bad"))
    assert (await log.redrive(DeadLetterFilter(queue=QUEUE))).replayed == 1
    damage(database_url, id, "ada", 10)
    assert data(await drain(log)) == EVERYTHING
    assert await lag(log) == 0
    assert not await letters(log)


async def test_a_chunk_of_a_newer_format_is_left_in_place(log: Log, database_url: str) -> None:
    id = await fill(log, "ada", "bob")
    change(database_url, id, "ada", 6, "set_byte(body, 0, 200)")
    found: list[Any] = []

    async def drain_into_found() -> None:
        while True:
            events = await pop(log)
            found.extend((event.key, event.data) for event in events)
            assert all(await log.ack(events))

    with pytest.raises(CorruptChunk, match="codec 200"):
        await drain_into_found()
    assert sorted(found) == sorted([("ada", d) for d in EVERYTHING[:3]] + [("bob", d) for d in EVERYTHING])
    assert not await letters(log)
    await log.seek(QUEUE, GROUP, 6, partition="ada")
    assert data(await drain(log)) == EVERYTHING[6:]


async def test_browsing_skips_a_damaged_chunk(log: Log, database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    id = await fill(log, "ada")
    damage(database_url, id, "ada", 6)
    assert data(await log.fetch(QUEUE, "ada", 0)) == EVERYTHING[:3]
    assert data(await log.fetch(QUEUE, "ada", 6)) == EVERYTHING[6:]
    with pytest.raises(CorruptChunk, match="read on from offset 6") as named:
        await log.fetch(QUEUE, "ada", 4)
    assert (named.value.start, named.value.end) == (3, 6)
    with caplog.at_level(logging.ERROR, "penstock.log"):
        assert data(await log.browse(QUEUE)) == (EVERYTHING[:3] + EVERYTHING[6:])[::-1]
    assert "offsets 3 to 5" in caplog.text


async def test_a_partition_with_a_damaged_chunk_can_grow_and_be_dropped(log: Log, database_url: str) -> None:
    queue = await log.configure(QUEUE)
    await push(log, [1], key="ada", ids=["one"])
    damage(database_url, queue.id, "ada", 1)
    (again,) = await push(log, [1], key="ada", ids=["one"])
    assert again.duplicate
    (pushed,) = await push(log, [2], key="ada", ids=["two"])
    assert pushed.offset == 1
    await log.delete_queue(QUEUE)

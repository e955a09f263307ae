"""Queues that are created, deleted and created again."""

from __future__ import annotations

import asyncio
import json
import logging

import psycopg
import pytest

from penstock.core.errors import Conflict, NotFound
from penstock.log.dead_letters.dead_letter import DeadLetterFilter
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from tests.log.logs import (
    PATIENCE,
    QUEUE,
    ask,
    data,
    drain,
    letters,
    opened,
    pop,
    push,
    roll,
)


async def test_concurrent_configures_create_one_queue(log: Log, other_log: Log) -> None:
    made = await asyncio.gather(*(mine.configure(QUEUE) for mine in [log, other_log] * 4))
    assert len({queue.id for queue in made}) == 1
    with pytest.raises(Conflict):
        await log.configure(QUEUE, only_new=True)


@pytest.mark.parametrize("new_lanes", [False, True])
async def test_a_queue_can_be_deleted_during_pushes(log: Log, other_log: Log, new_lanes: bool) -> None:
    for round_ in range(5):
        await log.configure(QUEUE)
        await push(other_log, ["first"], key="k")
        refused = 0

        async def produce(mine: Log, name: str) -> None:
            nonlocal refused
            for i in range(100):
                try:
                    await push(mine, [i], key=f"{name} {i}" if new_lanes else name)
                except NotFound:
                    refused += 1
                    return

        producing = [asyncio.create_task(produce([log, other_log][i % 2], f"key {i}")) for i in range(4)]
        for _ in range(round_ * 5):
            await asyncio.sleep(0)
        assert await log.delete_queue(QUEUE)
        await asyncio.gather(*producing)
        assert refused == 4
        assert not await other_log.delete_queue(QUEUE)


async def test_a_queue_can_be_deleted_during_pops(log: Log, other_log: Log) -> None:
    await log.configure(QUEUE, {"retry_delay_ms": 0})
    for i in range(50):
        await push(log, [i], key=f"key {i}")

    async def consume(status: object) -> None:
        while True:
            await other_log.ack(await pop(other_log, batch=1, wait_seconds=0.1), status)

    consuming = [asyncio.create_task(consume(status)) for status in (True, False, "retry", "dead_letter")]
    await push(log, ["last"], key="last")
    assert await log.delete_queue(QUEUE)
    async with asyncio.timeout(PATIENCE):
        ends = await asyncio.gather(*consuming, return_exceptions=True)
    assert [type(end) for end in ends] == [NotFound] * 4


async def test_a_recreated_queue_is_empty(log: Log, other_log: Log, database_url: str) -> None:
    for i in range(3):
        await log.configure(QUEUE)
        assert (await push(other_log, [i], key="k"))[0].offset == 0
        assert (await push(log, [i], key="k", ids=["1"]))[0].duplicate is False
        assert data(await pop(other_log)) == [i, i]
        await log.delete_queue(QUEUE)
        with pytest.raises(NotFound):
            await push(log, [i])
    left = "SELECT count(*) FROM pg_class WHERE relname ~ '^(chunks|ids)_' AND relkind = 'r'"
    assert ask(database_url, left) == 0
    for table in ("partitions", "cursors", "positions", "groups", "segments"):
        assert ask(database_url, f"SELECT count(*) FROM penstock.{table}") == 0  # noqa: S608


async def test_many_key_partitions_are_warned_about_once(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    await log.configure(QUEUE)
    await log.configure("hashed", partitioning="hash", partitions=8)
    with caplog.at_level(logging.WARNING, logger="penstock"):
        for part in range(4):
            keys = [f"key {i}" for i in range(part * 3500, (part + 1) * 3500)]
            for queue in (QUEUE, "hashed"):
                await log.push([Batch(queue, [{"data": 1, "key": key} for key in keys])])
    (warning,) = [record.getMessage() for record in caplog.records]
    assert QUEUE in warning
    assert "10,000" in warning
    assert "repartition" in warning


@pytest.mark.parametrize("as_text", [False, True])
async def test_a_key_named_like_the_default_partition_is_kept(log: Log, as_text: bool) -> None:
    await log.configure(QUEUE)
    asked: list[str | None] = ["Default", None, "ada", "Default", None]
    datas = [{"key": key} for key in asked]
    if as_text:
        await log.push([Batch(QUEUE, "\n".join(map(json.dumps, datas)).encode(), key_field="key")])
    else:
        await log.push([Batch(QUEUE, [{"data": data, "key": data["key"]} for data in datas])])
    await push(log, [{"key": "Default"}], key="Default")
    await push(log, [{"key": None}])
    events = await pop(log)
    assert len(events) == 7
    assert all(event.key == event.data["key"] for event in events)
    assert {event.partition for event in events} == {"Default", "ada"}
    await log.ack(events, "dead_letter")
    assert all(letter.key == letter.data["key"] for letter in await letters(log))
    await log.redrive(DeadLetterFilter(queue=QUEUE))
    await log.repartition(QUEUE, "hash", 3)
    await log.repartition(QUEUE, "key")
    await push(log, [{"key": "Default"}], key="Default")
    assert all(event.key == event.data["key"] for event in await drain(log))


async def test_append_functions_dropped_by_a_migration_are_restored(log: Log, database_url: str) -> None:
    await log.configure(QUEUE)
    await push(log, [1], ids=["one"])
    await roll(log)
    queue = await log.catalog.refresh(QUEUE)
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(f"DROP FUNCTION penstock.append_{queue.id}_{queue.segment}".encode())
    async with opened(database_url) as upgraded:
        assert (await push(upgraded, [1, 2], ids=["one", "two"])).duplicates == 1
    assert data(await drain(log)) == [1, 2]

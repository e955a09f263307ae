"""Uploads: invisible until they are published, then visible at once."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from penstock.core.clock import Clock
from penstock.core.errors import IdempotencyConflict
from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from penstock.log.write.push_result import RejectedInput
from penstock.log.write.upload import Upload, UploadLost
from tests.conditions import eventually_async
from tests.log.logs import GROUP, QUEUE, ask, data, drain, letters, pop, push, roll, waiting

MEGABYTE = "x" * 1_000_000


async def add(log: Log, upload: Upload, values: Any, **more: Any) -> None:
    await upload.add(await log.encode(Batch(QUEUE, [{"data": value, **more} for value in values])))


def hidden(url: str) -> Any:
    return ask(url, "SELECT count(*) FROM penstock.chunks_1_1 WHERE partition_id < 0")


@pytest.mark.parametrize("partitions", [None, 3])
async def test_an_upload_becomes_visible_at_once(log: Log, database_url: str, partitions: int | None) -> None:
    await log.configure(QUEUE, partitioning="key" if partitions is None else "hash", partitions=partitions)
    await log.subscribe(QUEUE, GROUP)
    upload = await log.upload(QUEUE)
    for n in range(6):
        await add(log, upload, [{"n": n, "text": MEGABYTE}], key=f"k{n % 2}")
    assert await asyncio.to_thread(hidden, database_url) > 0
    assert await pop(log) == []
    assert (await log.describe(QUEUE)).size.appended == 0
    await push(log, [{"n": "between"}], key="k0")
    done = await upload.publish()
    assert (done.accepted, done.replayed) == (6, False)
    events = await drain(log)
    assert sorted(str(event.data["n"]) for event in events) == ["0", "1", "2", "3", "4", "5", "between"]
    mine = [event.data["n"] for event in events if event.key == "k0"]
    assert mine == ["between", 0, 2, 4]
    assert await asyncio.to_thread(hidden, database_url) == 0


async def test_uploads_keep_offsets_dense_and_times_ascending(log: Log) -> None:
    await log.configure(QUEUE, partitioning="hash", partitions=1)
    for round in range(3):
        await push(log, range(5))
        upload = await log.upload(QUEUE)
        await add(log, upload, range(round * 10))
        await upload.publish()
        if round == 1:
            await roll(log)
    events = await log.fetch(QUEUE, "0", 0, 1000)
    assert [event.offset for event in events] == list(range(45))
    times = [event.appended_at for event in events]
    assert times == sorted(times)


async def test_an_abandoned_upload_leaves_nothing(log: Log, database_url: str) -> None:
    await log.configure(QUEUE)
    upload = await log.upload(QUEUE)
    await add(log, upload, [MEGABYTE] * 5)
    await upload.abandon()
    assert await asyncio.to_thread(hidden, database_url) == 0
    assert await asyncio.to_thread(ask, database_url, "SELECT count(*) FROM penstock.uploads") == 0


async def test_upkeep_removes_uploads_of_crashed_clients(log: Log, database_url: str, clock: Clock) -> None:
    await log.configure(QUEUE)
    upload = await log.upload(QUEUE)
    await add(log, upload, [MEGABYTE] * 5)
    await log.upkeep()
    assert await asyncio.to_thread(hidden, database_url) > 0
    clock.advance(3600)
    await log.upkeep()
    assert await asyncio.to_thread(hidden, database_url) == 0
    with pytest.raises(UploadLost):
        await upload.publish()
    assert (await log.describe(QUEUE)).size.appended == 0


async def test_an_upload_follows_a_new_segment(log: Log, database_url: str) -> None:
    await log.configure(QUEUE)
    upload = await log.upload(QUEUE)
    await add(log, upload, [f"{n}{MEGABYTE}" for n in range(5)])
    await push(log, ["other"])
    await roll(log)
    await add(log, upload, ["last"])
    await upload.publish()
    assert [each[:5] for each in data(await drain(log))] == [
        "other",
        "0xxxx",
        "1xxxx",
        "2xxxx",
        "3xxxx",
        "4xxxx",
        "last",
    ]
    assert await asyncio.to_thread(hidden, database_url) == 0


async def test_an_upload_is_lost_when_its_queue_is_repartitioned(log: Log) -> None:
    await log.configure(QUEUE)
    upload = await log.upload(QUEUE)
    await add(log, upload, [1], key="a")
    await log.repartition(QUEUE, "hash", 4)
    with pytest.raises(UploadLost, match="send them again"):
        await upload.publish()
    assert (await log.describe(QUEUE)).size.appended == 0


async def test_a_repeated_upload_returns_the_first_result(log: Log, database_url: str) -> None:
    await log.configure(QUEUE)
    for replayed in (False, True):
        upload = await log.upload(QUEUE)
        await add(log, upload, [MEGABYTE] * 5)
        done = await upload.publish(idempotency_key="once", fingerprint=b"same")
        assert (done.accepted, done.replayed) == (5, replayed)
    upload = await log.upload(QUEUE)
    await add(log, upload, [1])
    with pytest.raises(IdempotencyConflict):
        await upload.publish(idempotency_key="once", fingerprint=b"other")
    await upload.abandon()
    assert (await log.describe(QUEUE)).size.appended == 5
    assert await asyncio.to_thread(hidden, database_url) == 0


async def test_rejected_input_of_an_upload_becomes_dead_letters(log: Log) -> None:
    await log.configure(QUEUE)
    upload = await log.upload(QUEUE)
    await add(log, upload, [1])
    await upload.publish(rejected=[RejectedInput(1, "data", "is not JSON", b"{")])
    (letter,) = await letters(log)
    assert (letter.stage, letter.error, letter.data) == ("ingest", "data: is not JSON", "{")


async def test_an_upload_unparks_a_partition(log: Log, clock: Clock) -> None:
    await log.configure(QUEUE)
    await push(log, [1], key="ada")
    await drain(log)
    clock.advance(60)
    assert (await log.upkeep()).parked == 1
    upload = await log.upload(QUEUE)
    await add(log, upload, [2], key="ada")
    await upload.publish()
    assert data(await drain(log)) == [2]


async def test_an_upload_wakes_waiting_pops(log: Log) -> None:
    await log.configure(QUEUE)
    await log.subscribe(QUEUE, GROUP)
    waits = asyncio.create_task(pop(log, wait_seconds=30))
    upload = await log.upload(QUEUE)
    await add(log, upload, [1])
    await upload.publish()
    assert data(await waits) == [1]


async def test_an_upload_with_a_lost_response_is_published_once(log: Log, database_url: str) -> None:
    await log.configure(QUEUE, partitioning="hash", partitions=1)
    upload = await log.upload(QUEUE)
    await add(log, upload, [1, 2, 3])
    async with await psycopg.AsyncConnection.connect(database_url) as holder:
        await holder.execute("SELECT FROM penstock.partitions FOR UPDATE")
        publishing = asyncio.create_task(upload.publish())
        await waiting(database_url)
        await asyncio.to_thread(
            ask,
            database_url,
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE wait_event_type = 'Lock' AND datname = current_database()",
        )
    assert (await publishing).accepted == 3

    async def there() -> bool:
        return (await log.describe(QUEUE)).size.appended == 3

    await eventually_async(there)

"""Live streams of queues."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from tests.server.live.sse_client import SseMessage, SseReader, count_overruns, count_reads, open_stream
from tests.server.server_process import RunningServer


def data(message: SseMessage) -> list[Any]:
    return [event["data"] for event in message.data["events"]]


async def push(log: Log, queue: str, *values: Any, key: str | None = None) -> None:
    await log.push([Batch(queue, [{"data": value} for value in values], key=key)])


async def gather(reader: SseReader, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        found += data(await reader.next())
    return found


@pytest.mark.parametrize("partitioning", ["key", "hash"])
async def test_new_events_are_sent(http: httpx.AsyncClient, log: Log, partitioning: str) -> None:
    queue = f"by_{partitioning}"
    await log.configure(queue, partitioning=partitioning, partitions=3 if partitioning == "hash" else None)
    await push(log, queue, "before", key="ada")
    async with open_stream(http, f"/v1/queues/{queue}/tail") as reader:
        assert data(await reader.next()) == []
        await push(log, queue, {"n": 1}, {"n": 2}, key="ada")
        message = await reader.next()
        assert data(message) == [{"n": 1}, {"n": 2}]
        assert [event["key"] for event in message.data["events"]] == ["ada", "ada"]
        assert [event["offset"] for event in message.data["events"]] == [1, 2]
        await push(log, queue, "new partition", key="bob")
        assert await gather(reader, 1) == ["new partition"]


async def test_stream_resumes_after_the_last_event_id(http: httpx.AsyncClient, log: Log) -> None:
    await log.configure("resumed", partitioning="key")
    async with open_stream(http, "/v1/queues/resumed/tail") as reader:
        await reader.next()
        await push(log, "resumed", 1, key="ada")
        seen = await reader.next()
    await push(log, "resumed", 2, 3, key="ada")
    await push(log, "resumed", 4, key="bob")
    async with open_stream(http, "/v1/queues/resumed/tail", seen.id) as reader:
        missed = await reader.next()
        assert sorted(data(missed)) == [2, 3, 4]
        assert missed.data["skipped"] == 0


async def test_follow_one_key(http: httpx.AsyncClient, log: Log) -> None:
    for queue, partitions in (("keyed", None), ("spread", 1)):
        await log.configure(queue, partitioning="hash" if partitions else "key", partitions=partitions)
        async with open_stream(http, f"/v1/queues/{queue}/tail", key="ada") as reader:
            await reader.next()
            await push(log, queue, 1, key="bob")
            await push(log, queue, 2, key="ada")
            assert await gather(reader, 1) == [2]


async def test_newest_events_are_sent_when_there_are_too_many(http: httpx.AsyncClient, log: Log) -> None:
    await log.configure("flood", partitioning="hash", partitions=1)
    async with open_stream(http, "/v1/queues/flood/tail") as reader:
        seen = await reader.next()
    await push(log, "flood", *range(1500))
    async with open_stream(http, "/v1/queues/flood/tail", seen.id) as reader:
        message = await reader.next()
    assert message.data["skipped"] == 500
    assert data(message) == list(range(500, 1500))


async def test_newest_events_are_sent_when_they_are_too_large(http: httpx.AsyncClient, log: Log) -> None:
    await log.configure("heavy", {"max_event_bytes": 8 << 20}, partitioning="hash", partitions=1)
    async with open_stream(http, "/v1/queues/heavy/tail") as reader:
        seen = await reader.next()
    for size in (1, 2 << 20, 3 << 20, 100):
        await push(log, "heavy", "x" * size)
    async with open_stream(http, "/v1/queues/heavy/tail", seen.id) as reader:
        message = await reader.next()
        assert message.data["skipped"] == 2
        assert [len(each) for each in data(message)] == [3 << 20, 100]
        # One that is larger than that is told alone.
        await push(log, "heavy", "x" * (5 << 20))
        assert [len(each) for each in await gather(reader, 1)] == [5 << 20]


async def test_slow_subscriber_gets_or_counts_all_events(http: httpx.AsyncClient, log: Log) -> None:
    await log.configure("missed", {"max_event_bytes": 1 << 20}, partitioning="hash", partitions=2)
    pushed = told = skipped = 0
    async with open_stream(http, "/v1/queues/missed/tail") as reader:
        await reader.next()
        before = await count_overruns(http, "queue")
        while await count_overruns(http, "queue") == before:
            await push(log, "missed", *["x" * 500_000] * 4)
            pushed += 4
        await push(log, "missed", "last")
        pushed += 1
        last = False
        while not last:
            message = await reader.next()
            told += len(data(message))
            skipped += message.data["skipped"]
            last = "last" in data(message)
    assert skipped
    assert told + skipped == pushed


async def test_one_database_read_serves_all_subscribers(http: httpx.AsyncClient, log: Log) -> None:
    await log.configure("watched", partitioning="hash", partitions=2)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            httpx.AsyncClient(base_url=http.base_url, timeout=60, limits=httpx.Limits(max_connections=None))
        )
        streams = [open_stream(client, "/v1/queues/watched/tail") for _ in range(50)]
        readers = await asyncio.gather(*[stack.enter_async_context(stream) for stream in streams])
        await asyncio.gather(*[reader.next() for reader in readers])
        before = await count_reads(http, "queue")
        for wave in range(5):
            await push(log, "watched", wave)
            assert await asyncio.gather(*[gather(reader, 1) for reader in readers]) == [[wave]] * 50
        assert 5 <= await count_reads(http, "queue") - before < 50


async def test_websocket_stream(log: Log, shared_server: RunningServer) -> None:
    await log.configure("socket", partitioning="key")
    url = shared_server.websocket_url + "/v1/queues/socket/tail"
    async with connect(url) as socket:
        assert json.loads(await socket.recv())["data"] == {"events": [], "skipped": 0}
        await push(log, "socket", "here", key="ada")
        assert json.loads(await socket.recv())["data"]["events"][0]["data"] == "here"


async def test_line_breaks_in_events(http: httpx.AsyncClient, log: Log) -> None:
    await log.configure("lines", partitioning="key")
    async with open_stream(http, "/v1/queues/lines/tail") as reader:
        await reader.next()
        await log.push([Batch("lines", b'{"text":\r"a\\nb"}\n')])
        assert await gather(reader, 1) == [{"text": "a\nb"}]


async def test_head_request(http: httpx.AsyncClient, log: Log) -> None:
    await log.configure("headed")
    response = await http.head("/v1/queues/headed/tail", timeout=10)
    assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


async def test_missing_or_deleted_queue(http: httpx.AsyncClient, log: Log) -> None:
    assert (await http.get("/v1/queues/nothing/tail")).status_code == 404
    await log.configure("leaving")
    async with open_stream(http, "/v1/queues/leaving/tail") as reader:
        await reader.next()
        await log.delete_queue("leaving")
        last = await reader.next()
    assert (last.event, last.data["status"]) == ("problem", 404)

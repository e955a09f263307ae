"""Live results of a query that clients compute."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from tests.server.live.sse_client import SseMessage, open_stream
from tests.server.queen.client import QueenClient
from tests.server.queen.streams.stream_query import SEPARATOR, StreamQuery, upsert, window
from tests.server.server_process import RunningServer

MINUTE = 60_000


@pytest.fixture
def query(queen: QueenClient, queue: str) -> StreamQuery:
    for partition in ("p", "q"):
        queen.push(queue, range(9), partition)
    return StreamQuery(queen, queue)


@pytest.fixture
async def http(queen_server: RunningServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=queen_server.url, timeout=30) as client:
        yield client


def run_cycle(query: StreamQuery, partition: str, *ops: dict[str, Any]) -> None:
    """Pop one message of a partition, change the state and ack the message."""
    (message,) = query.pop(batch=1, partition=partition)
    done = query.cycle(message["partitionId"], message, state_ops=list(ops))
    assert done["success"], done


def state_key(end: int, key: str) -> str:
    return f"w{SEPARATOR}{end}{SEPARATOR}{key}"


def rows_of(message: SseMessage, part: str = "rows") -> set[tuple[str, str, object, bool]]:
    return {(row["key"], row["partition"], row["value"], row["is_open"]) for row in message.data[part]}


async def test_follower_gets_a_snapshot_then_changed_and_closed_windows(
    http: httpx.AsyncClient, query: StreamQuery
) -> None:
    run_cycle(query, "p", upsert(state_key(MINUTE, "ada"), window(MINUTE, 1)), upsert("__bookkeeping", {"seen": 3}))
    run_cycle(query, "q", upsert(state_key(MINUTE, "ada"), window(MINUTE, 7)))
    async with open_stream(http, f"/v1/queries/{query.queue}-query/live") as reader:
        first = await reader.next()
        assert first.event == "snapshot"
        assert rows_of(first) == {("ada", "p", 1, True), ("ada", "q", 7, True)}
        assert first.data["rows"][0]["window_end"] == "1970-01-01T00:01:00+00:00"
        run_cycle(query, "p", upsert(state_key(MINUTE, "ada"), window(MINUTE, 2)))
        changed = await reader.next()
        assert (changed.event, rows_of(changed), changed.data["closed"]) == ("changes", {("ada", "p", 2, True)}, [])
        closing: dict[str, Any] = {"type": "delete", "key": state_key(MINUTE, "ada"), "value": None}
        run_cycle(query, "p", closing, upsert(state_key(2 * MINUTE, "bob"), window(2 * MINUTE, 5)))
        closed = await reader.next()
        assert rows_of(closed) == {("bob", "p", 5, True)}
        assert rows_of(closed, "closed") == {("ada", "p", 2, False)}
        async with open_stream(http, f"/v1/queries/{query.queue}-query/live", closed.id) as again:
            assert rows_of(await again.next()) == {("ada", "q", 7, True), ("bob", "p", 5, True)}


async def test_follower_of_some_keys_through_another_process(
    http: httpx.AsyncClient, query: StreamQuery, other_server: RunningServer
) -> None:
    run_cycle(
        query,
        "p",
        upsert(state_key(MINUTE, "ada"), window(MINUTE, 1)),
        upsert(state_key(MINUTE, "bob"), window(MINUTE, 1)),
    )
    address = other_server.url.replace("http", "ws")
    async with (
        open_stream(http, f"/v1/queries/{query.queue}-query/live", keys="bob") as reader,
        connect(f"{address}/v1/queries/{query.queue}-query/live?keys=ada") as socket,
    ):
        assert rows_of(await reader.next()) == {("bob", "p", 1, True)}
        assert [row["key"] for row in json.loads(await socket.recv())["data"]["rows"]] == ["ada"]
        run_cycle(query, "p", upsert(state_key(MINUTE, "ada"), window(MINUTE, 2)))
        run_cycle(query, "p", upsert(state_key(MINUTE, "bob"), window(MINUTE, 3)))
        assert rows_of(await reader.next()) == {("bob", "p", 3, True)}
        assert [row["value"] for row in json.loads(await socket.recv())["data"]["rows"]] == [2]


async def test_request_for_cycles_names_the_live_route(http: httpx.AsyncClient, query: StreamQuery) -> None:
    answer = await http.get(f"/v1/queries/{query.queue}-query/cycles")
    assert answer.status_code == 404
    assert f"GET /v1/queries/{query.queue}-query/live follows its state" in answer.json()["detail"]


async def test_follower_sees_a_reset_as_closed_windows(http: httpx.AsyncClient, query: StreamQuery) -> None:
    run_cycle(query, "p", upsert("counter", 4))
    async with open_stream(http, f"/v1/queries/{query.queue}-query/live") as reader:
        assert rows_of(await reader.next()) == {("counter", "p", 4, True)}
        body = {"name": f"{query.queue}-query", "source_queue": query.queue, "config_hash": "h2", "reset": True}
        query.queen.post("/streams/v1/queries", body)
        assert rows_of(await reader.next(), "closed") == {("counter", "p", 4, False)}

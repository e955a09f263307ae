"""The state of a query that clients compute, followed like that of any other."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from tests.server.observe.following import Message, following
from tests.server.plane.speaking import Plane
from tests.server.plane.test_streams import SEP, Query, upsert, window
from tests.server.serving import Serving

MINUTE = 60_000


@pytest.fixture
def query(plane: Plane, queue: str) -> Query:
    for partition in ("p", "q"):
        plane.push(queue, range(9), partition)
    return Query(plane, queue)


@pytest.fixture
async def http(plane_server: Serving) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=plane_server.url, timeout=30) as client:
        yield client


def worked(query: Query, partition: str, *ops: dict[str, Any]) -> None:
    """What a worker does: take a message of a partition, change the state, acknowledge."""
    (message,) = query.pop(batch=1, partition=partition)
    done = query.cycle(message["partitionId"], message, state_ops=list(ops))
    assert done["success"], done


def at(end: int, key: str) -> str:
    return f"w{SEP}{end}{SEP}{key}"


def told(message: Message, part: str = "rows") -> set[tuple[str, str, object, bool]]:
    return {(row["key"], row["partition"], row["value"], row["is_open"]) for row in message.data[part]}


async def test_its_windows_come_first_then_what_its_workers_change_and_close(
    http: httpx.AsyncClient, query: Query
) -> None:
    worked(query, "p", upsert(at(MINUTE, "ada"), window(MINUTE, 1)), upsert("__bookkeeping", {"seen": 3}))
    worked(query, "q", upsert(at(MINUTE, "ada"), window(MINUTE, 7)))
    async with following(http, f"/v1/queries/{query.queue}-query/live") as reader:
        first = await reader.next()
        assert first.event == "snapshot"
        assert told(first) == {("ada", "p", 1, True), ("ada", "q", 7, True)}
        assert first.data["rows"][0]["window_end"] == "1970-01-01T00:01:00+00:00"
        worked(query, "p", upsert(at(MINUTE, "ada"), window(MINUTE, 2)))
        changed = await reader.next()
        assert (changed.event, told(changed), changed.data["closed"]) == ("changes", {("ada", "p", 2, True)}, [])
        closing: dict[str, Any] = {"type": "delete", "key": at(MINUTE, "ada"), "value": None}
        worked(query, "p", closing, upsert(at(2 * MINUTE, "bob"), window(2 * MINUTE, 5)))
        closed = await reader.next()
        assert told(closed) == {("bob", "p", 5, True)}
        assert told(closed, "closed") == {("ada", "p", 2, False)}
        async with following(http, f"/v1/queries/{query.queue}-query/live", closed.id) as again:
            assert told(await again.next()) == {("ada", "q", 7, True), ("bob", "p", 5, True)}


async def test_it_is_followed_for_some_keys_and_over_another_process(
    http: httpx.AsyncClient, query: Query, other_server: Serving
) -> None:
    worked(query, "p", upsert(at(MINUTE, "ada"), window(MINUTE, 1)), upsert(at(MINUTE, "bob"), window(MINUTE, 1)))
    address = other_server.url.replace("http", "ws")
    async with (
        following(http, f"/v1/queries/{query.queue}-query/live", keys="bob") as reader,
        connect(f"{address}/v1/queries/{query.queue}-query/live?keys=ada") as socket,
    ):
        assert told(await reader.next()) == {("bob", "p", 1, True)}
        assert [row["key"] for row in json.loads(await socket.recv())["data"]["rows"]] == ["ada"]
        worked(query, "p", upsert(at(MINUTE, "ada"), window(MINUTE, 2)))
        worked(query, "p", upsert(at(MINUTE, "bob"), window(MINUTE, 3)))
        assert told(await reader.next()) == {("bob", "p", 3, True)}
        assert [row["value"] for row in json.loads(await socket.recv())["data"]["rows"]] == [2]


async def test_who_asks_for_its_cycles_is_told_where_its_state_is(http: httpx.AsyncClient, query: Query) -> None:
    answer = await http.get(f"/v1/queries/{query.queue}-query/cycles")
    assert answer.status_code == 404
    assert f"GET /v1/queries/{query.queue}-query/live follows its state" in answer.json()["detail"]


async def test_who_follows_it_is_told_that_it_was_wiped(http: httpx.AsyncClient, query: Query) -> None:
    worked(query, "p", upsert("counter", 4))
    async with following(http, f"/v1/queries/{query.queue}-query/live") as reader:
        assert told(await reader.next()) == {("counter", "p", 4, True)}
        body = {"name": f"{query.queue}-query", "source_queue": query.queue, "config_hash": "h2", "reset": True}
        query.plane.post("/streams/v1/queries", body)
        assert told(await reader.next(), "closed") == {("counter", "p", 4, False)}

"""A query's results, followed over Server-Sent Events and WebSockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import psycopg
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from penstock.engine.registry import Registry
from penstock.log.log import Log
from tests.server.observe.cycles import Driver
from tests.server.observe.following import Message, apply, following, overruns
from tests.server.serving import Serving, serving


@pytest.fixture
async def driver(log: Log, request: pytest.FixtureRequest) -> AsyncIterator[Driver]:
    driver = await Driver.start(log, f"q_{abs(hash(request.node.name))}")
    yield driver
    await driver.close()


def counts(message: Message, part: str = "rows") -> dict[str, int]:
    return {row["key"]: row["count"] for row in message.data[part]}


def path(driver: Driver) -> str:
    return f"/v1/queries/{driver.name}/live"


async def test_a_snapshot_comes_first_then_what_each_cycle_changed(http: httpx.AsyncClient, driver: Driver) -> None:
    await driver.cycle([("ada", 0, 2, 10), ("bob", 0, 1, 5)])
    async with following(http, path(driver)) as reader:
        first = await reader.next()
        assert first.event == "snapshot"
        assert counts(first) == {"ada": 2, "bob": 1}
        assert first.data["rows"][0]["window_start"] == "1970-01-01T00:00:00+00:00"
        await driver.cycle([("bob", 0, 3, 7)])
        second = await reader.next()
        assert second.event == "changes"
        assert second.data["cycle"] == first.data["cycle"] + 1
        assert counts(second) == {"bob": 4}
        await driver.cycle(upto=60)
        third = await reader.next()
        assert counts(third) == {}
        assert counts(third, "closed") == {"ada": 2, "bob": 4}
        assert third.data["closed"][0]["is_open"] is False


async def test_a_reader_that_comes_back_is_told_what_it_missed_and_no_more(
    http: httpx.AsyncClient, driver: Driver
) -> None:
    await driver.cycle([("ada", 0, 1, 1), ("bob", 0, 1, 1), ("cy", 60, 1, 1)])
    async with following(http, path(driver)) as reader:
        seen = await reader.next()
    await driver.cycle([("bob", 0, 1, 1)])
    await driver.cycle([("cy", 60, 1, 1)], upto=60)
    async with following(http, path(driver), seen.id) as reader:
        missed = await reader.next()
        assert missed.event == "changes"
        assert (counts(missed), counts(missed, "closed")) == ({"cy": 2}, {"ada": 1, "bob": 2})
        await driver.cycle([("dee", 60, 1, 1)])
        assert counts(await reader.next()) == {"dee": 1}


@pytest.mark.parametrize("last_id", ["", "nonsense", "1-999999999", "0-1", "9" * 50, "-", "1-"])
async def test_a_place_that_is_none_gives_a_snapshot(http: httpx.AsyncClient, driver: Driver, last_id: str) -> None:
    await driver.cycle([("ada", 0, 1, 1)])
    async with following(http, path(driver), last_id) as reader:
        assert (await reader.next()).event == "snapshot"


async def test_some_keys_can_be_followed(http: httpx.AsyncClient, driver: Driver) -> None:
    await driver.cycle([("ada", 0, 1, 1), ("bob", 0, 1, 1), ("cy", 0, 1, 1)])
    async with following(http, path(driver), keys="ada,cy") as some, following(http, path(driver)) as everything:
        assert counts(await some.next()) == {"ada": 1, "cy": 1}
        assert len((await everything.next()).data["rows"]) == 3
        await driver.cycle([("bob", 0, 1, 1)])
        assert counts(await everything.next()) == {"bob": 2}
        await driver.cycle([("cy", 0, 1, 1), ("bob", 0, 1, 1)])
        assert counts(await some.next()) == {"cy": 2}
    answer = await http.get(path(driver), params={"keys": ","})
    assert answer.status_code == 400


async def test_sessions_that_grow_together_leave_nothing_behind(http: httpx.AsyncClient, log: Log) -> None:
    driver = await Driver.start(log, "sessions", sessions=True)
    windows: dict[tuple[Any, ...], Any] = {}
    await driver.cycle([("ada", 0, 1, 1)], end=10)
    await driver.cycle([("ada", 20, 1, 1), ("bob", 20, 1, 1)], end=30)
    async with following(http, "/v1/queries/sessions/live") as reader:
        apply(windows, await reader.next())
        assert len(windows) == 3
        second = 1_000_000
        new = {"__k": "ada", "__ws": 0, "__we": 30 * second}
        moves = [
            {**new, "__old_ws": 0, "__old_we": 10 * second, "__old_closed": False},
            {**new, "__old_ws": 20 * second, "__old_we": 30 * second, "__old_closed": False},
        ]
        await driver.cycle([("ada", 0, 1, 1)], end=30, moves=moves)
        apply(windows, await reader.next())
    assert sorted((key, row["count"]) for (key, _, _), row in windows.items()) == [("ada", 3), ("bob", 1)]
    await driver.close()


async def test_many_readers_cost_one_read_for_each_cycle(http: httpx.AsyncClient, driver: Driver) -> None:
    await driver.cycle([("ada", 0, 1, 1)])
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            httpx.AsyncClient(base_url=http.base_url, timeout=60, limits=httpx.Limits(max_connections=None))
        )
        streams = [following(client, path(driver)) for _ in range(100)]
        readers = await asyncio.gather(*[stack.enter_async_context(stream) for stream in streams])
        await asyncio.gather(*[reader.next() for reader in readers])
        before = await reads(http)
        for count in range(2, 7):
            await driver.cycle([("ada", 0, 1, 1)])
            told = await asyncio.gather(*[reader.next() for reader in readers])
            assert [counts(message) for message in told] == [{"ada": count}] * 100
        # It also looks by itself now and then, so a few more; not a hundred for each.
        assert 5 <= await reads(http) - before < 50


async def reads(http: httpx.AsyncClient) -> float:
    text = (await http.get("/metrics")).text
    return float(text.split('penstock_live_reads_total{kind="query"} ')[1].split()[0])


async def test_a_reader_that_does_not_read_gets_a_new_beginning(http: httpx.AsyncClient, driver: Driver) -> None:
    many = [(f"{'customer ' * 40}{n}", 0, 1, 1) for n in range(1500)]
    windows: dict[tuple[Any, ...], Any] = {}
    async with following(http, path(driver)) as reader:
        apply(windows, await reader.next())
        cycles, before = 0, await overruns(http, "query")
        while await overruns(http, "query") == before:
            await driver.cycle(many)
            cycles += 1
        await driver.cycle([("last", 0, 1, 1)])
        snapshots = 0
        while not any(name[0] == "last" for name in windows):
            message = await reader.next()
            snapshots += message.event == "snapshot"
            apply(windows, message)
    assert snapshots == 1
    assert {row["count"] for name, row in windows.items() if name[0] != "last"} == {cycles}


async def test_the_same_over_a_websocket(http: httpx.AsyncClient, shared_server: Serving, driver: Driver) -> None:
    await driver.cycle([("ada", 0, 1, 1)])
    url = shared_server.url.replace("http", "ws") + path(driver)
    async with connect(url, subprotocols=["penstock"]) as socket:  # type: ignore[list-item]  # a NewType of str
        assert socket.subprotocol == "penstock"
        first = json.loads(await socket.recv())
        assert (first["event"], first["data"]["rows"][0]["count"]) == ("snapshot", 1)
        await driver.cycle([("ada", 0, 1, 1)])
        assert json.loads(await socket.recv())["data"]["rows"][0]["count"] == 2
    async with connect(f"{url}?last_event_id={first['id']}&keys=ada") as socket:
        assert json.loads(await socket.recv())["event"] == "changes"


async def test_a_query_that_is_none_is_refused_either_way(http: httpx.AsyncClient, shared_server: Serving) -> None:
    answer = await http.get("/v1/queries/nothing/live")
    assert (answer.status_code, answer.json()["type"].rsplit("/")[-1]) == (404, "not-found")
    with pytest.raises(InvalidStatus) as refused:
        await connect(shared_server.url.replace("http", "ws") + "/v1/queries/nothing/live")
    assert refused.value.response.status_code == 404
    assert json.loads(refused.value.response.body)["status"] == 404
    wrong = await http.get("/v1/queries/nothing/live", headers={"Accept": "application/json"})
    assert wrong.status_code == 406


async def test_a_page_of_somebody_else_cannot_listen(shared_server: Serving, driver: Driver) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await connect(
            shared_server.url.replace("http", "ws") + path(driver),
            additional_headers={"Origin": "https://evil.example"},
        )
    assert refused.value.response.status_code == 403


async def test_the_stream_of_a_deleted_query_ends_and_says_why(http: httpx.AsyncClient, log: Log) -> None:
    driver = await Driver.start(log, "short_lived")
    await driver.cycle([("ada", 0, 1, 1)])
    async with following(http, "/v1/queries/short_lived/live") as reader:
        await reader.next()
        await Registry(log).release(driver.id, driver.fence)
        await Registry(log).delete("short_lived")
        last = await reader.next()
        assert (last.event, last.data["status"]) == ("problem", 404)
        with pytest.raises(EOFError):
            await reader.next()
    await driver.close()


async def test_a_query_that_has_no_tables_yet_begins_empty(http: httpx.AsyncClient, shared_url: str) -> None:
    with psycopg.connect(shared_url, autocommit=True) as conn:
        conn.execute(
            "INSERT INTO penstock.queries (name, description, fingerprint, history_seconds) "
            "VALUES ('young', '{}', '', 1)"
        )
    async with following(http, "/v1/queries/young/live") as reader:
        first = await reader.next()
    assert (first.event, first.data["cycle"], first.data["rows"]) == ("snapshot", 0, [])


async def test_streams_end_when_the_server_does_and_go_on_with_the_next(shared_url: str, log: Log) -> None:
    driver = await Driver.start(log, "moved")
    await driver.cycle([("ada", 0, 1, 1)])
    with serving(shared_url) as running:
        async with httpx.AsyncClient(base_url=running.url, timeout=30) as http:
            socket = await connect(running.url.replace("http", "ws") + "/v1/queries/moved/live")
            await socket.recv()
            async with following(http, "/v1/queries/moved/live") as reader:
                seen = await reader.next()
                running.process.terminate()
                with pytest.raises(EOFError):
                    await reader.next()
            with pytest.raises(ConnectionClosed):
                await socket.recv()
        assert await asyncio.to_thread(running.process.wait, 20) == 0
    await driver.cycle([("ada", 0, 1, 1)])
    with serving(shared_url, environ={"PENSTOCK_LIVE_STREAMS": "1"}) as running:
        async with (
            httpx.AsyncClient(base_url=running.url, timeout=30) as http,
            following(http, "/v1/queries/moved/live", seen.id) as reader,
        ):
            assert counts(await reader.next()) == {"ada": 2}
            too_many = await http.get("/v1/queries/moved/live")
            assert (too_many.status_code, too_many.headers["retry-after"]) == (503, "5")
    await driver.close()

"""Live streams of query results."""

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

from penstock.engine.cycle.partials import SessionMove
from penstock.engine.query_registry import Registry
from penstock.log.log import Log
from penstock.stream.windows import SlidingWindow
from tests.cycle_driver import CycleDriver
from tests.server.live.sse_client import SseMessage, apply_message, count_overruns, count_reads, open_stream
from tests.server.server_process import RunningServer, run_server

pytestmark = pytest.mark.slow


@pytest.fixture
async def driver(log: Log, request: pytest.FixtureRequest) -> AsyncIterator[CycleDriver]:
    driver = await CycleDriver.start(log, f"q_{abs(hash(request.node.name))}")
    yield driver
    await driver.close()


def counts(message: SseMessage, part: str = "rows") -> dict[str, int]:
    return {row["key"]: row["count"] for row in message.data[part]}


def path(driver: CycleDriver) -> str:
    return f"/v1/queries/{driver.name}/live"


async def test_snapshot_then_changes_of_each_cycle(http: httpx.AsyncClient, driver: CycleDriver) -> None:
    await driver.cycle([("ada", 0, 2, 10), ("bob", 0, 1, 5)])
    async with open_stream(http, path(driver)) as reader:
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


async def test_resumed_stream_gets_missed_changes_only(http: httpx.AsyncClient, driver: CycleDriver) -> None:
    await driver.cycle([("ada", 0, 1, 1), ("bob", 0, 1, 1), ("cy", 60, 1, 1)])
    async with open_stream(http, path(driver)) as reader:
        seen = await reader.next()
    await driver.cycle([("bob", 0, 1, 1)])
    await driver.cycle([("cy", 60, 1, 1)], upto=60)
    async with open_stream(http, path(driver), seen.id) as reader:
        missed = await reader.next()
        assert missed.event == "changes"
        assert (counts(missed), counts(missed, "closed")) == ({"cy": 2}, {"ada": 1, "bob": 2})
        await driver.cycle([("dee", 60, 1, 1)])
        assert counts(await reader.next()) == {"dee": 1}


@pytest.mark.parametrize("last_id", ["", "nonsense", "1-999999999", "0-1", "9" * 50, "-", "1-"])
async def test_invalid_resume_id_gives_a_snapshot(http: httpx.AsyncClient, driver: CycleDriver, last_id: str) -> None:
    await driver.cycle([("ada", 0, 1, 1)])
    async with open_stream(http, path(driver), last_id) as reader:
        assert (await reader.next()).event == "snapshot"


async def test_follow_some_keys(http: httpx.AsyncClient, driver: CycleDriver) -> None:
    await driver.cycle([("ada", 0, 1, 1), ("bob", 0, 1, 1), ("cy", 0, 1, 1)])
    async with open_stream(http, path(driver), keys="ada,cy") as some, open_stream(http, path(driver)) as everything:
        assert counts(await some.next()) == {"ada": 1, "cy": 1}
        assert len((await everything.next()).data["rows"]) == 3
        await driver.cycle([("bob", 0, 1, 1)])
        assert counts(await everything.next()) == {"bob": 2}
        await driver.cycle([("cy", 0, 1, 1), ("bob", 0, 1, 1)])
        assert counts(await some.next()) == {"cy": 2}
    response = await http.get(path(driver), params={"keys": ","})
    assert response.status_code == 400


async def test_merged_sessions_replace_old_windows(http: httpx.AsyncClient, log: Log) -> None:
    driver = await CycleDriver.start(log, "sessions", sessions=True)
    windows: dict[tuple[Any, ...], Any] = {}
    await driver.cycle([("ada", 0, 1, 1)], end=10)
    await driver.cycle([("ada", 20, 1, 1), ("bob", 20, 1, 1)], end=30)
    async with open_stream(http, "/v1/queries/sessions/live") as reader:
        apply_message(windows, await reader.next())
        assert len(windows) == 3
        second = 1_000_000
        moves = [
            SessionMove("ada", 0, 30 * second, 1, start * second, (start + 10) * second, False) for start in (0, 20)
        ]
        await driver.cycle([("ada", 0, 1, 1)], end=30, moves=moves)
        apply_message(windows, await reader.next())
    assert sorted((key, row["count"]) for (key, _, _), row in windows.items()) == [("ada", 3), ("bob", 1)]
    await driver.close()


async def test_one_database_read_per_cycle_serves_all_subscribers(http: httpx.AsyncClient, driver: CycleDriver) -> None:
    await driver.cycle([("ada", 0, 1, 1)])
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            httpx.AsyncClient(base_url=http.base_url, timeout=60, limits=httpx.Limits(max_connections=None))
        )
        streams = [open_stream(client, path(driver)) for _ in range(100)]
        readers = await asyncio.gather(*[stack.enter_async_context(stream) for stream in streams])
        await asyncio.gather(*[reader.next() for reader in readers])
        before = await count_reads(http, "query")
        for count in range(2, 7):
            await driver.cycle([("ada", 0, 1, 1)])
            told = await asyncio.gather(*[reader.next() for reader in readers])
            assert [counts(message) for message in told] == [{"ada": count}] * 100
        # It also polls, so there are a few more reads, but not a hundred per cycle.
        assert 5 <= await count_reads(http, "query") - before < 50


async def test_slow_subscriber_restarts_with_a_snapshot(http: httpx.AsyncClient, driver: CycleDriver) -> None:
    many = [(f"{'customer ' * 40}{n}", 0, 1, 1) for n in range(1500)]
    windows: dict[tuple[Any, ...], Any] = {}
    async with open_stream(http, path(driver)) as reader:
        apply_message(windows, await reader.next())
        cycles, before = 0, await count_overruns(http, "query")
        while await count_overruns(http, "query") == before:
            await driver.cycle(many)
            cycles += 1
        await driver.cycle([("last", 0, 1, 1)])
        snapshots = 0
        while not any(name[0] == "last" for name in windows):
            message = await reader.next()
            snapshots += message.event == "snapshot"
            apply_message(windows, message)
    assert snapshots == 1
    assert {row["count"] for name, row in windows.items() if name[0] != "last"} == {cycles}


async def test_websocket_stream(http: httpx.AsyncClient, shared_server: RunningServer, driver: CycleDriver) -> None:
    await driver.cycle([("ada", 0, 1, 1)])
    url = shared_server.websocket_url + path(driver)
    async with connect(url, subprotocols=["penstock"]) as socket:  # type: ignore[list-item]  # a NewType of str
        assert socket.subprotocol == "penstock"
        first = json.loads(await socket.recv())
        assert (first["event"], first["data"]["rows"][0]["count"]) == ("snapshot", 1)
        await driver.cycle([("ada", 0, 1, 1)])
        assert json.loads(await socket.recv())["data"]["rows"][0]["count"] == 2
    async with connect(f"{url}?last_event_id={first['id']}&keys=ada") as socket:
        assert json.loads(await socket.recv())["event"] == "changes"


async def test_missing_query_is_refused(http: httpx.AsyncClient, shared_server: RunningServer) -> None:
    response = await http.get("/v1/queries/nothing/live")
    assert (response.status_code, response.json()["type"].rsplit("/")[-1]) == (404, "not-found")
    with pytest.raises(InvalidStatus) as refused:
        await connect(shared_server.websocket_url + "/v1/queries/nothing/live")
    assert refused.value.response.status_code == 404
    assert json.loads(refused.value.response.body)["status"] == 404
    wrong = await http.get("/v1/queries/nothing/live", headers={"Accept": "application/json"})
    assert wrong.status_code == 406


async def test_cross_origin_websocket_is_refused(shared_server: RunningServer, driver: CycleDriver) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await connect(
            shared_server.websocket_url + path(driver),
            additional_headers={"Origin": "https://evil.example"},
        )
    assert refused.value.response.status_code == 403


async def test_current_windows_have_one_row_per_key(http: httpx.AsyncClient, log: Log) -> None:
    driver = await CycleDriver.start(log, "online", windows=[SlidingWindow(60_000_000, 20_000_000)])
    windows: dict[tuple[Any, ...], Any] = {}

    def shown() -> dict[str, int]:
        assert len({row["key"] for row in windows.values()}) == len(windows), "a key has one row"
        return {row["key"]: row["count"] for row in windows.values()}

    await driver.cycle([("ada", start, 1, 0) for start in (0, 20, 40)], upto=50)
    async with open_stream(http, "/v1/queries/online/live", current="true") as reader:
        first = await reader.next()
        assert first.event == "snapshot"
        apply_message(windows, first)
        assert shown() == {"ada": 1}
        await driver.cycle([("bob", start, 2, 0) for start in (40, 60, 80)], upto=90)
        apply_message(windows, await reader.next())
        assert shown() == {"ada": 1, "bob": 2}
        await driver.cycle([("bob", start, 3, 0) for start in (80, 100, 120)], upto=130)
        second = await reader.next()
        assert set(second.data["keys"]) == {"ada", "bob"}
        apply_message(windows, second)
        assert shown() == {"bob": 2}, "the window that ended at 120 s; ada has none"
    async with open_stream(http, "/v1/queries/online/live", second.id, current="true", keys="ada") as reader:
        assert (await reader.next()).data["rows"] == []
    await driver.close()


async def test_stream_of_a_deleted_query_ends_with_a_problem(http: httpx.AsyncClient, log: Log) -> None:
    driver = await CycleDriver.start(log, "short_lived")
    await driver.cycle([("ada", 0, 1, 1)])
    async with open_stream(http, "/v1/queries/short_lived/live") as reader:
        await reader.next()
        await Registry(log).release_lease(driver.id, driver.fence)
        await Registry(log).delete("short_lived")
        last = await reader.next()
        assert (last.event, last.data["status"]) == ("problem", 404)
        with pytest.raises(EOFError):
            await reader.next()
    await driver.close()


async def test_query_without_tables_starts_empty(http: httpx.AsyncClient, shared_url: str) -> None:
    with psycopg.connect(shared_url, autocommit=True) as conn:
        conn.execute(
            "INSERT INTO penstock.queries (name, description, fingerprint, history_seconds) "
            "VALUES ('young', '{}', '', 1)"
        )
    async with open_stream(http, "/v1/queries/young/live") as reader:
        first = await reader.next()
    assert (first.event, first.data["cycle"], first.data["rows"]) == ("snapshot", 0, [])


async def test_streams_end_with_the_server_and_resume_at_the_next(shared_url: str, log: Log) -> None:
    driver = await CycleDriver.start(log, "moved")
    await driver.cycle([("ada", 0, 1, 1)])
    with run_server(shared_url) as running:
        async with httpx.AsyncClient(base_url=running.url, timeout=30) as http:
            socket = await connect(running.websocket_url + "/v1/queries/moved/live")
            await socket.recv()
            async with open_stream(http, "/v1/queries/moved/live") as reader:
                seen = await reader.next()
                running.process.terminate()
                with pytest.raises(EOFError):
                    await reader.next()
            with pytest.raises(ConnectionClosed):
                await socket.recv()
        assert await asyncio.to_thread(running.process.wait, 20) == 0
    await driver.cycle([("ada", 0, 1, 1)])
    with run_server(shared_url, environ={"PENSTOCK_LIVE_STREAMS": "1"}) as running:
        async with (
            httpx.AsyncClient(base_url=running.url, timeout=30) as http,
            open_stream(http, "/v1/queries/moved/live", seen.id) as reader,
        ):
            assert counts(await reader.next()) == {"ada": 2}
            too_many = await http.get("/v1/queries/moved/live")
            assert (too_many.status_code, too_many.headers["retry-after"]) == (503, "5")
    await driver.close()

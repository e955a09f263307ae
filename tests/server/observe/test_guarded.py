"""Metrics and live streams of several workers, where callers need keys."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import psutil
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.log import Batch, Log
from penstock.server.auth.api_keys import Keys
from penstock.server.http.endpoint import Role
from tests import servers
from tests.server.keys import bearer, make_key
from tests.server.observe.cycles import Driver
from tests.server.observe.following import following
from tests.server.serving import Serving, serving
from tests.servers import Server


@dataclass
class Guarded:
    database_url: str
    running: Serving
    keys: dict[str, str]

    @property
    def socket_url(self) -> str:
        return self.running.url.replace("http", "ws")


@pytest.fixture(scope="module")
def guarded(pg18: Server) -> Iterator[Guarded]:
    with pg18.fresh_database(servers.TEMPLATE) as url:
        keys = {
            "admin": make_key(url, Role.ADMIN),
            "reader": make_key(url, Role.READ),
            "producer": make_key(url, Role.PRODUCE),
            "shop": make_key(url, Role.READ, queues=["shop.*"]),
        }
        with serving(url, ["--workers", "2"], {"PENSTOCK_REQUIRE_ACCESS": "1"}) as running:
            yield Guarded(url, running, keys)


@pytest.fixture
async def log(guarded: Guarded) -> AsyncIterator[Log]:
    log = await Log(Database(Settings(database_url=guarded.database_url))).open()
    yield log
    await log.close()


@pytest.fixture
async def http(guarded: Guarded) -> AsyncIterator[httpx.AsyncClient]:
    headers = bearer(guarded.keys["reader"])
    async with httpx.AsyncClient(base_url=guarded.running.url, headers=headers, timeout=30) as client:
        yield client


async def until(http: httpx.AsyncClient, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    while True:
        details: dict[str, Any] = (await http.get("/v1/metrics")).json()
        if is_so(details):
            return details


async def test_any_worker_shows_what_all_counted_also_those_that_died(
    guarded: Guarded, http: httpx.AsyncClient, log: Log
) -> None:
    await log.configure("counted")
    supervisor = psutil.Process(guarded.running.process.pid)

    async def push(times: int) -> None:
        for _ in range(times):
            # A connection each, so that both workers are asked.
            answer = await asyncio.to_thread(
                httpx.post,
                f"{guarded.running.url}/v1/queues/counted/events",
                json=[{"data": 1}, {"data": 2}],
                headers=bearer(guarded.keys["producer"]),
            )
            assert answer.is_success, answer.text

    await push(10)
    await until(http, lambda d: d["eventsAccepted"] == 20 and d["workers"] == 2)
    killed = supervisor.children()[0]
    killed.kill()
    await asyncio.to_thread(killed.wait, 20)
    await until(http, lambda d: d["workers"] == 2 and len(supervisor.children()) == 2)
    await push(10)
    async with httpx.AsyncClient(base_url=http.base_url, headers=http.headers, timeout=30) as again:
        for _ in range(5):
            await until(again, lambda d: d["eventsAccepted"] == 40 and d["workers"] == 2)


async def test_a_key_for_some_queues_sees_their_metrics_alone(
    guarded: Guarded, http: httpx.AsyncClient, log: Log
) -> None:
    await log.configure("shop.orders")
    await log.configure("bank")
    await log.push([Batch("shop.orders", [{"data": 1}]), Batch("bank", [{"data": 1}])])
    await until(http, lambda d: {"bank", "shop.orders"} <= {queue["name"] for queue in d["queues"]})
    limited = bearer(guarded.keys["shop"])
    text = (await http.get("/metrics", headers=limited)).text
    assert 'queue="shop.orders"' in text
    assert "bank" not in text
    seen = (await http.get("/v1/metrics", headers=limited)).json()
    assert [queue["name"] for queue in seen["queues"]] == ["shop.orders"]
    for credential, status in ((guarded.keys["producer"], 403), ("nonsense", 401)):
        assert (await http.get("/metrics", headers=bearer(credential))).status_code == status


async def test_a_stream_needs_a_key_which_a_page_can_name_as_a_protocol(
    guarded: Guarded, http: httpx.AsyncClient, log: Log
) -> None:
    driver = await Driver.start(log, "guarded")
    await driver.cycle([("ada", 0, 1, 1)])
    url = f"{guarded.socket_url}/v1/queries/guarded/live"
    async with following(http, "/v1/queries/guarded/live") as reader:
        assert (await reader.next()).event == "snapshot"
    protocols: Any = ["penstock", f"penstock.key.{guarded.keys['reader']}"]
    async with connect(url, subprotocols=protocols) as socket:
        # The key is not said again.
        assert socket.subprotocol == "penstock"
        assert json.loads(await socket.recv())["event"] == "snapshot"
    for wrong, status in (
        ([], 401),
        (["penstock", f"penstock.key.{guarded.keys['producer']}"], 403),
        (["penstock", "penstock.key.nonsense"], 401),
    ):
        offered: Any = wrong
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, subprotocols=offered or None)
        assert refused.value.response.status_code == status
    await driver.close()


async def test_a_stream_ends_when_its_key_is_revoked(guarded: Guarded, log: Log) -> None:
    await log.configure("watched")
    async with Database(Settings(database_url=guarded.database_url)) as database:
        key, text = await Keys(database).create("short", [Role.READ], ["*"])
        async with connect(
            f"{guarded.socket_url}/v1/queues/watched/tail", additional_headers=bearer(str(text))
        ) as socket:
            await socket.recv()
            await Keys(database).revoke(key.id)
            last = json.loads(await socket.recv())
            assert (last["event"], last["data"]["status"]) == ("problem", 401)
            with pytest.raises(ConnectionClosed):
                await socket.recv()

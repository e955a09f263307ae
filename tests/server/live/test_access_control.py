"""Live streams of a server with access control."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.log import Log
from penstock.server.auth.api_keys import ApiKeyStore
from penstock.server.auth.authenticate import KEY_CACHE_SECONDS
from penstock.server.auth.identity import Role
from tests.cycle_driver import CycleDriver
from tests.server.access_server import AccessServer
from tests.server.keys import bearer
from tests.server.live.sse_client import open_stream

pytestmark = pytest.mark.slow


@pytest.fixture
async def log(access_server: AccessServer) -> AsyncIterator[Log]:
    log = await Log(Database(Settings(database_url=access_server.database_url))).open()
    yield log
    await log.close()


async def test_stream_needs_a_key_that_may_be_a_subprotocol(access_server: AccessServer, log: Log) -> None:
    driver = await CycleDriver.start(log, "guarded")
    await driver.cycle([("ada", 0, 1, 1)])
    path = "/v1/queries/guarded/live"
    url = access_server.running.websocket_url + path
    keys = ApiKeyStore(log.database)
    _, reader_key = await keys.create("reader", [Role.READ])
    _, producer_key = await keys.create("producer", [Role.PRODUCE])
    async with (
        httpx.AsyncClient(base_url=access_server.url, headers=bearer(str(reader_key)), timeout=30) as http,
        open_stream(http, path) as reader,
    ):
        assert (await reader.next()).event == "snapshot"
    protocols: Any = ["penstock", f"penstock.key.{reader_key}"]
    async with connect(url, subprotocols=protocols) as socket:
        # The response does not contain the key.
        assert socket.subprotocol == "penstock"
        assert json.loads(await socket.recv())["event"] == "snapshot"
    for wrong, status in (
        ([], 401),
        (["penstock", f"penstock.key.{producer_key}"], 403),
        (["penstock", "penstock.key.nonsense"], 401),
    ):
        offered: Any = wrong
        with pytest.raises(InvalidStatus) as refused:
            await connect(url, subprotocols=offered or None)
        assert refused.value.response.status_code == status
    await driver.close()


async def test_streams_and_requests_with_a_revoked_key_are_refused_after_the_cache_time(
    access_server: AccessServer, log: Log
) -> None:
    await log.configure("watched")
    keys = ApiKeyStore(log.database)
    key, plaintext = await keys.create("short", [Role.READ], ["*"])
    headers = bearer(str(plaintext))
    url = f"{access_server.running.websocket_url}/v1/queues/watched/tail"
    async with connect(url, additional_headers=headers) as socket:
        await socket.recv()
        await keys.revoke(key.id)
        revoked_at = time.monotonic()
        last = json.loads(await socket.recv())
        assert (last["event"], last["data"]["status"]) == ("problem", 401)
        with pytest.raises(ConnectionClosed):
            await socket.recv()
    # Streams check their key every few seconds.
    assert time.monotonic() - revoked_at < KEY_CACHE_SECONDS + 10
    assert access_server.get("/v1/queues", **headers).status_code == 401

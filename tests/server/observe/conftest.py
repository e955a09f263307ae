"""One server process for most of these tests, on a database that they share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.log import Log
from tests import servers
from tests.server.serving import Serving, serving
from tests.servers import Server


@pytest.fixture(scope="session")
def shared_url(pg18: Server) -> Iterator[str]:
    with pg18.fresh_database(servers.TEMPLATE) as url:
        yield url


@pytest.fixture(scope="session")
def shared_server(shared_url: str) -> Iterator[Serving]:
    with serving(shared_url) as running:
        yield running


@pytest.fixture
async def http(shared_server: Serving) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=shared_server.url, timeout=30) as client:
        yield client


@pytest.fixture
async def log(shared_url: str) -> AsyncIterator[Log]:
    """The log beside the server, as another process has it."""
    log = await Log(Database(Settings(database_url=shared_url))).open()
    yield log
    await log.close()

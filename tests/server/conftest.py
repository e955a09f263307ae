"""Server processes for tests. Tests share one server unless they need other settings or stop it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from urllib.parse import quote

import httpx
import pytest

from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.log import Log
from tests.server.access_server import AccessServer, run_access_server
from tests.server.server_process import RunningServer, run_server
from tests.servers import TEMPLATE, Server

#: The origin that the shared server allows.
ALLOWED_ORIGIN = "https://shop.example"


@pytest.fixture(scope="session")
def shared_url(pg18: Server) -> Iterator[str]:
    """A database for tests with their own queues and queries."""
    with pg18.fresh_database(TEMPLATE) as url:
        yield url


@pytest.fixture(scope="session")
def shared_server(shared_url: str) -> Iterator[RunningServer]:
    """A server on the shared database."""
    with run_server(shared_url, ["--cors-origin", ALLOWED_ORIGIN]) as running:
        yield running


@pytest.fixture(scope="session")
def access_server(pg18: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AccessServer]:
    """A server with access control, on its own database."""
    with (
        pg18.fresh_database(TEMPLATE) as url,
        run_access_server(url, tmp_path_factory.mktemp("access")) as running,
    ):
        yield running


@pytest.fixture(scope="session")
def client(shared_server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shared_server.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def v1(shared_server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{shared_server.url}/v1", timeout=30) as client:
        yield client


@pytest.fixture
async def http(shared_server: RunningServer) -> AsyncIterator[httpx.AsyncClient]:
    # Reading certificates takes longer than most tests.
    async with httpx.AsyncClient(base_url=shared_server.url, timeout=30, verify=False) as client:  # noqa: S501
        yield client


@pytest.fixture
async def log(shared_url: str) -> AsyncIterator[Log]:
    """A log on the shared database, as another process has it."""
    log = await Log(Database(Settings(database_url=shared_url))).open()
    yield log
    await log.close()


@pytest.fixture
def queue(v1: httpx.Client) -> str:
    """The URL path of a new queue that is partitioned by key and retries once, without a delay."""
    name = f"jobs {uuid.uuid4().hex[:12]}/ü"
    response = v1.put(f"queues/{quote(name, safe='')}", json={"options": {"retry_limit": 1, "retry_delay_ms": 0}})
    assert response.status_code == 200, response.text
    return quote(name, safe="")

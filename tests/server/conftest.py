"""A server process on a fresh database for each test, and a client for it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest

from tests.server.serving import Serving, serving
from tests.servers import TEMPLATE, Server


@pytest.fixture
def server_process(database_url: str) -> Iterator[Serving]:
    with serving(database_url) as running:
        yield running


@pytest.fixture
def http(server_process: Serving) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server_process.url, timeout=30) as client:
        yield client


@pytest.fixture(scope="session")
def shared_server(pg18: Server) -> Iterator[Serving]:
    """One server for all tests that are content with queues of their own."""
    with pg18.fresh_database(TEMPLATE) as url, serving(url) as running:
        yield running


@pytest.fixture(scope="session")
def v1(shared_server: Serving) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{shared_server.url}/v1", timeout=30) as client:
        yield client


@pytest.fixture
def queue(v1: httpx.Client) -> str:
    """A new queue by key, with short retries."""
    name = f"jobs {uuid.uuid4().hex[:12]}/ü"
    made = v1.put(f"queues/{quote(name, safe='')}", json={"options": {"retry_limit": 1, "retry_delay_ms": 0}})
    assert made.status_code == 200, made.text
    return quote(name, safe="")

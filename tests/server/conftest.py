"""A server process on a fresh database for each test, and a client for it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.server.serving import Serving, serving


@pytest.fixture
def server_process(database_url: str) -> Iterator[Serving]:
    with serving(database_url) as running:
        yield running


@pytest.fixture
def http(server_process: Serving) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server_process.url, timeout=30) as client:
        yield client

"""A client on a fresh database for each test. Tests with ``q`` run against the database and through a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from penstock import Penstock, SyncPenstock
from penstock.core.clock import Clock
from tests.client.server_thread import serve_in_thread


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["database", "http"])
def url(request: pytest.FixtureRequest, database_url: str, clock: Clock) -> Iterator[str]:
    """The url of the database, or of a server in front of it."""
    if request.param == "database":
        yield database_url
    else:
        with serve_in_thread(database_url, clock) as url:
            yield url


@pytest.fixture
async def q(url: str, clock: Clock) -> AsyncIterator[Penstock]:
    async with Penstock(url, clock=clock) as client:
        yield client


@pytest.fixture
def sync_q(url: str) -> Iterator[SyncPenstock]:
    with SyncPenstock(url) as client:
        yield client

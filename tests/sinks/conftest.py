"""One database for all tests of sinks and sources, and a new queue for each test."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from penstock.log.log import Log
from tests import servers
from tests.log.logs import opened
from tests.servers import Server


@pytest.fixture(scope="session")
def sinks_url(pg18: Server) -> Iterator[str]:
    with pg18.fresh_database(servers.TEMPLATE) as url:
        yield url


@pytest.fixture
async def log(sinks_url: str) -> AsyncIterator[Log]:
    async with opened(sinks_url) as log:
        yield log


@pytest.fixture
async def queue(log: Log) -> str:
    """A new queue, partitioned by key."""
    name = f"results-{uuid.uuid4().hex[:12]}"
    await log.configure(name)
    return name

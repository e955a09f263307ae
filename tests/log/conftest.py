"""Logs on a fresh database for each test, with a clock that the test advances.

The tests of a module can share one database with ``clean_log``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from penstock.core.clock import Clock
from penstock.log.log import Log
from tests import servers
from tests.log.logs import QUEUE, opened
from tests.servers import Server


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cache_seconds() -> float:
    """How long the logs cache queues and groups. Tests parametrize it to run without a cache as well."""
    return 1.0


@pytest.fixture
async def log(database_url: str, clock: Clock, cache_seconds: float) -> AsyncIterator[Log]:
    async with opened(database_url, clock=clock, cache_seconds=cache_seconds) as log:
        yield log


@pytest.fixture
async def other_log(database_url: str, clock: Clock, cache_seconds: float) -> AsyncIterator[Log]:
    """A second log on the same database, like that of another process, with the same clock."""
    async with opened(database_url, clock=clock, cache_seconds=cache_seconds) as log:
        yield log


@pytest.fixture(scope="module")
def shared_url(pg18: Server) -> Iterator[str]:
    with pg18.fresh_database(servers.TEMPLATE) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_log(shared_url: str) -> AsyncIterator[Log]:
    async with opened(shared_url) as log:
        yield log


@pytest_asyncio.fixture(loop_scope="module")
async def clean_log(shared_log: Log) -> Log:
    """A log with two empty queues: ``orders`` by key, ``hashed`` by hash."""
    for queue in await shared_log.queues():
        await shared_log.delete_queue(queue.name)
    await shared_log.configure(QUEUE)
    await shared_log.configure("hashed", partitioning="hash", partitions=2)
    return shared_log

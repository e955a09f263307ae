"""A log on a fresh database for each test, with a clock that the test moves.

Where tests are many and leave nothing behind, ``clean_log`` shares one database among those of a module.
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
async def log(database_url: str, clock: Clock) -> AsyncIterator[Log]:
    async with opened(database_url, clock=clock) as log:
        yield log


@pytest.fixture
async def other_log(database_url: str, clock: Clock) -> AsyncIterator[Log]:
    """Another log on the same database, as another process has it, with the same clock."""
    async with opened(database_url, clock=clock) as log:
        yield log


@pytest.fixture(params=["knowing", "forgetful"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether what is known of queues and groups lasts a while, or is looked up in each call, as after a pause."""
    if request.param == "forgetful":
        for module in ("catalog", "groups"):
            monkeypatch.setattr(f"penstock.log.{module}.FRESH_SECONDS", 0)
    return str(request.param)


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

"""Part of the log's tests with psycopg's own connections, pool and cursors (PENSTOCK_FAST_DATABASE=0)."""

# ruff: noqa: F403

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from penstock.core.clock import Clock
from penstock.log.log import Log
from tests.log.dead_letters.test_dead_letters import *
from tests.log.logs import opened
from tests.log.test_catalog import *
from tests.log.test_groups import *
from tests.log.test_races import *
from tests.log.test_transaction import *
from tests.log.write.test_backpressure import *
from tests.log.write.test_dedup import *
from tests.log.write.test_idempotency import *
from tests.log.write.test_push import *

pytestmark = pytest.mark.slow


@pytest.fixture
async def log(database_url: str, clock: Clock) -> AsyncIterator[Log]:
    async with opened(database_url, clock=clock, fast_database=False) as log:
        yield log


@pytest.fixture
async def other_log(database_url: str, clock: Clock) -> AsyncIterator[Log]:
    async with opened(database_url, clock=clock, fast_database=False) as log:
        yield log


async def test_the_log_uses_the_pool_and_connections_of_psycopg(log: Log) -> None:
    assert type(log.database.pool) is AsyncConnectionPool
    async with log.database.connection() as conn:
        assert type(conn) is AsyncConnection
    await log.database.check()

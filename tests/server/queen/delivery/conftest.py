"""A log on a fresh database for each test, and a second one as another process has it, with one clock."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from penstock.core.clock import Clock
from penstock.log.log import Log
from tests.log.logs import opened


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def log(database_url: str, clock: Clock) -> AsyncIterator[Log]:
    async with opened(database_url, clock=clock) as log:
        yield log


@pytest.fixture
async def other_log(database_url: str, clock: Clock) -> AsyncIterator[Log]:
    async with opened(database_url, clock=clock) as log:
        yield log

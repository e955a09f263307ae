"""A database with an empty queue, for rules without Spark."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from penstock.log.log import Log
from tests.log.logs import QUEUE, opened


@pytest.fixture
async def log(database_url: str) -> AsyncIterator[Log]:
    async with opened(database_url) as log:
        await log.configure(QUEUE)
        yield log

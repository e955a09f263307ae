"""A client on a fresh database for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from penstock import Penstock, SyncPenstock
from penstock.core.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def q(database_url: str, clock: Clock) -> AsyncIterator[Penstock]:
    async with Penstock(database_url, clock=clock) as client:
        yield client


@pytest.fixture
def sync_q(database_url: str) -> Iterator[SyncPenstock]:
    with SyncPenstock(database_url) as client:
        yield client

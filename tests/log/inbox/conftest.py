"""A log whose inbox is moved only when the test says so, and connections that push with SQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from penstock.core.clock import Clock
from penstock.log.inbox.inbox import LOCKS, MOVER_LOCK
from penstock.log.log import Log
from tests.log.logs import opened


@pytest.fixture
def sql(database_url: str) -> Iterator[Connection[Any]]:
    with psycopg.connect(database_url, autocommit=True) as conn:
        yield conn


@pytest.fixture
async def still_log(database_url: str, clock: Clock) -> AsyncIterator[Log]:
    """A log that never becomes the mover, because the test holds the mover's lock."""
    with psycopg.connect(database_url, autocommit=True) as holder:
        holder.execute("SELECT pg_advisory_lock(%s::integer, %s::integer)", (LOCKS, MOVER_LOCK))
        async with opened(database_url, clock=clock) as log:
            yield log

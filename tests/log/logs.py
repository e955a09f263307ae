"""Opens logs for tests, with the operations that most tests use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from penstock.core.clock import Clock
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.dead_letters.dead_letter import DeadLetter, DeadLetterFilter
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.log.read.pop import MIN_POP_BYTES
from penstock.log.read.pop_request import PopRequest
from penstock.log.write.encode.batch import Batch
from penstock.log.write.push_result import PushResult
from tests.conditions import eventually_async

QUEUE = "orders"
GROUP = "workers"

#: The longest time that a test waits, in seconds.
PATIENCE = 20.0

#: Runs a test with a cache of queues and groups, and without.
CACHED_AND_UNCACHED = pytest.mark.parametrize("cache_seconds", [1.0, 0.0], ids=["cached", "uncached"])


@asynccontextmanager
async def opened(
    url: str,
    *,
    clock: Clock | None = None,
    pool_size: int = 8,
    retry_seconds: float = 30.0,
    cache_seconds: float = 1.0,
    min_pop_bytes: int = MIN_POP_BYTES,
    **settings: Any,
) -> AsyncIterator[Log]:
    """Open a log, like another process."""
    log = Log(
        Database(Settings(database_url=url, pool_size=pool_size, **settings)),
        clock=clock,
        retry_seconds=retry_seconds,
        cache_seconds=cache_seconds,
        min_pop_bytes=min_pop_bytes,
    )
    await log.open()
    try:
        yield log
    finally:
        await log.close()


async def push(
    log: Log,
    datas: Iterable[Any],
    *,
    queue: str = QUEUE,
    key: str | None = None,
    ids: Sequence[str | None] | None = None,
    idempotency_key: str | None = None,
) -> PushResult:
    """Push events with these data, all with one key."""
    events: list[dict[str, Any]] = [{"data": data} for data in datas]
    for event, event_id in zip(events, ids or [], strict=ids is not None):
        if event_id is not None:
            event["id"] = event_id
    (result,) = await log.push([Batch(queue, events, key=key)], idempotency_key=idempotency_key)
    return result


async def pop(log: Log, queue: str = QUEUE, **asked: Any) -> list[Event]:
    """Pop all events, or fewer with other parameters."""
    request = PopRequest(queue, GROUP, batch=1000, partitions=1000)
    return await log.pop(replace(request, **asked))


async def drain(log: Log, queue: str = QUEUE, **asked: Any) -> list[Event]:
    """Pop and complete all events."""
    drained: list[Event] = []
    while events := await pop(log, queue, **asked):
        assert all(await log.ack(events))
        drained += events
    return drained


async def lag(log: Log, queue: str = QUEUE, group: str = GROUP) -> int:
    """Return the lag of a group."""
    (mine,) = [info.lag for info in await log.groups(queue) if info.group == group]
    return mine


async def letters(log: Log, queue: str = QUEUE, **which: Any) -> list[DeadLetter]:
    """Return the dead letters of a queue, the oldest failure first."""
    return (await log.dead_letters(DeadLetterFilter(queue=queue, **which), limit=10_000))[::-1]


async def roll(log: Log, queue: str = QUEUE) -> None:
    """Seal the queue's segment and open the next."""
    await log.segments.roll(await log.catalog.refresh(queue))


def data(events: Iterable[Event]) -> list[Any]:
    """Return the data of the events."""
    return [event.data for event in events]


def by_key(events: Iterable[Event]) -> dict[str | None, list[Any]]:
    """Return the data of the events of each key, in order."""
    found: dict[str | None, list[Any]] = {}
    for event in events:
        found.setdefault(event.key, []).append(event.data)
    return found


@asynccontextmanager
async def held(url: str, statement: str, *params: Any) -> AsyncIterator[AsyncConnection[Any]]:
    """Run a statement in another transaction, and keep its locks until the block ends."""
    async with await AsyncConnection.connect(url) as conn:
        await conn.execute(statement, params or None)
        yield conn
        await conn.rollback()


def ask(url: str, question: str, *params: Any) -> Any:
    """Return the single value of a query."""
    with psycopg.connect(url, autocommit=True) as conn:
        row = conn.execute(question, params or None).fetchone()
    return None if row is None else row[0]


async def waiting(url: str, most: int = 1) -> None:
    """Wait until so many connections to the database wait for a lock."""
    question = (
        "SELECT count(*) >= %s FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )

    async def enough() -> object:
        return await asyncio.to_thread(ask, url, question, most)

    await eventually_async(enough)

"""Logs to test with, and the few sentences that most tests are made of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import AsyncConnection

from penstock.core.clock import Clock
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.dead_letters import DeadLetter, Filter
from penstock.log.event import Event
from penstock.log.log import Batch, Log
from penstock.log.read.lease import PopRequest
from penstock.log.write.result import PushResult

QUEUE = "orders"
GROUP = "workers"

#: Long enough for a busy machine, short enough to see that something hangs.
PATIENCE = 20.0


@asynccontextmanager
async def opened(
    url: str, *, clock: Clock | None = None, pool_size: int = 8, retry_seconds: float = 30.0, **settings: Any
) -> AsyncIterator[Log]:
    """A log of its own, as another process would have."""
    log = Log(
        Database(Settings(database_url=url, pool_size=pool_size, **settings)), clock=clock, retry_seconds=retry_seconds
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
    """Push one request with these data, all under one key."""
    events: list[dict[str, Any]] = [{"data": data} for data in datas]
    for event, event_id in zip(events, ids or [], strict=ids is not None):
        if event_id is not None:
            event["id"] = event_id
    (result,) = await log.push([Batch(queue, events, key=key)], idempotency_key=idempotency_key)
    return result


async def pop(log: Log, queue: str = QUEUE, **asked: Any) -> list[Event]:
    """Pop as much as there is, unless told less."""
    request = PopRequest(queue, GROUP, batch=1000, partitions=1000)
    return await log.pop(replace(request, **asked))


async def drain(log: Log, queue: str = QUEUE, **asked: Any) -> list[Event]:
    """Pop and complete until nothing is left."""
    drained: list[Event] = []
    while events := await pop(log, queue, **asked):
        assert all(await log.ack(events))
        drained += events
    return drained


async def lag(log: Log, queue: str = QUEUE, group: str = GROUP) -> int:
    """How far the group is behind."""
    (mine,) = [info.lag for info in await log.groups(queue) if info.group == group]
    return mine


async def letters(log: Log, queue: str = QUEUE, **which: Any) -> list[DeadLetter]:
    """The queue's dead letters, the oldest failure first."""
    return (await log.dead_letters(Filter(queue=queue, **which), limit=10_000))[::-1]


async def roll(log: Log, queue: str = QUEUE) -> None:
    """Seal the queue's segment and open the next."""
    await log.segments.roll(await log.catalog.refresh(queue))


def data(events: Iterable[Event]) -> list[Any]:
    """What the events hold."""
    return [event.data for event in events]


def by_key(events: Iterable[Event]) -> dict[str | None, list[Any]]:
    """What the events of each key hold, in the order they came in."""
    found: dict[str | None, list[Any]] = {}
    for event in events:
        found.setdefault(event.key, []).append(event.data)
    return found


async def eventually(condition: Callable[[], Awaitable[object]]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not await condition():  # noqa: ASYNC110 - what is waited for may be in the database
            await asyncio.sleep(0.005)


@asynccontextmanager
async def held(url: str, statement: str, *params: Any) -> AsyncIterator[AsyncConnection[Any]]:
    """A transaction of somebody else that holds what the statement locks, until the block ends."""
    async with await AsyncConnection.connect(url) as conn:
        await conn.execute(statement, params or None)
        yield conn
        await conn.rollback()


def ask(url: str, question: str, *params: Any) -> Any:
    """What the database itself answers: one value."""
    with psycopg.connect(url, autocommit=True) as conn:
        row = conn.execute(question, params or None).fetchone()
    return None if row is None else row[0]


async def waiting(url: str, most: int = 1) -> None:
    """Wait until that many connections to the database wait for a lock."""
    question = (
        "SELECT count(*) >= %s FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )

    async def enough() -> object:
        return await asyncio.to_thread(ask, url, question, most)

    await eventually(enough)

"""The hubs of a process: one for each query or queue that somebody follows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from penstock.core.errors import NotFound
from penstock.db.statements import Statements
from penstock.log.log import Log
from penstock.log.notify import cycles_of
from penstock.log.queue import Queue
from penstock.server.http.errors import Problem, retry_after
from penstock.server.live.broadcaster import Hub
from penstock.server.live.query_feed import QueryHub
from penstock.server.live.results import Results
from penstock.server.live.subscriber import Subscriber
from penstock.server.live.tail_feed import QueueHub
from penstock.server.metrics.counters import Instruments
from penstock.server.queen.client_results import SharedResults, shared_cycles_of

_sql = Statements("penstock.server.live", "results.sql")


@dataclass(frozen=True)
class Followed:
    """A query that somebody wants to follow; a shared one is computed by its clients, not on Spark."""

    id: int
    name: str
    is_shared: bool


#: Its kind, the number of what it is about, and a part of that.
_Name: TypeAlias = tuple[str, int, str | None]
_AnyHub = TypeVar("_AnyHub", bound=Hub)


class Hubs:
    """Finds or makes the hub of what somebody wants to follow, and ends them all when the process does."""

    def __init__(self, log: Log, metrics: Instruments, stopping: asyncio.Event, most: int) -> None:
        self._log = log
        self._metrics = metrics
        self._stopping = stopping
        self._most = most
        self._hubs: dict[_Name, Hub] = {}
        self._ending: asyncio.Task[None] | None = None

    def admit(self) -> None:
        """Refuse a reader for whom there is no room."""
        if self._stopping.is_set():
            raise Problem("stopping", "the server is stopping")
        if sum(hub.size for hub in self._hubs.values()) >= self._most:
            raise Problem(
                "overloaded",
                f"{self._most:,} live streams are open in this process, and that is how many it may have",
                {"limit": self._most},
                retry_after(5),
            )

    async def find_query(self, name: str) -> Followed:
        """The query of this name."""
        async with self._log.database.connection() as conn:
            row = await (await conn.execute(_sql["query"], {"name": name})).fetchone()
        if row is None:
            raise NotFound(f"there is no query {name!r}: GET /v1/queries lists those there are")
        return Followed(row[0], name, row[1])

    @contextmanager
    def following_query(self, query: Followed, keys: frozenset[str] | None, last_id: str) -> Iterator[Subscriber]:
        """Follow a query's results."""
        hub = self._find(
            ("shared query" if query.is_shared else "query", query.id, None),
            QueryHub,
            lambda ended: self._query_hub(query, ended),
        )
        subscriber = hub.subscribe(keys, last_id)
        try:
            yield subscriber
        finally:
            hub.remove(subscriber)

    @contextmanager
    def following_queue(
        self, queue: Queue, partition: str | None, key: str | None, last_id: str
    ) -> Iterator[Subscriber]:
        """Follow a queue's end, or that of one of its partitions."""
        hub = self._find(
            ("queue", queue.id, partition),
            QueueHub,
            lambda ended: QueueHub(self._log, self._metrics, queue, partition, ended),
        )
        subscriber = hub.subscribe(key, last_id)
        try:
            yield subscriber
        finally:
            hub.remove(subscriber)

    def _query_hub(self, query: Followed, ended: Callable[[], None]) -> QueryHub:
        database, signals = self._log.database, self._log.signals
        if query.is_shared:
            topic = shared_cycles_of(query.id)
            # Below zero, where no query on Spark has its number.
            return QueryHub(SharedResults(database, query.id), -query.id, signals, topic, self._metrics, ended)
        results = Results(database, query.id, query.name)
        return QueryHub(results, query.id, signals, cycles_of(query.id), self._metrics, ended)

    def _find(self, name: _Name, kind: type[_AnyHub], make: Callable[[Callable[[], None]], _AnyHub]) -> _AnyHub:
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        hub = self._hubs.get(name)
        if not isinstance(hub, kind):
            hub = self._hubs[name] = make(lambda: self._drop(name))
        return hub

    def _drop(self, name: _Name) -> None:
        self._hubs.pop(name, None)

    async def _end(self) -> None:
        await self._stopping.wait()
        for hub in self._hubs.values():
            hub.end()

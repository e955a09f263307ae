"""The live broadcasters of a process: one per query or queue that has subscribers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.core.errors import NotFound
from penstock.db.statements import Statements
from penstock.engine.client_queries import client_cycle_topic
from penstock.log.log import Log
from penstock.log.notify import cycle_topic
from penstock.log.queue import Queue
from penstock.server.http.errors import Problem, retry_after
from penstock.server.live.broadcaster import Broadcaster
from penstock.server.live.compared_results import ClientResultReader, CurrentResultReader, ViewResultReader
from penstock.server.live.query_feed import QueryBroadcaster
from penstock.server.live.query_results import LiveResultReader, QueryResultReader
from penstock.server.live.subscriber import Subscriber
from penstock.server.live.tail_feed import TailBroadcaster
from penstock.server.metrics.counters import ServerMetrics

_sql = Statements("penstock.server.live", "broadcaster_registry.sql")


@dataclass(frozen=True)
class LiveQuery:
    """A query that a client subscribes to: one that runs on Spark, or one that clients compute."""

    id: int
    name: str
    is_client_query: bool
    is_view: bool


class _SourceKey(NamedTuple):
    kind: str
    id: int
    partition: str | None = None


class BroadcasterRegistry:
    """Creates broadcasters for their first subscriber, and closes all of them when the server stops."""

    def __init__(self, log: Log, metrics: ServerMetrics, stopping: asyncio.Event, max_subscribers: int) -> None:
        self._log = log
        self._metrics = metrics
        self._stopping = stopping
        self._max_subscribers = max_subscribers
        self._broadcasters: dict[_SourceKey, Broadcaster[Any, Any]] = {}
        self._closing: asyncio.Task[None] | None = None

    def check_capacity(self) -> None:
        """Raise a problem if no subscriber can be added."""
        if self._stopping.is_set():
            raise Problem("stopping", "the server is stopping")
        if sum(each.subscriber_count for each in self._broadcasters.values()) >= self._max_subscribers:
            raise Problem(
                "overloaded",
                f"this process has {self._max_subscribers:,} live streams open, which is its limit; try again later",
                {"limit": self._max_subscribers},
                retry_after(5),
            )

    async def find_query(self, name: str) -> LiveQuery:
        for query in await self._log.database.fetch(LiveQuery, _sql["find_query"], {"name": name}):
            return query
        raise NotFound(f"there is no query {name!r}: GET /v1/queries lists all queries")

    def subscribe_to_query(
        self, query: LiveQuery, keys: frozenset[str] | None, last_id: str, *, current: bool = False
    ) -> AbstractContextManager[Subscriber]:
        """Subscribe to the open windows of a query, or the current window of each key, for some keys or all."""
        if current and query.is_client_query:
            raise Problem("invalid-request", "clients compute this query, which has no view of current windows")
        database, notifier = self._log.database, self._log.notifier

        def create(on_empty: Callable[[], None]) -> QueryBroadcaster:
            if query.is_client_query:
                client_results, topic = ClientResultReader(database, query.id), client_cycle_topic(query.id)
                # Ids of the two kinds of queries overlap; negative stream ids keep them apart.
                return QueryBroadcaster(client_results, -query.id, notifier, topic, self._metrics, on_empty)
            results: LiveResultReader
            if query.is_view:
                results = ViewResultReader(database, query.id)
            else:
                reader = CurrentResultReader if current else QueryResultReader
                results = reader(database, query.id, query.name)
            return QueryBroadcaster(results, query.id, notifier, cycle_topic(query.id), self._metrics, on_empty)

        is_current = current and not query.is_view
        kind = "client query" if query.is_client_query else "current windows" if is_current else "query"
        source = _SourceKey(kind, query.id)
        return self._subscribe(source, create, keys, last_id)

    def subscribe_to_queue(
        self, queue: Queue, partition: str | None, key: str | None, last_id: str
    ) -> AbstractContextManager[Subscriber]:
        """Subscribe to the events appended to a queue, or to one of its partitions."""

        def create(on_empty: Callable[[], None]) -> TailBroadcaster:
            return TailBroadcaster(self._log, self._metrics, queue, partition, on_empty)

        return self._subscribe(_SourceKey("queue", queue.id, partition), create, key, last_id)

    @contextmanager
    def _subscribe(
        self, source: _SourceKey, create: Callable[[Callable[[], None]], Broadcaster[Any, Any]], keys: Any, last_id: str
    ) -> Iterator[Subscriber]:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close_on_stop())
        broadcaster = self._broadcasters.get(source)
        if broadcaster is None:
            broadcaster = self._broadcasters[source] = create(lambda: self._remove(source))
        subscriber = broadcaster.subscribe(keys, last_id)
        try:
            yield subscriber
        finally:
            broadcaster.remove(subscriber)

    def _remove(self, source: _SourceKey) -> None:
        self._broadcasters.pop(source, None)

    async def _close_on_stop(self) -> None:
        await self._stopping.wait()
        for broadcaster in self._broadcasters.values():
            broadcaster.close()

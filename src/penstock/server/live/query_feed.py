"""Broadcaster of one query's results."""

from __future__ import annotations

from collections.abc import Callable

from penstock.log.notify import Notifier, Topic
from penstock.server.http.errors import Problem
from penstock.server.live.broadcaster import Broadcaster, problem_message
from penstock.server.live.query_results import (
    MAX_ROWS,
    LiveResultReader,
    QueryPosition,
    ResultChanges,
    parse_resume_id,
)
from penstock.server.live.subscriber import LiveMessage, Subscriber
from penstock.server.metrics.counters import ServerMetrics

#: Cycles from which subscribers can resume in one read. Subscribers at older cycles get a snapshot.
_MAX_RESUMED = 16


class QueryBroadcaster(Broadcaster[frozenset[str], int]):
    """Reads once per cycle for all subscribers of a query.

    Args:
        results: Reads the results.
        stream_id: Identifies the query in the ids from which streams resume.
        notifier: Wakes the broadcaster.
        topic: The topic of the query's cycles.
        metrics: The counters of this process.
        on_empty: Called when the last subscriber has left.
    """

    kind = "query"

    def __init__(
        self,
        results: LiveResultReader,
        stream_id: int,
        notifier: Notifier,
        topic: Topic,
        metrics: ServerMetrics,
        on_empty: Callable[[], None],
    ) -> None:
        super().__init__(notifier, topic, metrics, on_empty)
        self._results = results
        self._stream_id = stream_id
        self._position: QueryPosition | None = None

    def parse_position(self, last_id: str) -> int | None:
        """Return the cycle to resume after."""
        return parse_resume_id(self._stream_id, last_id)

    def position_after_overrun(self, _subscriber: Subscriber) -> None:
        """Start with a snapshot."""

    async def read_and_send(self) -> None:
        """Read the changes of the last cycles, and the first messages of starting subscribers, in one transaction."""
        starting, self._starting = self._starting, {}
        following = [subscriber for subscriber in self._keys if subscriber not in starting]
        resumed = sorted({cycle for cycle in starting.values() if cycle is not None}, reverse=True)[:_MAX_RESUMED]
        needs_snapshot = any(cycle is None or cycle not in resumed for cycle in starting.values())
        if not following and not starting:
            return
        try:
            read = await self._results.read(
                self._position if following else None, resumed, snapshot=needs_snapshot, keys=self._followed_keys()
            )
        except BaseException:
            self._starting = starting | self._starting
            raise
        self._metrics.live_reads.add(1, self.kind)
        self._position = read.position
        if read.changes is not None:
            self._send(following, read.changes)
        elif read.snapshot is not None and read.must_restart:
            self._send(following, read.snapshot)
        for cycle in {*starting.values()}:
            subscribers = [subscriber for subscriber, seen in starting.items() if seen == cycle]
            missed = read.missed.get(cycle) if cycle is not None else None
            if missed is not None:
                self._send(subscribers, missed)
            elif read.snapshot is not None:
                self._send(subscribers, read.snapshot)

    def _send(self, subscribers: list[Subscriber], changes: ResultChanges) -> None:
        shared: LiveMessage | None = None
        for subscriber in subscribers:
            if subscriber not in self._keys:
                continue  # it left during the read
            keys = self._keys[subscriber]
            if changes.is_truncated:
                subscriber.offer(problem_message(_too_many_windows()))
                subscriber.close()
            elif keys is not None:
                filtered = changes.for_keys(keys)
                if filtered:
                    subscriber.offer(filtered.to_message(self._stream_id))
            elif changes:
                shared = shared or changes.to_message(self._stream_id)
                subscriber.offer(shared)

    def _followed_keys(self) -> frozenset[str] | None:
        """Return the keys that some subscriber follows; None for all."""
        followed: set[str] = set()
        for keys in self._keys.values():
            if keys is None:
                return None
            followed |= keys
        return frozenset(followed)


def _too_many_windows() -> Problem:
    detail = f"the query has more than {MAX_ROWS:,} windows to send: follow fewer keys, with keys=..."
    return Problem("too-large", detail, {"limit": MAX_ROWS})

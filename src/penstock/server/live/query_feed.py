"""The readers of one query's results."""

from __future__ import annotations

from collections.abc import Callable

from penstock.log.notify import Signals, Topic
from penstock.server.http.errors import Problem
from penstock.server.live.broadcaster import Hub, problem_frame
from penstock.server.live.results import MOST_ROWS, Changes, Head, Readable, resumed_cycle
from penstock.server.live.subscriber import Frame, Subscriber
from penstock.server.metrics.counters import Instruments

#: Readers that come back are told what has changed since then, for so many different cycles in one step; the others
#: get a snapshot.
_MOST_RESUMED = 16


class QueryHub(Hub):
    """Reads once for each cycle, for all who follow the query."""

    kind = "query"

    def __init__(
        self,
        results: Readable,
        resume_as: int,
        signals: Signals,
        topic: Topic,
        metrics: Instruments,
        ended: Callable[[], None],
    ) -> None:
        super().__init__(signals, topic, metrics, ended)
        self._results = results
        #: The number under which streams are taken up again.
        self._query_id = resume_as
        self._head: Head | None = None
        self._keys: dict[Subscriber, frozenset[str] | None] = {}
        #: Who waits for a beginning: the cycle that each has seen, or None for a snapshot.
        self._waiting: dict[Subscriber, int | None] = {}

    def subscribe(self, keys: frozenset[str] | None, last_id: str) -> Subscriber:
        """A new reader, of all keys or some; ``last_id`` is that of the last message it has seen."""
        subscriber = Subscriber(self._rejoin, self.overrun)
        self._keys[subscriber] = keys
        self._waiting[subscriber] = resumed_cycle(self._query_id, last_id)
        self.add(subscriber)
        return subscriber

    def forget(self, subscriber: Subscriber) -> None:
        """A reader has left."""
        self._keys.pop(subscriber, None)
        self._waiting.pop(subscriber, None)

    async def step(self) -> None:
        """Read what the last cycles changed and what those who wait need, in one go."""
        waiting, self._waiting = self._waiting, {}
        following = [each for each in self._keys if each not in waiting]
        resumed = sorted({cycle for cycle in waiting.values() if cycle is not None}, reverse=True)[:_MOST_RESUMED]
        wants_snapshot = any(cycle is None or cycle not in resumed for cycle in waiting.values())
        if not following and not waiting:
            return
        try:
            moment = await self._results.read(
                self._head if following else None, resumed, snapshot=wants_snapshot, keys=self._all_keys()
            )
        except BaseException:
            self._waiting = waiting | self._waiting
            raise
        self._metrics.live_reads.add(1, self.kind)
        self._head = moment.head
        if moment.changes is not None:
            self._tell(following, moment.changes)
        elif moment.snapshot is not None and moment.begins_anew:
            self._tell(following, moment.snapshot)
        for cycle in {*waiting.values()}:
            some = [each for each, seen in waiting.items() if seen == cycle]
            caught_up = moment.caught_up.get(cycle) if cycle is not None else None
            if caught_up is not None:
                self._tell(some, caught_up)
            elif moment.snapshot is not None:
                self._tell(some, moment.snapshot)

    def _tell(self, subscribers: list[Subscriber], changes: Changes) -> None:
        whole: Frame | None = None
        for subscriber in subscribers:
            keys = self._keys.get(subscriber)
            if subscriber not in self._keys:
                continue  # left meanwhile
            if changes.is_cut:
                subscriber.offer(problem_frame(_too_many()))
                subscriber.end()
            elif keys is not None:
                some = changes.of(keys)
                if some:
                    subscriber.offer(some.frame(self._query_id))
            elif changes:
                whole = whole or changes.frame(self._query_id)
                subscriber.offer(whole)

    def _all_keys(self) -> frozenset[str] | None:
        """The keys that somebody wants; None for all."""
        wanted: set[str] = set()
        for keys in self._keys.values():
            if keys is None:
                return None
            wanted |= keys
        return frozenset(wanted)

    def _rejoin(self, subscriber: Subscriber) -> None:
        if subscriber in self._keys:
            self._waiting[subscriber] = None
            self._asked.set()


def _too_many() -> Problem:
    detail = f"there are more than {MOST_ROWS:,} windows to tell of: follow some keys only, with keys=..."
    return Problem("too-large", detail, {"limit": MOST_ROWS})

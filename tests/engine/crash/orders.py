"""What the queries under fire compute, what is pushed to them, and what has to come out of it.

Event times only rise, and no window is closed by the clock: whatever is killed and however long that takes, each event
has one window to be in, and no event is late.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Self, TypeVar

import psycopg

from penstock import Event, Stream, SyncPenstock, agg
from tests import conditions

QUEUE = "orders"
SINK = "totals"
QUERY = "orders_5s"
PARTITIONS = 4
SINK_PARTITIONS = 8
KEYS = 12
WINDOW_SECONDS = 5

_BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
_STEP = timedelta(milliseconds=20)

#: A key and when its window begins, and how many events with which sum it holds.
Totals = dict[tuple[str | None, datetime], tuple[int, Decimal]]

_Answer = TypeVar("_Answer")


def stream() -> Stream:
    return (
        Stream.from_(QUEUE)
        .window_tumbling(seconds=WINDOW_SECONDS, event_time="at", idle_flush_seconds=86_400)
        .aggregate({"events": agg.count(), "total": agg.sum("amount")})
        .to(SINK)
    )


def eventually(condition: Callable[[], _Answer], *, timeout: float = 240, what: str = "") -> _Answer:
    """Wait longer than usual, for Spark and its cluster to start."""
    return conditions.eventually(condition, what, timeout=timeout)


class Orders:
    """A queue that orders are pushed to, and an account of those whose push was answered with success."""

    def __init__(self, url: str, *, seed: int = 1) -> None:
        self.url = url
        self.pushed: Totals = {}
        self.count = 0
        self._chance = random.Random(seed)
        self._at = _BEGINNING
        self._client = SyncPenstock(url)

    def __enter__(self) -> Self:
        self._client.open()
        if not any(queue.name == QUEUE for queue in self._client.queues()):
            # Deep enough for whatever is pushed while nobody reads.
            deep = self._client.queue(QUEUE).config(max_depth_events=100_000_000)
            deep.create(partitioning="hash", partitions=PARTITIONS)
            self._client.queue(SINK).create(partitioning="hash", partitions=SINK_PARTITIONS)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def push(self, events: int) -> None:
        self._push([f"customer {self._chance.randrange(KEYS)}" for _ in range(events)])

    def push_the_end(self) -> None:
        """Orders for every partition, all in one window, so much later that all that came before is closed."""
        self._at = _window(self._at) + timedelta(seconds=100 * WINDOW_SECONDS)
        self._push([f"last {i}" for i in range(16 * PARTITIONS)])

    @contextmanager
    def pushing(self, events: int = 20, pause_seconds: float = 0.05) -> Iterator[None]:
        """Push all the time, in the background."""
        enough = threading.Event()
        problems: list[BaseException] = []

        def main() -> None:
            try:
                while not enough.wait(pause_seconds):
                    self.push(events)
            except BaseException as error:
                problems.append(error)

        thread = threading.Thread(target=main, name="pusher")
        thread.start()
        try:
            yield
        finally:
            enough.set()
            thread.join()
        assert not problems

    def copy_of_account(self) -> Totals:
        """What was pushed so far, to go back to when the database does."""
        return dict(self.pushed)

    def go_back_to(self, account: Totals) -> None:
        self.pushed = dict(account)
        self.count = sum(events for events, _ in account.values())

    def take_what_is_stored(self) -> None:
        """Begin with the orders that the queue has, as in a copy of a moment that nobody knows."""
        for event in self._stored(QUEUE, PARTITIONS):
            at = datetime.fromisoformat(event.data["at"])
            self._note(event.key, _window(at), Decimal(str(event.data["amount"])))
            self._at = max(self._at, at)
            self.count += 1

    def _push(self, keys: list[str]) -> None:
        events, seen = [], []
        for key in keys:
            self._at += _STEP
            amount = round(self._chance.random() * 100, 2)
            events.append({"key": key, "data": {"at": self._at.isoformat(), "amount": amount}})
            seen.append((key, _window(self._at), Decimal(str(amount))))
        self._client.queue(QUEUE).push(events)
        for key, window, value in seen:
            self._note(key, window, value)
        self.count += len(keys)

    def _note(self, key: str | None, window: datetime, amount: Decimal) -> None:
        count, total = self.pushed.get((key, window), (0, Decimal(0)))
        self.pushed[key, window] = (count + 1, total + amount)

    # What came of it

    def check(self) -> None:
        """Push the end, wait for it, and compare all that came out with all that went in."""
        self.push_the_end()
        eventually(lambda: self.counted() >= self.count, what=f"{self.count} events are counted")
        assert self.result() == self.pushed
        closed = {place: totals for place, totals in self.pushed.items() if not str(place[0]).startswith("last")}
        assert self.result("WHERE NOT is_open") == closed
        found = self._sunk()
        assert len(found) == len({place for place, _ in found}), "a window was emitted twice"
        assert dict(found) == closed
        assert ask(self.url, "SELECT count(*) FROM penstock.dead_letters") == 0
        assert ask(self.url, "SELECT coalesce(sum(late), 0) FROM penstock.cycles") == 0

    def result(self, where: str = "") -> Totals:
        question = f"SELECT key, window_start, events, total FROM penstock_history.{QUERY} {where}"  # noqa: S608
        rows = rows_of(self.url, question)
        found = {(key, start): (events, total) for key, start, events, total in rows}
        assert len(found) == len(rows), "a window is in the result twice"
        return found

    def counted(self) -> int:
        if ask(self.url, "SELECT to_regclass(%s)", f"penstock_history.{QUERY}") is None:
            return 0
        return int(ask(self.url, f"SELECT coalesce(sum(events), 0) FROM penstock_history.{QUERY}"))  # noqa: S608

    def _sunk(self) -> list[tuple[tuple[str | None, datetime], tuple[int, Decimal]]]:
        found = []
        for event in self._stored(SINK, SINK_PARTITIONS):
            start = datetime.fromisoformat(event.data["window_start"])
            totals = (event.data["events"], Decimal(str(event.data["total"])))
            found.append(((event.key, start), totals))
            assert event.data["key"] == event.key
        return found

    def _stored(self, queue: str, partitions: int) -> Iterator[Event]:
        for partition in range(partitions):
            offset = 0
            while events := self._client.queue(queue).fetch(str(partition), offset, 1000):
                offset += len(events)
                yield from events


def committed(url: str) -> int:
    """How many cycles with events were committed."""
    return int(ask(url, "SELECT count(*) FROM penstock.cycles WHERE committed_at IS NOT NULL AND planned > 0"))


def fence(url: str) -> int:
    return int(ask(url, "SELECT coalesce(max(fence), 0) FROM penstock.queries"))


def ask(url: str, question: str, *values: object) -> Any:
    rows = rows_of(url, question, *values)
    return rows[0][0] if rows else None


def rows_of(url: str, question: str, *values: object) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(question.encode(), values or None).fetchall()


def _window(moment: datetime) -> datetime:
    size = timedelta(seconds=WINDOW_SECONDS)
    return datetime(1970, 1, 1, tzinfo=UTC) + (moment - datetime(1970, 1, 1, tzinfo=UTC)) // size * size

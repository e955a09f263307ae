"""The pipeline of the crash tests, its input, and a check of its results.

Event times only rise, and the clock closes no window. So each event belongs to one window and none is late, whatever is
killed and however long that takes.
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

#: The number of events and their sum, by key and start of the window.
Totals = dict[tuple[str | None, datetime], tuple[int, Decimal]]

_Result = TypeVar("_Result")


def stream() -> Stream:
    return (
        Stream.from_(QUEUE)
        .window_tumbling(seconds=WINDOW_SECONDS, event_time="at", idle_flush_seconds=86_400)
        .aggregate({"events": agg.count(), "total": agg.sum("amount")})
        .to(SINK)
    )


def eventually(condition: Callable[[], _Result], *, timeout: float = 240, what: str = "") -> _Result:
    """Wait longer than usual, for Spark and its cluster to start."""
    return conditions.eventually(condition, what, timeout=timeout)


class Orders:
    """Pushes orders, and keeps the totals of those whose push was answered with success."""

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
            # Deep enough for all that is pushed while no query reads.
            deep = self._client.queue(QUEUE).config(max_depth_events=100_000_000)
            deep.create(partitioning="hash", partitions=PARTITIONS)
            self._client.queue(SINK).create(partitioning="hash", partitions=SINK_PARTITIONS)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def push(self, events: int) -> None:
        self._push([f"customer {self._chance.randrange(KEYS)}" for _ in range(events)])

    def push_last_window(self) -> None:
        """Push orders to every partition, in one window that is late enough to close all earlier ones."""
        self._at = _window(self._at) + timedelta(seconds=100 * WINDOW_SECONDS)
        self._push([f"last {i}" for i in range(16 * PARTITIONS)])

    @contextmanager
    def pushing(self, events: int = 20, pause_seconds: float = 0.05) -> Iterator[None]:
        """Push in the background until the block ends."""
        stopping = threading.Event()
        problems: list[BaseException] = []

        def main() -> None:
            try:
                while not stopping.wait(pause_seconds):
                    self.push(events)
            except BaseException as error:
                problems.append(error)

        thread = threading.Thread(target=main, name="pusher")
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()
        assert not problems

    def copy_totals(self) -> Totals:
        """Return the totals so far, for a database that is restored from a backup."""
        return dict(self.pushed)

    def restore_totals(self, totals: Totals) -> None:
        self.pushed = dict(totals)
        self.count = sum(events for events, _ in totals.values())

    def load_stored(self) -> None:
        """Begin with the orders in the queue, of a database that was restored to an unknown moment."""
        for event in self._stored(QUEUE, PARTITIONS):
            at = datetime.fromisoformat(event.data["at"])
            self._record(event.key, _window(at), Decimal(str(event.data["amount"])))
            self._at = max(self._at, at)
            self.count += 1

    def _push(self, keys: list[str]) -> None:
        events, recorded = [], []
        for key in keys:
            self._at += _STEP
            amount = round(self._chance.random() * 100, 2)
            events.append({"key": key, "data": {"at": self._at.isoformat(), "amount": amount}})
            recorded.append((key, _window(self._at), Decimal(str(amount))))
        self._client.queue(QUEUE).push(events)
        for key, window, value in recorded:
            self._record(key, window, value)
        self.count += len(keys)

    def _record(self, key: str | None, window: datetime, amount: Decimal) -> None:
        count, total = self.pushed.get((key, window), (0, Decimal(0)))
        self.pushed[key, window] = (count + 1, total + amount)

    def check(self) -> None:
        """Push the last window, wait until it is counted, and compare the results with the totals."""
        self.push_last_window()
        eventually(lambda: self.counted() >= self.count, what=f"{self.count} events are counted")
        assert self.result() == self.pushed
        closed = {window: totals for window, totals in self.pushed.items() if not str(window[0]).startswith("last")}
        assert self.result("WHERE NOT is_open") == closed
        found = self._sunk()
        assert len(found) == len({window for window, _ in found}), "a window was emitted twice"
        assert dict(found) == closed
        assert ask(self.url, "SELECT count(*) FROM penstock.dead_letters") == 0
        assert ask(self.url, "SELECT coalesce(sum(late), 0) FROM penstock.cycles") == 0

    def result(self, where: str = "") -> Totals:
        statement = f"SELECT key, window_start, events, total FROM penstock_history.{QUERY} {where}"  # noqa: S608
        rows = rows_of(self.url, statement)
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
    """Return the number of cycles with events that were committed."""
    return int(ask(url, "SELECT count(*) FROM penstock.cycles WHERE committed_at IS NOT NULL AND planned > 0"))


def fence(url: str) -> int:
    return int(ask(url, "SELECT coalesce(max(fence), 0) FROM penstock.queries"))


def ask(url: str, statement: str, *values: object) -> Any:
    rows = rows_of(url, statement, *values)
    return rows[0][0] if rows else None


def rows_of(url: str, statement: str, *values: object) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(statement.encode(), values or None).fetchall()


def _window(moment: datetime) -> datetime:
    size = timedelta(seconds=WINDOW_SECONDS)
    return datetime(1970, 1, 1, tzinfo=UTC) + (moment - datetime(1970, 1, 1, tzinfo=UTC)) // size * size

"""What was sent, added up by window: what the queries have to come to, by a few lines of Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol

from penstock.cli.demo.traffic import is_broken

#: Whose window, and when it begins, in milliseconds.
Place = tuple[str, int]


class Tally(Protocol):
    """The events of a window, added up."""

    def add(self, data: dict[str, Any]) -> None:
        """Add one."""

    def results(self) -> dict[str, Any]:
        """What the query says of them, by column."""


@dataclass(slots=True)
class _Visits:
    views: int = 0
    users: set[str] = field(default_factory=set)

    def add(self, data: dict[str, Any]) -> None:
        self.views += 1
        self.users.add(data["user"])

    def results(self) -> dict[str, Any]:
        return {"views": self.views, "users": len(self.users)}


@dataclass(slots=True)
class _Orders:
    orders: int = 0
    revenue: Decimal = Decimal(0)
    largest: Decimal = Decimal(0)

    def add(self, data: dict[str, Any]) -> None:
        amount = Decimal(str(data["amount"]))
        self.orders += 1
        self.revenue += amount
        self.largest = max(self.largest, amount)

    def results(self) -> dict[str, Any]:
        return {"orders": self.orders, "revenue": self.revenue, "largest": self.largest}


@dataclass(slots=True)
class _Readings:
    values: list[Decimal] = field(default_factory=list)

    def add(self, data: dict[str, Any]) -> None:
        self.values.append(Decimal(str(data["value"])))

    def results(self) -> dict[str, Any]:
        alerts = sum(value > 80 for value in self.values)
        return {"count": len(self.values), "min": min(self.values), "max": max(self.values), "alerts": alerts}


@dataclass(frozen=True, slots=True)
class Kept:
    """How a query keeps its windows."""

    queue: str
    size_ms: int
    slide_ms: int
    #: The field that it keeps them by.
    key: str
    #: The columns of its result that are compared.
    columns: tuple[str, ...]
    begin: Callable[[], Tally]

    def starts(self, at_ms: int) -> range:
        """When the windows begin that a moment is in."""
        return range(at_ms // self.slide_ms * self.slide_ms, at_ms - self.size_ms, -self.slide_ms)


#: The queries with windows in examples/analytics/streams.py.
KEPT = {
    "sites": Kept("clicks", 5_000, 5_000, "site", ("views", "users"), _Visits),
    "online": Kept("clicks", 60_000, 10_000, "site", ("users",), _Visits),
    "pages": Kept("clicks", 300_000, 60_000, "url", ("views",), _Visits),
    "revenue": Kept("orders", 10_000, 10_000, "customer", ("orders", "revenue", "largest"), _Orders),
    "sensors": Kept("readings", 5_000, 5_000, "sensor", ("count", "min", "max", "alerts"), _Readings),
}


@dataclass(slots=True)
class Sent:
    """What a queue has accepted, and how often it was full."""

    events: int = 0
    #: Such that have a value which is none.
    broken: int = 0
    #: Answers that said to come back later.
    refused: int = 0
    money: Decimal = Decimal(0)


class Books:
    """Everything that was accepted, for those who compare."""

    def __init__(self) -> None:
        self.sent: dict[str, Sent] = defaultdict(Sent)
        self._windows: dict[str, dict[Place, Tally]] = {query: {} for query in KEPT}

    def enter(self, queue: str, events: Iterable[dict[str, Any]]) -> None:
        """Note what a queue has accepted."""
        sent = self.sent[queue]
        for event in events:
            data = event["data"]
            sent.events += 1
            if is_broken(queue, data):
                sent.broken += 1
                continue
            if queue == "orders":
                sent.money += Decimal(str(data["amount"]))
            for query, kept in KEPT.items():
                if kept.queue == queue:
                    windows = self._windows[query]
                    for start in kept.starts(data["at"]):
                        windows.setdefault((data[kept.key], start), kept.begin()).add(data)

    def expected(self, query: str, place: Place) -> dict[str, Any] | None:
        """What a query has to say of a window; None, if nothing was sent for it."""
        tally = self._windows[query].get(place)
        if tally is None:
            return None
        results = tally.results()
        return {column: results[column] for column in KEPT[query].columns}

    def places(self, query: str) -> set[Place]:
        """The windows that were not compared yet."""
        return set(self._windows[query])

    def forget(self, query: str, place: Place) -> None:
        """A window that is closed and was compared is of no more interest."""
        self._windows[query].pop(place, None)

"""What a server process counts itself, on the path of a request: an addition each, and nothing that waits."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from starlette.types import Scope

from penstock.server.metrics.family import SECONDS, Distribution, Family, Sampled
from penstock.server.metrics.mmap_store import Board

REQUESTS = Family("penstock_http_requests", "counter", "Requests that were answered.", ("method", "route", "status"))
REQUEST_SECONDS = Family(
    "penstock_http_request_seconds",
    "histogram",
    "From a request's headers to the end of its answer.",
    ("method", "route"),
    SECONDS,
)
REQUESTS_IN_PROGRESS = Family("penstock_http_requests_in_progress", "gauge", "Requests that are being answered.")
PROBLEMS = Family("penstock_problems", "counter", "Requests that were refused, by kind of problem.", ("kind",))
BACKPRESSURE = Family(
    "penstock_backpressure",
    "counter",
    "Pushes that were told to come later: the queue is full, the producer too fast, or the server has too much to do.",
    ("reason",),
)
RECEIVED = Family("penstock_events_received", "counter", "Events in pushes that were read.", ("queue",))
ACCEPTED = Family("penstock_events_accepted", "counter", "Events that were stored.", ("queue",))
DUPLICATES = Family("penstock_events_duplicate", "counter", "Events that were stored before.", ("queue",))
REJECTED = Family("penstock_events_rejected", "counter", "Events that were refused for what is in them.", ("queue",))
DELIVERED = Family("penstock_events_delivered", "counter", "Events that were given to consumers.", ("queue",))
ACKED = Family("penstock_events_acked", "counter", "Events that consumers answered for.", ("queue", "status"))
COMMIT_SECONDS = Family(
    "penstock_commit_seconds",
    "histogram",
    "From the moment a push is whole and checked to its commit, group commit included.",
    (),
    SECONDS,
)
LIVE_SUBSCRIBERS = Family(
    "penstock_live_subscribers", "gauge", "Open streams of live results and of queues' ends.", ("kind",)
)
LIVE_READS = Family("penstock_live_reads", "counter", "Reads of the database for all subscribers together.", ("kind",))
LIVE_OVERRUNS = Family(
    "penstock_live_overruns", "counter", "Times that a subscriber was too slow and has to begin anew.", ("kind",)
)

OWN = (
    REQUESTS,
    REQUEST_SECONDS,
    REQUESTS_IN_PROGRESS,
    PROBLEMS,
    BACKPRESSURE,
    RECEIVED,
    ACCEPTED,
    DUPLICATES,
    REJECTED,
    DELIVERED,
    ACKED,
    COMMIT_SECONDS,
    LIVE_SUBSCRIBERS,
    LIVE_READS,
    LIVE_OVERRUNS,
)
_BY_NAME = {family.name: family for family in OWN}

#: The kinds of problem that mean "come again later".
_LATER = frozenset({"queue-full", "rate-limited", "overloaded"})

#: A metric has so many series in a process at the most; what comes after is counted together, under this name.
MOST_SERIES = 2_000
OTHER = "(other)"

#: Accepted events are also counted by the second, for this many seconds.
_RECENT = "recent"
_STARTED = "started"
_RECENT_SECONDS = 16
#: Over how many whole seconds the throughput is measured.
THROUGHPUT_SECONDS = 10


class Metric:
    """The series of one family in this process."""

    __slots__ = ("_board", "_bounds", "_cells", "_family", "_places", "_size")

    def __init__(self, board: Board, family: Family) -> None:
        self._board = board
        self._cells = board.cells
        self._family = family
        self._bounds = family.bounds
        self._size = len(family.bounds) + 2 if family.bounds else 1
        self._places: dict[tuple[str, ...], int] = {}

    def add(self, number: float, *labels: str) -> None:
        """Count, or move a gauge."""
        place = self._places.get(labels)
        if place is None:
            place = self._place(labels)
        self._cells[place] += number

    def observe(self, value: float, *labels: str) -> None:
        """Take note of one value of a histogram."""
        place = self._places.get(labels)
        if place is None:
            place = self._place(labels)
        cells = self._cells
        cells[place + bisect_left(self._bounds, value)] += 1
        cells[place + self._size - 1] += value

    def reset(self) -> None:
        """What the worker before left of a gauge is no longer so."""
        for name in self._board.read()[0].cells:
            family, labels = _decode(name)
            if family == self._family.name:
                self._cells[self._place(labels)] = 0

    def _place(self, labels: tuple[str, ...]) -> int:
        found: int | None = None
        if len(self._places) < MOST_SERIES:
            found = self._board.place(_encode(self._family, labels), self._size)
        if found is None:
            # Made when the process began, so there is always room for it.
            return self._board.place(_encode(self._family, (OTHER,) * len(labels)), self._size) or 0
        self._places[labels] = found
        return found


class Instruments:
    """Everything that a process counts. Handed to handlers as ``services.metrics``."""

    def __init__(self, directory: Path | None = None) -> None:
        self.board = Board(directory)
        self._metrics = {family: Metric(self.board, family) for family in OWN}
        for family in OWN:
            # With room for what does not fit later; one without labels is there from the beginning, as 0.
            self.board.place(
                _encode(family, (OTHER,) * len(family.labels)), len(family.bounds) + 2 if family.bounds else 1
            )
            if family.kind == "gauge":
                self._metrics[family].reset()
        self._requests = self._metrics[REQUESTS]
        self._request_seconds = self._metrics[REQUEST_SECONDS]
        self._in_progress = self._metrics[REQUESTS_IN_PROGRESS]
        self._problems = self._metrics[PROBLEMS]
        self._backpressure = self._metrics[BACKPRESSURE]
        self._received = self._metrics[RECEIVED]
        self._accepted = self._metrics[ACCEPTED]
        self._duplicates = self._metrics[DUPLICATES]
        self._rejected = self._metrics[REJECTED]
        self._delivered = self._metrics[DELIVERED]
        self._acked = self._metrics[ACKED]
        self._commits = self._metrics[COMMIT_SECONDS]
        self.live_subscribers = self._metrics[LIVE_SUBSCRIBERS]
        self.live_reads = self._metrics[LIVE_READS]
        self.live_overruns = self._metrics[LIVE_OVERRUNS]
        self._recent = self.board.place(_RECENT, 2 * _RECENT_SECONDS) or 0
        started = self.board.place(_STARTED) or 0
        self.board.cells[started] = self.board.cells[started] or time.time()

    def began(self) -> None:
        """A request has come."""
        self._in_progress.add(1)

    def answered(self, scope: Scope, state: Mapping[str, Any], status: int, seconds: float) -> None:
        """A request is over; status 0 is a caller who left before the answer.

        Of a stream, which lasts as long as its reader likes, the time says nothing. An address that is none has no
        route, so that nobody can make series by asking for many.
        """
        self._in_progress.add(-1)
        method, route = scope.get("method", "GET"), state.get("route", "")
        self._requests.add(1, method, route, str(status))
        if "streams" not in state and route:
            self._request_seconds.observe(seconds, method, route)
        problem = state.get("problem")
        if problem is not None:
            self._problems.add(1, problem)
            if problem in _LATER:
                self._backpressure.add(1, problem)

    def pushed(self, queue: str, *, accepted: int, duplicates: int = 0, rejected: int = 0, dropped: int = 0) -> None:
        """A push was answered: what became of its events. Those that were dropped are also counted by the database."""
        self._received.add(accepted + duplicates + rejected + dropped, queue)
        if accepted:
            self._accepted.add(accepted, queue)
            self._add_recent(accepted)
        if duplicates:
            self._duplicates.add(duplicates, queue)
        if rejected:
            self._rejected.add(rejected, queue)

    def committed(self, seconds: float) -> None:
        """A push was committed, so long after it was whole."""
        self._commits.observe(seconds)

    def delivered(self, queue: str, events: int) -> None:
        """Events went to a consumer."""
        self._delivered.add(events, queue)

    def acked(self, queue: str, status: str, events: int) -> None:
        """A consumer said of events what became of them."""
        self._acked.add(events, queue, status)

    def throughput(self) -> float:
        """Events accepted per second by all workers, over the last whole seconds."""
        now = int(time.time())
        lately = 0.0
        for board in self.board.read():
            cells = board.cells.get(_RECENT, [])
            lately += sum(
                events
                for second, events in zip(cells[::2], cells[1::2], strict=True)
                if now - THROUGHPUT_SECONDS <= second < now
            )
        return lately / min(THROUGHPUT_SECONDS, max(1.0, self.uptime()))

    def uptime(self) -> float:
        """Seconds since the first worker began."""
        return time.time() - min(board.cells[_STARTED][0] for board in self.board.read() if _STARTED in board.cells)

    def workers(self) -> int:
        """How many processes serve."""
        return sum(board.is_alive for board in self.board.read())

    def sampled(self) -> list[Sampled]:
        """The metrics of all workers together."""
        sums: dict[str, list[float]] = {}
        for board in self.board.read():
            for name, values in board.cells.items():
                family = _BY_NAME.get(_decode(name)[0])
                # What is under way ends with its process; what was counted stays.
                if family is not None and (board.is_alive or family.kind != "gauge"):
                    known = sums.get(name)
                    sums[name] = values if known is None else [a + b for a, b in zip(known, values, strict=True)]
        samples: dict[str, dict[tuple[str, ...], float | Distribution]] = {family.name: {} for family in OWN}
        for name, values in sums.items():
            found, labels = _decode(name)
            # A series with labels that has never counted anything is the room that was set aside.
            if any(values) or not labels:
                samples[found][labels] = _value(_BY_NAME[found], values)
        return [Sampled(family, samples[family.name]) for family in OWN]

    def _add_recent(self, events: int) -> None:
        second = int(time.time())
        cells, place = self.board.cells, self._recent + 2 * (second % _RECENT_SECONDS)
        if cells[place] != second:
            cells[place] = second
            cells[place + 1] = 0
        cells[place + 1] += events


def _value(family: Family, values: Sequence[float]) -> float | Distribution:
    return Distribution(values[:-1], values[-1]) if family.bounds else values[0]


def _encode(family: Family, labels: tuple[str, ...]) -> str:
    return msgspec.json.encode((family.name, *labels)).decode()


def _decode(name: str) -> tuple[str, tuple[str, ...]]:
    if name in (_RECENT, _STARTED):
        return name, ()
    family, *labels = msgspec.json.decode(name)
    return family, tuple(labels)

"""Counters of the server processes. Requests update them by additions in memory that never wait."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from starlette.types import Scope

from penstock.server.metrics.counter_file import CounterFile
from penstock.server.metrics.family import (
    LATENCY_BUCKETS,
    HistogramValue,
    MetricFamily,
    Samples,
    counter,
    gauge,
    histogram,
)

REQUESTS = counter("http_requests", "Requests answered.", "method", "route", "status")
REQUEST_SECONDS = histogram(
    "http_request_seconds",
    "Time from the headers of a request to the end of its response.",
    LATENCY_BUCKETS,
    "method",
    "route",
)
REQUESTS_IN_PROGRESS = gauge("http_requests_in_progress", "Requests in progress.")
PROBLEMS = counter("problems", "Requests refused, by problem type.", "kind")
BACKPRESSURE = counter(
    "backpressure",
    "Requests told to retry later: the queue is full, the producer exceeds its rate, or the server is overloaded.",
    "reason",
)
RECEIVED = counter("events_received", "Events received in pushes.", "queue")
ACCEPTED = counter("events_accepted", "Events stored.", "queue")
DUPLICATES = counter("events_duplicate", "Events whose id was stored before.", "queue")
REJECTED = counter("events_rejected", "Events refused because they are invalid.", "queue")
DELIVERED = counter("events_delivered", "Events delivered to consumers.", "queue")
ACKED = counter("events_acked", "Events acknowledged, by status.", "queue", "status")
COMMIT_SECONDS = histogram(
    "commit_seconds", "Time from a complete, validated push to its commit, group commit included.", LATENCY_BUCKETS
)
LIVE_SUBSCRIBERS = gauge("live_subscribers", "Open live streams of query results and of queues.", "kind")
LIVE_READS = counter("live_reads", "Database reads for live streams; one read serves all subscribers.", "kind")
LIVE_OVERRUNS = counter("live_overruns", "Times a live subscriber was too slow and had to restart.", "kind")

#: All metrics of this module.
PROCESS_FAMILIES = tuple(each for each in list(vars().values()) if isinstance(each, MetricFamily))
_BY_NAME = {family.name: family for family in PROCESS_FAMILIES}

#: Problem types that ask the client to retry later.
_RETRY_LATER = frozenset({"queue-full", "rate-limited", "overloaded"})

#: Series per metric and process. Further label values are counted together, under OTHER_LABEL.
MAX_SERIES = 2_000
OTHER_LABEL = "(other)"

#: Accepted events per second, in a ring of (second, events) pairs.
_ACCEPTED_BY_SECOND = "recent"
_RING_SECONDS = 16
_STARTED_AT = "started"
#: Number of whole seconds over which the throughput is measured.
THROUGHPUT_SECONDS = 10


class SeriesFamily:
    __slots__ = ("_bounds", "_cells", "_family", "_file", "_indexes", "_size")

    def __init__(self, file: CounterFile, family: MetricFamily) -> None:
        self._file = file
        self._cells = file.cells
        self._family = family
        self._bounds = family.bounds
        self._size = _cell_count(family)
        self._indexes: dict[tuple[str, ...], int] = {}

    def add(self, number: float, *labels: str) -> None:
        """Increase a counter, or change a gauge."""
        index = self._indexes.get(labels)
        if index is None:
            index = self._index(labels)
        self._cells[index] += number

    def observe(self, value: float, *labels: str) -> None:
        """Add an observation to a histogram."""
        index = self._indexes.get(labels)
        if index is None:
            index = self._index(labels)
        cells = self._cells
        cells[index + bisect_left(self._bounds, value)] += 1
        cells[index + self._size - 1] += value

    def reset(self) -> None:
        """Set all series to 0: the file may hold gauges of the worker that had it before."""
        for name in self._file.read_own().cells:
            family, labels = _decode(name)
            if family == self._family.name:
                self._cells[self._index(labels)] = 0

    def _index(self, labels: tuple[str, ...]) -> int:
        index: int | None = None
        if len(self._indexes) < MAX_SERIES:
            index = self._file.allocate(_encode(self._family, labels), self._size)
        if index is None:
            # ServerMetrics allocates this series at the start, so it always exists.
            return self._file.allocate(_encode(self._family, (OTHER_LABEL,) * len(labels)), self._size) or 0
        self._indexes[labels] = index
        return index


class ServerMetrics:
    """All counters of this process, and the totals of all worker processes."""

    def __init__(self, directory: Path | None = None) -> None:
        self._file = CounterFile(directory)
        series = {family: SeriesFamily(self._file, family) for family in PROCESS_FAMILIES}
        for family in PROCESS_FAMILIES:
            # The overflow series; for a metric without labels this is its only series, so a scrape shows it as 0.
            self._file.allocate(_encode(family, (OTHER_LABEL,) * len(family.labels)), _cell_count(family))
            if family.kind == "gauge":
                series[family].reset()
        self._requests = series[REQUESTS]
        self._request_seconds = series[REQUEST_SECONDS]
        self.requests_in_progress = series[REQUESTS_IN_PROGRESS]
        self._problems = series[PROBLEMS]
        self._backpressure = series[BACKPRESSURE]
        self._received = series[RECEIVED]
        self._accepted = series[ACCEPTED]
        self._duplicates = series[DUPLICATES]
        self._rejected = series[REJECTED]
        self.delivered = series[DELIVERED]
        self.acked = series[ACKED]
        self.commits = series[COMMIT_SECONDS]
        self.live_subscribers = series[LIVE_SUBSCRIBERS]
        self.live_reads = series[LIVE_READS]
        self.live_overruns = series[LIVE_OVERRUNS]
        self._ring = self._file.allocate(_ACCEPTED_BY_SECOND, 2 * _RING_SECONDS) or 0
        started = self._file.allocate(_STARTED_AT) or 0
        self._file.cells[started] = self._file.cells[started] or time.time()

    def close(self) -> None:
        """Release the counter file for another worker."""
        self._file.close()

    def count_response(self, scope: Scope, state: Mapping[str, Any], status: int, seconds: float) -> None:
        """Count a finished request. Status 0 means that the client disconnected before the response.

        The duration of a live stream is not observed: it says nothing about the server. An unknown address has no
        route, so that clients cannot create series by requesting many addresses.
        """
        self.requests_in_progress.add(-1)
        method, route = scope.get("method", "GET"), state.get("route", "")
        self._requests.add(1, method, route, str(status))
        if "streams" not in state and route:
            self._request_seconds.observe(seconds, method, route)
        problem = state.get("problem")
        if problem is not None:
            self._problems.add(1, problem)
            if problem in _RETRY_LATER:
                self._backpressure.add(1, problem)

    def count_push(
        self, queue: str, *, accepted: int, duplicates: int = 0, rejected: int = 0, dropped: int = 0
    ) -> None:
        """Count the events of a push. The database counts dropped events."""
        self._received.add(accepted + duplicates + rejected + dropped, queue)
        if accepted:
            self._accepted.add(accepted, queue)
            self._add_recent(accepted)
        if duplicates:
            self._duplicates.add(duplicates, queue)
        if rejected:
            self._rejected.add(rejected, queue)

    def throughput(self) -> float:
        """Return the events per second that all workers accepted in the last whole seconds."""
        now = int(time.time())
        recent = 0.0
        for worker in self._file.read_all():
            ring = worker.cells.get(_ACCEPTED_BY_SECOND, [])
            recent += sum(
                events
                for second, events in zip(ring[::2], ring[1::2], strict=True)
                if now - THROUGHPUT_SECONDS <= second < now
            )
        return recent / min(THROUGHPUT_SECONDS, max(1.0, self.uptime()))

    def uptime(self) -> float:
        """Return the seconds since the first worker started."""
        started = [worker.cells[_STARTED_AT] for worker in self._file.read_all() if _STARTED_AT in worker.cells]
        return time.time() - min(at for (at,) in started)

    def workers(self) -> int:
        """Return the number of live worker processes."""
        return sum(worker.is_alive for worker in self._file.read_all())

    def collect(self) -> Samples:
        """Return the metrics of all workers, added up."""
        sums: dict[str, list[float]] = {}
        for worker in self._file.read_all():
            for name, values in worker.cells.items():
                family = _BY_NAME.get(_decode(name)[0])
                # Counts outlive their process, gauges do not.
                if family is not None and (worker.is_alive or family.kind != "gauge"):
                    known = sums.get(name)
                    sums[name] = values if known is None else [a + b for a, b in zip(known, values, strict=True)]
        samples: dict[MetricFamily, dict[tuple[str, ...], float | HistogramValue]] = {
            family: {} for family in PROCESS_FAMILIES
        }
        for name, values in sums.items():
            family_name, labels = _decode(name)
            # An overflow series that was never used is not shown.
            if any(values) or not labels:
                family = _BY_NAME[family_name]
                samples[family][labels] = HistogramValue(values[:-1], values[-1]) if family.bounds else values[0]
        return samples

    def _add_recent(self, events: int) -> None:
        second = int(time.time())
        cells, index = self._file.cells, self._ring + 2 * (second % _RING_SECONDS)
        if cells[index] != second:
            cells[index] = second
            cells[index + 1] = 0
        cells[index + 1] += events


def _cell_count(family: MetricFamily) -> int:
    """Cells of a series: one per bucket, one for +Inf and one for the sum; one for a counter or a gauge."""
    return len(family.bounds) + 2 if family.bounds else 1


def _encode(family: MetricFamily, labels: tuple[str, ...]) -> str:
    return msgspec.json.encode((family.name, *labels)).decode()


def _decode(name: str) -> tuple[str, tuple[str, ...]]:
    if name in (_ACCEPTED_BY_SECOND, _STARTED_AT):
        return name, ()
    family, *labels = msgspec.json.decode(name)
    return family, tuple(labels)

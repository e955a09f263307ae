"""Snapshots of the metrics over the last minutes, for the overview."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypeAlias

from psycopg.rows import class_row

from penstock.db.pool import Connection, Database
from penstock.db.statements import Statements
from penstock.server.metrics import database as database_metrics
from penstock.server.metrics.database import DatabaseMetrics, DatabaseSamples
from penstock.server.metrics.family import HistogramValue, MetricFamily

_sql = Statements("penstock.console.data", "overview_history.sql")

#: Number of snapshots in memory: five minutes at one per second.
MAX_SNAPSHOTS = 300
#: Resolution of the history that is read from the ledgers of queries.
_LEDGER_STEP_SECONDS = 5.0
#: Two snapshots further apart than this are not compared: polling paused in between.
_MAX_GAP_SECONDS = 15.0

LabelValues: TypeAlias = Mapping[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class _QueueRow:
    name: str
    max_depth_events: int | None
    is_output: bool


@dataclass(frozen=True, slots=True)
class _FiringRow:
    rule: str
    key: str
    since: datetime
    total: int


@dataclass(frozen=True, slots=True)
class _FailedQueryRow:
    name: str
    error: str


@dataclass(frozen=True, slots=True)
class _FailingSinkRow:
    queue: str
    sink: str
    error: str
    is_resting: bool


class SinkFailure(NamedTuple):
    """The error of a sink's last attempt, and whether its circuit breaker is open."""

    error: str
    is_resting: bool


@dataclass(frozen=True)
class OverviewSnapshot:
    """The metrics and failures at one time."""

    #: Milliseconds since the epoch.
    at: int
    samples: DatabaseSamples
    #: The maximum depth of each queue.
    limits: Mapping[str, int | None]
    #: The queues that queries and rules write to.
    output_queues: frozenset[str]
    #: The newest firing alerts, as rule and key, and the number of all firing alerts.
    firing: list[tuple[str, str]]
    firing_count: int
    #: The error of each query whose last cycle failed.
    failed_queries: Mapping[str, str]
    #: The sinks whose last attempt failed, by queue and group.
    failing_sinks: Mapping[tuple[str, str], SinkFailure]

    def values(self, family: MetricFamily) -> LabelValues:
        """Return the values of a metric by its labels."""
        sampled = self.samples.sampled.get(family)
        samples = {} if sampled is None else sampled.samples
        return {labels: value for labels, value in samples.items() if not isinstance(value, HistogramValue)}

    def histograms(self, family: MetricFamily) -> Mapping[tuple[str, ...], HistogramValue]:
        """Return the histograms of a metric by its labels."""
        sampled = self.samples.sampled.get(family)
        samples = {} if sampled is None else sampled.samples
        return {labels: value for labels, value in samples.items() if isinstance(value, HistogramValue)}


@dataclass(frozen=True, slots=True)
class OverviewPoint:
    """The values of the overview at one time. Unknown values are None."""

    at: int
    pushed: float | None
    read: float | None
    results: float | None
    freshness: float | None
    backlog: float | None
    dead: float | None
    firing: float | None


@dataclass(frozen=True, slots=True)
class LedgerPoint:
    """Throughput and freshness of all queries in one step of the past, from their ledgers."""

    at: int
    events_in: float
    events_out: float
    freshness: float | None


class OverviewHistory:
    """Takes snapshots and keeps the last ones."""

    def __init__(self, database: Database, source: DatabaseMetrics) -> None:
        self._database = database
        self._source = source
        self.snapshots: deque[OverviewSnapshot] = deque(maxlen=MAX_SNAPSHOTS)
        #: The minutes before the first snapshot.
        self.ledger_points: list[LedgerPoint] = []

    async def refresh(self) -> deque[OverviewSnapshot]:
        """Add a snapshot if there are new samples, and return all snapshots, oldest first."""
        samples = await self._source.read()
        if not self.snapshots or self.snapshots[-1].samples.at != samples.at:
            async with self._database.connection() as conn:
                if not self.snapshots:
                    self.ledger_points = await _read_ledgers(conn)
                self.snapshots.append(await _take_snapshot(conn, samples))
        return self.snapshots


async def _read_ledgers(conn: Connection) -> list[LedgerPoint]:
    cursor = conn.cursor(row_factory=class_row(LedgerPoint))
    await cursor.execute(_sql["ledger_points"], {"step": _LEDGER_STEP_SECONDS, "seconds": MAX_SNAPSHOTS})
    return await cursor.fetchall()


async def _take_snapshot(conn: Connection, samples: DatabaseSamples) -> OverviewSnapshot:
    queues = await (await conn.cursor(row_factory=class_row(_QueueRow)).execute(_sql["queues"])).fetchall()
    firing = await (await conn.cursor(row_factory=class_row(_FiringRow)).execute(_sql["firing"])).fetchall()
    failed = await (
        await conn.cursor(row_factory=class_row(_FailedQueryRow)).execute(_sql["failed_queries"])
    ).fetchall()
    sinks = await (await conn.cursor(row_factory=class_row(_FailingSinkRow)).execute(_sql["failing_sinks"])).fetchall()
    return OverviewSnapshot(
        int(time.time() * 1000),
        samples,
        limits={queue.name: queue.max_depth_events for queue in queues},
        output_queues=frozenset(queue.name for queue in queues if queue.is_output),
        firing=[(alert.rule, alert.key) for alert in firing],
        firing_count=firing[0].total if firing else 0,
        failed_queries={query.name: query.error for query in failed},
        failing_sinks={(sink.queue, sink.sink): SinkFailure(sink.error, sink.is_resting) for sink in sinks},
    )


def compute_point(
    before: OverviewSnapshot | None, now: OverviewSnapshot, can_see: Callable[[str], bool], can_see_all: bool
) -> OverviewPoint:
    """Return the values of a snapshot for a viewer. Rates are those since the snapshot before."""
    if before is not None and not 0 < now.at - before.at <= _MAX_GAP_SECONDS * 1000:
        before = None
    lags = _visible(now.values(database_metrics.GROUP_LAG), can_see)
    return OverviewPoint(
        now.at,
        pushed=_rate(before, now, lambda snapshot: _pushed(snapshot, can_see)),
        read=_rate(before, now, lambda snapshot: _read(snapshot, can_see)),
        results=_rate(before, now, lambda snapshot: snapshot.values(database_metrics.QUERY_OUTPUTS))
        if can_see_all
        else None,
        freshness=_mean_freshness(before, now) if can_see_all else None,
        backlog=sum(lags.values()),
        dead=sum(_visible(now.values(database_metrics.DEAD_LETTERS), can_see).values()),
        firing=now.firing_count if can_see_all else 0,
    )


def _visible(values: LabelValues, can_see: Callable[[str], bool]) -> LabelValues:
    """Return the values whose first label is a queue that the viewer can see."""
    return {labels: value for labels, value in values.items() if can_see(labels[0])}


def _pushed(snapshot: OverviewSnapshot, can_see: Callable[[str], bool]) -> LabelValues:
    """Return the number of events that producers, not queries or rules, have appended to each queue."""
    appended = _visible(snapshot.values(database_metrics.QUEUE_APPENDED), can_see)
    return {(queue,): value for (queue,), value in appended.items() if queue not in snapshot.output_queues}


def _read(snapshot: OverviewSnapshot, can_see: Callable[[str], bool]) -> LabelValues:
    """Return the number of events that each group has read."""
    appended = snapshot.values(database_metrics.QUEUE_APPENDED)
    lags = _visible(snapshot.values(database_metrics.GROUP_LAG), can_see)
    return {(queue, group): appended.get((queue,), 0.0) - lag for (queue, group), lag in lags.items()}


def _rate(
    before: OverviewSnapshot | None, now: OverviewSnapshot, count: Callable[[OverviewSnapshot], LabelValues]
) -> float | None:
    """Return the growth per second of the sum of counters."""
    if before is None:
        return None
    earlier = count(before)
    # A counter decreases if a group seeks backwards or a queue is created again. It then adds nothing.
    growth = sum(max(0.0, value - earlier[labels]) for labels, value in count(now).items() if labels in earlier)
    return growth / (now.at - before.at) * 1000


def _mean_freshness(before: OverviewSnapshot | None, now: OverviewSnapshot) -> float | None:
    """Return the mean freshness of the cycles that were committed between two snapshots."""
    if before is None:
        return None
    cycles = seconds = 0.0
    earlier = before.histograms(database_metrics.FRESHNESS)
    for labels, histogram in now.histograms(database_metrics.FRESHNESS).items():
        last = earlier.get(labels)
        if last is not None:
            cycles += sum(histogram.counts) - sum(last.counts)
            seconds += histogram.sum - last.sum
    return max(0.0, seconds / cycles) if cycles > 0 else None

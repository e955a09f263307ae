"""Snapshots of the metrics over the last minutes, for the overview."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, cast

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
        """Return the values of a metric, which is no histogram, by its labels."""
        sampled = self.samples.sampled.get(family)
        return {} if sampled is None else cast(LabelValues, sampled.samples)

    def histograms(self, family: MetricFamily) -> Mapping[tuple[str, ...], HistogramValue]:
        """Return the histograms of a metric by its labels."""
        sampled = self.samples.sampled.get(family)
        return {} if sampled is None else cast(Mapping[tuple[str, ...], HistogramValue], sampled.samples)

    def events_read(self) -> LabelValues:
        """Return the number of events that each group has read, by queue and group."""
        appended = self.values(database_metrics.QUEUE_APPENDED)
        lags = self.values(database_metrics.GROUP_LAG)
        return {(queue, group): appended.get((queue,), 0.0) - lag for (queue, group), lag in lags.items()}


@dataclass(frozen=True, slots=True)
class OverviewPoint:
    """The values of the overview at one time. Unknown values are None."""

    at: int
    pushed: float | None = None
    read: float | None = None
    results: float | None = None
    freshness: float | None = None
    backlog: float | None = None
    dead: float | None = None
    firing: float | None = None


class OverviewHistory:
    """Takes snapshots and keeps the last ones."""

    def __init__(self, database: Database, source: DatabaseMetrics) -> None:
        self._database = database
        self._source = source
        self._lock = asyncio.Lock()
        self.snapshots: deque[OverviewSnapshot] = deque(maxlen=MAX_SNAPSHOTS)
        #: The minutes before the first snapshot. Only the ledgers of queries go back that far.
        self.ledger_points: list[OverviewPoint] = []

    async def refresh(self) -> deque[OverviewSnapshot]:
        """Add a snapshot if there are new samples, and return all snapshots, oldest first."""
        # Several pollers read the snapshots. A second snapshot of the same samples would look like a rate of 0.
        async with self._lock:
            samples = await self._source.read()
            if not self.snapshots or self.snapshots[-1].samples.at != samples.at:
                async with self._database.connection() as conn:
                    if not self.snapshots:
                        self.ledger_points = await _read_ledgers(conn)
                    self.snapshots.append(await _take_snapshot(conn, samples))
        return self.snapshots


async def _read_ledgers(conn: Connection) -> list[OverviewPoint]:
    cursor = conn.cursor(row_factory=class_row(OverviewPoint))
    await cursor.execute(_sql["ledger_points"], {"step": _LEDGER_STEP_SECONDS, "seconds": MAX_SNAPSHOTS})
    return await cursor.fetchall()


async def _take_snapshot(conn: Connection, samples: DatabaseSamples) -> OverviewSnapshot:
    queues = await (await conn.execute(_sql["queues"])).fetchall()
    firing = await (await conn.execute(_sql["firing"])).fetchall()
    failed_queries = await (await conn.execute(_sql["failed_queries"])).fetchall()
    failing_sinks = await (await conn.execute(_sql["failing_sinks"])).fetchall()
    return OverviewSnapshot(
        int(time.time() * 1000),
        samples,
        limits={queue: max_depth for queue, max_depth, _ in queues},
        output_queues=frozenset(queue for queue, _, is_output in queues if is_output),
        firing=[(rule, key) for rule, key, _ in firing],
        firing_count=next((total for _, _, total in firing), 0),
        failed_queries=dict(failed_queries),
        failing_sinks={(queue, sink): SinkFailure(error, resting) for queue, sink, error, resting in failing_sinks},
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
        read=_rate(before, now, lambda snapshot: _visible(snapshot.events_read(), can_see)),
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

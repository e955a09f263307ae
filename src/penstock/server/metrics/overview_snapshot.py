"""A snapshot of the metrics of the database, with the failures that the overview lists."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, cast

from penstock.db.pool import Connection
from penstock.db.statements import Statements
from penstock.server.metrics import database_metrics
from penstock.server.metrics.database_metrics import DatabaseSamples
from penstock.server.metrics.family import HistogramValue, MetricFamily

_sql = Statements("penstock.server.metrics", "overview_snapshot.sql")

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
    #: The queries that have ended and were not stopped.
    ended_queries: frozenset[str]
    #: The sinks whose last attempt failed, by queue and group.
    failing_sinks: Mapping[tuple[str, str], SinkFailure]

    def values(self, family: MetricFamily) -> LabelValues:
        """Return the values of a metric, which is no histogram, by its labels."""
        return cast(LabelValues, self.samples.sampled.get(family, {}))

    def histograms(self, family: MetricFamily) -> Mapping[tuple[str, ...], HistogramValue]:
        return cast(Mapping[tuple[str, ...], HistogramValue], self.samples.sampled.get(family, {}))

    def events_read(self) -> LabelValues:
        """Return the number of events that each group has read, by queue and group."""
        appended = self.values(database_metrics.QUEUE_APPENDED)
        lags = self.values(database_metrics.GROUP_LAG)
        return {(queue, group): appended.get((queue,), 0.0) - lag for (queue, group), lag in lags.items()}


async def take_snapshot(conn: Connection, samples: DatabaseSamples) -> OverviewSnapshot:
    """Add the failures of this moment to the samples."""
    queues = await (await conn.execute(_sql["queues"])).fetchall()
    firing = await (await conn.execute(_sql["firing"])).fetchall()
    failed_queries = await (await conn.execute(_sql["failed_queries"])).fetchall()
    ended_queries = await (await conn.execute(_sql["ended_queries"])).fetchall()
    failing_sinks = await (await conn.execute(_sql["failing_sinks"])).fetchall()
    return OverviewSnapshot(
        int(time.time() * 1000),
        samples,
        limits={queue: max_depth for queue, max_depth, _ in queues},
        output_queues=frozenset(queue for queue, _, is_output in queues if is_output),
        firing=[(rule, key) for rule, key, _ in firing],
        firing_count=next((total for _, _, total in firing), 0),
        failed_queries=dict(failed_queries),
        ended_queries=frozenset(query for (query,) in ended_queries),
        failing_sinks={(queue, sink): SinkFailure(error, resting) for queue, sink, error, resting in failing_sinks},
    )

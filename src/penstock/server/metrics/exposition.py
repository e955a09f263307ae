"""A snapshot of all metrics, and its Prometheus text format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any, cast

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from penstock.server.metrics import database_metrics
from penstock.server.metrics.counters import PROCESS_FAMILIES, ServerMetrics
from penstock.server.metrics.database_metrics import DATABASE_FAMILIES, DatabaseMetrics
from penstock.server.metrics.family import HistogramValue, LabelledValues, MetricFamily, Samples, gauge

UPTIME = gauge("uptime_seconds", "Time since the server started.")
WORKERS = gauge("workers", "Live worker processes.")
THROUGHPUT = gauge("events_accepted_per_second", "Events accepted per second in the last ten seconds.")
DATABASE = gauge("database_reachable", "1 if the database answered all statements of this scrape, else 0.")
DATABASE_SECONDS = gauge("database_scrape_seconds", "Time that the database took for the statements of a scrape.")

_PROMETHEUS_TYPES = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
ALL_FAMILIES = (UPTIME, WORKERS, THROUGHPUT, DATABASE, DATABASE_SECONDS, *PROCESS_FAMILIES, *DATABASE_FAMILIES)


class MetricsSnapshot:
    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def __getitem__(self, family: MetricFamily) -> LabelledValues:
        return self.samples.get(family, {})

    def restrict(self, can_see: Callable[[str], bool]) -> MetricsSnapshot:
        """Return a snapshot for a caller limited to some queues: no series of other queues, and none of queries."""
        return MetricsSnapshot(
            {
                family: {
                    labels: value
                    for labels, value in values.items()
                    if "queue" not in family.labels or can_see(labels[family.labels.index("queue")])
                }
                for family, values in self.samples.items()
                if "query" not in family.labels
            }
        )

    def total(self, family: MetricFamily) -> float:
        """Return the sum over all series of a metric; histograms do not count."""
        return sum(value for value in self[family].values() if not isinstance(value, HistogramValue))


async def take_snapshot(process: ServerMetrics, database: DatabaseMetrics) -> MetricsSnapshot:
    """Collect all metrics. An unreachable database is reported as a metric, not as an error."""
    stored = await database.read()
    server = {
        UPTIME: process.uptime(),
        WORKERS: process.workers(),
        THROUGHPUT: process.throughput(),
        DATABASE: int(stored.is_complete),
        DATABASE_SECONDS: stored.seconds,
    }
    return MetricsSnapshot(
        {**{family: {(): value} for family, value in server.items()}, **process.collect(), **stored.sampled}
    )


def render_text(snapshot: MetricsSnapshot, accept: str) -> tuple[bytes, str]:
    """Return the metrics in the Prometheus format that the ``Accept`` header asks for, and its media type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_SnapshotCollector(snapshot))
    encoder, media_type = choose_encoder(accept)
    return encoder(registry), media_type


class _SnapshotCollector(Collector):
    def __init__(self, snapshot: MetricsSnapshot) -> None:
        self._snapshot = snapshot

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        for family, values in self._snapshot.samples.items():
            yield _to_prometheus(family, values)


def _to_prometheus(family: MetricFamily, values: LabelledValues) -> Metric:
    metric: Any = _PROMETHEUS_TYPES[family.kind](family.name, family.help, labels=family.labels)
    bounds = [*(f"{bound:g}" for bound in family.bounds), "+Inf"]
    for labels, value in values.items():
        if isinstance(value, HistogramValue):
            buckets = list(zip(bounds, accumulate(value.counts), strict=True))
            metric.add_metric(labels, buckets, sum_value=value.sum)
        else:
            metric.add_metric(labels, value)
    return cast(Metric, metric)


def queue_depths(snapshot: MetricsSnapshot) -> dict[str, int]:
    """Return for each queue the lag of the slowest group that counts for its depth."""
    depths = {queue: 0 for (queue,) in snapshot[database_metrics.QUEUE_DEPTH]}
    counts = snapshot[database_metrics.GROUP_COUNTS]
    for (queue, group), lag in snapshot[database_metrics.GROUP_LAG].items():
        if counts.get((queue, group)) and not isinstance(lag, HistogramValue):
            depths[queue] = max(depths.get(queue, 0), int(lag))
    return depths


def total_dropped(snapshot: MetricsSnapshot) -> float:
    """Return the events dropped by full queues with overflow="shed" and by retention."""
    return snapshot.total(database_metrics.QUEUE_SHED) + snapshot.total(database_metrics.GROUP_DROPPED)

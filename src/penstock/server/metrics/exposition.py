"""A snapshot of all metrics, and its Prometheus text format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from penstock.server.metrics import database as database_metrics
from penstock.server.metrics.counters import PROCESS_FAMILIES, ServerMetrics
from penstock.server.metrics.database import DATABASE_FAMILIES, DatabaseMetrics
from penstock.server.metrics.family import HistogramValue, MetricFamily, MetricSamples

UPTIME = MetricFamily("penstock_uptime_seconds", "gauge", "Time since the server started.")
WORKERS = MetricFamily("penstock_workers", "gauge", "Live worker processes.")
THROUGHPUT = MetricFamily(
    "penstock_events_accepted_per_second", "gauge", "Events accepted per second in the last ten seconds."
)
DATABASE = MetricFamily(
    "penstock_database_reachable", "gauge", "1 if the database answered all statements of this scrape, else 0."
)
DATABASE_SECONDS = MetricFamily(
    "penstock_database_scrape_seconds", "gauge", "Time that the database took for the statements of a scrape."
)

ALL_FAMILIES = (UPTIME, WORKERS, THROUGHPUT, DATABASE, DATABASE_SECONDS, *PROCESS_FAMILIES, *DATABASE_FAMILIES)


class MetricsSnapshot:
    def __init__(self, samples: Iterable[MetricSamples]) -> None:
        self._samples = {each.family: each for each in samples}

    def __getitem__(self, family: MetricFamily) -> MetricSamples:
        return self._samples.get(family) or MetricSamples(family)

    def __iter__(self) -> Iterator[MetricSamples]:
        return iter(self._samples.values())

    def restrict(self, can_see: Callable[[str], bool]) -> MetricsSnapshot:
        """Return a snapshot for a caller limited to some queues: no series of other queues, and none of queries."""
        return MetricsSnapshot(
            MetricSamples(each.family, _visible(each, can_see)) for each in self if "query" not in each.family.labels
        )

    def total(self, family: MetricFamily) -> float:
        """Return the sum over all series of a metric; histograms do not count."""
        return sum(value for value in self[family].samples.values() if not isinstance(value, HistogramValue))


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
        [
            *[MetricSamples(family, {(): value}) for family, value in server.items()],
            *process.collect(),
            *stored.sampled.values(),
        ]
    )


def _visible(
    samples: MetricSamples, can_see: Callable[[str], bool]
) -> Mapping[tuple[str, ...], float | HistogramValue]:
    if "queue" not in samples.family.labels:
        return samples.samples
    index = samples.family.labels.index("queue")
    return {labels: value for labels, value in samples.samples.items() if can_see(labels[index])}


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
        for samples in self._snapshot:
            yield _to_prometheus(samples)


def _to_prometheus(samples: MetricSamples) -> Metric:
    family = samples.family
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        names = [*(f"{bound:g}" for bound in family.bounds), "+Inf"]
        for labels, value in samples.samples.items():
            if isinstance(value, HistogramValue):
                buckets = list(zip(names, accumulate(value.counts), strict=True))
                histogram.add_metric(labels, buckets, sum_value=value.sum)
        return histogram
    metric: CounterMetricFamily | GaugeMetricFamily = (
        CounterMetricFamily(family.name, family.help, labels=family.labels)
        if family.kind == "counter"
        else GaugeMetricFamily(family.name, family.help, labels=family.labels)
    )
    for labels, value in samples.samples.items():
        if not isinstance(value, HistogramValue):
            metric.add_metric(labels, value)
    return metric


def queue_depths(snapshot: MetricsSnapshot) -> dict[str, int]:
    """Return for each queue the lag of the slowest group that counts for its depth."""
    depths = {queue: 0 for (queue,) in snapshot[database_metrics.QUEUE_DEPTH].samples}
    counts = snapshot[database_metrics.GROUP_COUNTS].samples
    for (queue, group), lag in snapshot[database_metrics.GROUP_LAG].samples.items():
        if counts.get((queue, group)) and not isinstance(lag, HistogramValue):
            depths[queue] = max(depths.get(queue, 0), int(lag))
    return depths


def total_dropped(snapshot: MetricsSnapshot) -> float:
    """Return the events dropped by full queues with overflow="shed" and by retention."""
    return snapshot.total(database_metrics.QUEUE_SHED) + snapshot.total(database_metrics.GROUP_DROPPED)

"""All metrics of the moment, those of the processes and those that the database knows, as text or as a document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from penstock.server.metrics import database as database_metrics
from penstock.server.metrics.counters import OWN
from penstock.server.metrics.database import STORED, Read
from penstock.server.metrics.family import Distribution, Family, Sampled

if TYPE_CHECKING:
    from penstock.server.services import Services

UPTIME = Family("penstock_uptime_seconds", "gauge", "Since the server was started.")
WORKERS = Family("penstock_workers", "gauge", "Processes that serve.")
THROUGHPUT = Family(
    "penstock_events_accepted_per_second", "gauge", "Events that were accepted per second, in the last ten."
)
DATABASE = Family(
    "penstock_database_reachable", "gauge", "1 if all that the database was asked for this scrape was answered, else 0."
)
DATABASE_SECONDS = Family(
    "penstock_database_scrape_seconds", "gauge", "How long the database took to say what it was asked for scrapes."
)

#: Every metric that there is.
FAMILIES = (UPTIME, WORKERS, THROUGHPUT, DATABASE, DATABASE_SECONDS, *OWN, *STORED)


class Scrape:
    """The metrics of a moment, by family."""

    def __init__(self, sampled: Iterable[Sampled]) -> None:
        self._sampled = {each.family: each for each in sampled}

    def __getitem__(self, family: Family) -> Sampled:
        return self._sampled.get(family) or Sampled(family)

    def __iter__(self) -> Iterator[Sampled]:
        return iter(self._sampled.values())

    def of(self, sees: Callable[[str], bool]) -> Scrape:
        """What is left for somebody who may not know of all queues: nothing of the others, and nothing of queries."""
        return Scrape(Sampled(each.family, _seen(each, sees)) for each in self if "query" not in each.family.labels)

    def sum(self, family: Family) -> float:
        """All series of a metric together."""
        return self[family].sum()


async def scrape(services: Services) -> Scrape:
    """Everything that there is to know now; never fails, whatever the database does."""
    stored = await services.standing.read()
    own = services.metrics.sampled()
    return Scrape([*_server(services, stored), *own, *stored.sampled.values()])


def _server(services: Services, stored: Read) -> list[Sampled]:
    values = {
        UPTIME: services.metrics.uptime(),
        WORKERS: services.metrics.workers(),
        THROUGHPUT: services.metrics.throughput(),
        DATABASE: int(stored.is_whole),
        DATABASE_SECONDS: stored.seconds,
    }
    return [Sampled(family, {(): value}) for family, value in values.items()]


def _seen(sampled: Sampled, sees: Callable[[str], bool]) -> Mapping[tuple[str, ...], float | Distribution]:
    if "queue" not in sampled.family.labels:
        return sampled.samples
    place = sampled.family.labels.index("queue")
    return {labels: value for labels, value in sampled.samples.items() if sees(labels[place])}


def as_text(found: Scrape, accept: str) -> tuple[bytes, str]:
    """The metrics in the form of Prometheus that is accepted, and its media type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(found))
    encoder, media_type = choose_encoder(accept)
    return encoder(registry), media_type


class _Collected(Collector):
    def __init__(self, found: Scrape) -> None:
        self._found = found

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        for sampled in self._found:
            yield _metric(sampled)


def _metric(sampled: Sampled) -> Metric:
    family = sampled.family
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        names = [*(f"{bound:g}" for bound in family.bounds), "+Inf"]
        for labels, value in sampled.samples.items():
            if isinstance(value, Distribution):
                upto = list(zip(names, accumulate(value.counts), strict=True))
                histogram.add_metric(labels, upto, sum_value=value.sum)
        return histogram
    made: CounterMetricFamily | GaugeMetricFamily = (
        CounterMetricFamily(family.name, family.help, labels=family.labels)
        if family.kind == "counter"
        else GaugeMetricFamily(family.name, family.help, labels=family.labels)
    )
    for labels, value in sampled.samples.items():
        if not isinstance(value, Distribution):
            made.add_metric(labels, value)
    return made


def depths(found: Scrape) -> dict[str, int]:
    """For each queue, how many events the slowest group that counts has yet to read."""
    deepest = {labels[0]: 0 for labels in found[database_metrics.QUEUE_DEPTH].samples}
    counts = found[database_metrics.GROUP_COUNTS].samples
    for (queue, group), lag in found[database_metrics.GROUP_LAG].samples.items():
        if counts.get((queue, group)) and not isinstance(lag, Distribution):
            deepest[queue] = max(deepest.get(queue, 0), int(lag))
    return deepest


def dropped(found: Scrape) -> float:
    """Events that were let go on purpose, by a queue that sheds or by retention."""
    return found.sum(database_metrics.QUEUE_SHED) + found.sum(database_metrics.GROUP_DROPPED)

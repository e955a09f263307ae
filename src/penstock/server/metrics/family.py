"""Metric families and their samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

MetricKind: TypeAlias = Literal["counter", "gauge", "histogram"]

#: Upper bounds in seconds for requests and commits.
LATENCY_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
#: Upper bounds in seconds for query cycles. The SQL function penstock.cycle_bounds() returns the same numbers.
CYCLE_BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A metric: name, type, help text and labels.

    Labels hold names of which there are few: queues, groups, queries, routes. They never hold an event's key.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    #: Upper bounds of a histogram's buckets, without +Inf.
    bounds: tuple[float, ...] = ()

    @property
    def exposed_name(self) -> str:
        """The name in a scrape: Prometheus adds ``_total`` to counters."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


@dataclass(frozen=True, slots=True)
class HistogramValue:
    """The value of a histogram: observations per bucket (the last bucket is +Inf) and their sum."""

    counts: Sequence[float]
    sum: float


#: The values of metrics by label values.
LabelledValues: TypeAlias = Mapping[tuple[str, ...], float | HistogramValue]
Samples: TypeAlias = Mapping[MetricFamily, LabelledValues]


def counter(name: str, help: str, *labels: str) -> MetricFamily:
    return MetricFamily(f"penstock_{name}", "counter", help, labels)


def gauge(name: str, help: str, *labels: str) -> MetricFamily:
    return MetricFamily(f"penstock_{name}", "gauge", help, labels)


def histogram(name: str, help: str, bounds: tuple[float, ...], *labels: str) -> MetricFamily:
    return MetricFamily(f"penstock_{name}", "histogram", help, labels, bounds)

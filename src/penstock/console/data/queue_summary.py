"""Summaries of queues and groups, with rates computed from successive samples of the metrics."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from penstock.server.metrics import database as database_metrics
from penstock.server.metrics.database import DatabaseMetrics
from penstock.server.metrics.family import HistogramValue, MetricFamily

#: Rates are computed over this time. Older samples are not compared.
_RATE_SECONDS = 10.0
_MAX_SAMPLES = 60

_SinkState: TypeAlias = Literal["running", "resting", "stopped"]
_Values: TypeAlias = Mapping[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A consumer group of a queue."""

    queue: str
    name: str
    lag: int
    #: Partitions with unread events.
    behind: int
    leases: int
    counts: bool
    oldest_seconds: float
    dropped: int
    #: The state of the sink, if the group is one.
    sink: _SinkState | None
    #: Events read per second; None until there are two samples.
    rate: float | None


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """A queue and its groups."""

    name: str
    partitions: int
    events: int
    appended: int
    shed: int
    dead: int
    #: Events appended per second; None until there are two samples.
    rate: float | None
    #: The last rates, oldest first.
    rate_history: Sequence[float]
    groups: Sequence[GroupSummary]

    @property
    def slowest_group(self) -> GroupSummary | None:
        return max(self.groups, key=lambda group: group.lag, default=None)


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    #: Events ever appended, by queue.
    appended: _Values
    #: Events ever read, by queue and group.
    consumed: _Values


class QueueSummaryReader:
    """Reads the metrics and keeps the samples of the last minute."""

    def __init__(self, source: DatabaseMetrics) -> None:
        self._source = source
        self._samples: deque[_Sample] = deque(maxlen=_MAX_SAMPLES)

    async def read(self) -> list[QueueSummary]:
        """Return all queues by name."""
        read = await self._source.read()

        def values(family: MetricFamily) -> _Values:
            sampled = read.sampled.get(family)
            samples = {} if sampled is None else sampled.samples
            return {labels: value for labels, value in samples.items() if not isinstance(value, HistogramValue)}

        appended, lags = values(database_metrics.QUEUE_APPENDED), values(database_metrics.GROUP_LAG)
        if not self._samples or self._samples[-1].at != read.at:
            consumed: _Values = {
                (queue, group): appended.get((queue,), 0.0) - lag for (queue, group), lag in lags.items()
            }
            self._samples.append(_Sample(read.at, appended, consumed))
        groups = self._summarize_groups(lags, values)
        dead: dict[str, int] = {}
        for (queue, _), count in values(database_metrics.DEAD_LETTERS).items():
            dead[queue] = dead.get(queue, 0) + int(count)
        partitions = values(database_metrics.QUEUE_PARTITIONS)
        depths = values(database_metrics.QUEUE_DEPTH)
        shed = values(database_metrics.QUEUE_SHED)
        return [
            QueueSummary(
                name,
                partitions=int(partitions.get((name,), 0)),
                events=int(depths.get((name,), 0)),
                appended=int(total),
                shed=int(shed.get((name,), 0)),
                dead=dead.get(name, 0),
                rate=self._rate((name,), lambda sample: sample.appended),
                rate_history=self._rate_history((name,)),
                groups=groups.get(name, []),
            )
            for (name,), total in sorted(appended.items())
        ]

    def _summarize_groups(
        self, lags: _Values, values: Callable[[MetricFamily], _Values]
    ) -> dict[str, list[GroupSummary]]:
        behind = values(database_metrics.GROUP_BEHIND)
        leases = values(database_metrics.GROUP_LEASES)
        counts = values(database_metrics.GROUP_COUNTS)
        oldest = values(database_metrics.GROUP_OLDEST)
        dropped = values(database_metrics.GROUP_DROPPED)
        sinks = values(database_metrics.SINK_RUNNING)
        resting = values(database_metrics.SINK_RESTING)
        groups: dict[str, list[GroupSummary]] = {}
        for (queue, name), lag in lags.items():
            labels = (queue, name)
            groups.setdefault(queue, []).append(
                GroupSummary(
                    queue,
                    name,
                    lag=int(lag),
                    behind=int(behind.get(labels, 0)),
                    leases=int(leases.get(labels, 0)),
                    counts=bool(counts.get(labels, 1)),
                    oldest_seconds=oldest.get(labels, 0.0),
                    dropped=int(dropped.get(labels, 0)),
                    sink=_sink_state(sinks.get(labels), resting.get(labels)),
                    rate=self._rate(labels, lambda sample: sample.consumed),
                )
            )
        return groups

    def _rate(self, labels: tuple[str, ...], counter: Callable[[_Sample], _Values]) -> float | None:
        now = self._samples[-1]
        for sample in self._samples:
            if 0 < now.at - sample.at <= _RATE_SECONDS and labels in counter(sample):
                # The counter of a group decreases if the group seeks backwards.
                return max(0.0, counter(now)[labels] - counter(sample)[labels]) / (now.at - sample.at)
        return None

    def _rate_history(self, labels: tuple[str, ...]) -> list[float]:
        totals = [(sample.at, sample.appended[labels]) for sample in self._samples if labels in sample.appended]
        return [
            max(0.0, total - earlier_total) / (at - earlier)
            for (earlier, earlier_total), (at, total) in pairwise(totals)
            if at > earlier
        ]


def _sink_state(running: float | None, resting: float | None) -> _SinkState | None:
    if running is None:
        return None
    return "stopped" if not running else "resting" if resting else "running"

"""Queues and groups as they stand, with how fast they move: what is seen is compared with what was seen before."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from penstock.server.metrics import database as database_metrics
from penstock.server.metrics.database import DatabaseMetrics
from penstock.server.metrics.family import HistogramValue, MetricFamily

#: Rates are those of the last seconds; what was seen longer ago than that says nothing about now.
_SECONDS = 10.0
_KEPT = 60


@dataclass(frozen=True, slots=True)
class GroupSight:
    """A group of a queue."""

    queue: str
    name: str
    lag: int
    behind: int
    leases: int
    counts: bool
    oldest_seconds: float
    dropped: int
    #: Whether it is a sink, and what that does.
    sink: Literal["running", "resting", "stopped"] | None
    #: Events it got through each second; None until there is something to compare with.
    rate: float | None


@dataclass(frozen=True, slots=True)
class QueueSight:
    """A queue."""

    name: str
    partitions: int
    events: int
    appended: int
    shed: int
    dead: int
    rate: float | None
    #: The last rates, oldest first.
    course: Sequence[float]
    groups: Sequence[GroupSight]

    @property
    def slowest(self) -> GroupSight | None:
        """The group that is furthest behind."""
        return max(self.groups, key=lambda group: group.lag, default=None)


_Values: TypeAlias = Mapping[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class _Seen:
    at: float
    #: Events ever appended, by queue, and ever got through, by group.
    appended: _Values
    done: _Values


class QueueSights:
    """Looks, and remembers for a minute."""

    def __init__(self, source: DatabaseMetrics) -> None:
        self._source = source
        self._seen: deque[_Seen] = deque(maxlen=_KEPT)

    async def look(self) -> list[QueueSight]:
        """All queues, by name."""
        read = await self._source.read()

        def values(family: MetricFamily) -> _Values:
            sampled = read.sampled.get(family)
            found = {} if sampled is None else sampled.samples
            return {labels: value for labels, value in found.items() if not isinstance(value, HistogramValue)}

        appended, lags = values(database_metrics.QUEUE_APPENDED), values(database_metrics.GROUP_LAG)
        if not self._seen or self._seen[-1].at != read.at:
            done = {labels: appended.get(labels[:1], 0.0) - lag for labels, lag in lags.items()}
            self._seen.append(_Seen(read.at, appended, done))
        counts, behind, leases = (
            values(database_metrics.GROUP_COUNTS),
            values(database_metrics.GROUP_BEHIND),
            values(database_metrics.GROUP_LEASES),
        )
        oldest, dropped = values(database_metrics.GROUP_OLDEST), values(database_metrics.GROUP_DROPPED)
        sinks, resting = values(database_metrics.SINK_RUNNING), values(database_metrics.SINK_RESTING)
        groups: dict[str, list[GroupSight]] = {}
        for (queue, name), lag in lags.items():
            labels = (queue, name)
            groups.setdefault(queue, []).append(
                GroupSight(
                    queue,
                    name,
                    int(lag),
                    int(behind.get(labels, 0)),
                    int(leases.get(labels, 0)),
                    bool(counts.get(labels, 1)),
                    oldest.get(labels, 0.0),
                    int(dropped.get(labels, 0)),
                    _sink(sinks.get(labels), resting.get(labels)),
                    self._rate(labels, lambda seen: seen.done),
                )
            )
        dead: dict[str, int] = {}
        for (queue, _), count in values(database_metrics.DEAD_LETTERS).items():
            dead[queue] = dead.get(queue, 0) + int(count)
        partitions, kept, shed = (
            values(database_metrics.QUEUE_PARTITIONS),
            values(database_metrics.QUEUE_DEPTH),
            values(database_metrics.QUEUE_SHED),
        )
        return [
            QueueSight(
                name,
                int(partitions.get((name,), 0)),
                int(kept.get((name,), 0)),
                int(total),
                int(shed.get((name,), 0)),
                dead.get(name, 0),
                self._rate((name,), lambda seen: seen.appended),
                self._course((name,)),
                groups.get(name, []),
            )
            for (name,), total in sorted(appended.items())
        ]

    def _rate(self, labels: tuple[str, ...], of: Callable[[_Seen], _Values]) -> float | None:
        now = self._seen[-1]
        for seen in self._seen:
            if 0 < now.at - seen.at <= _SECONDS and labels in of(seen):
                # A group that was sent back has got nothing done.
                return max(0.0, of(now)[labels] - of(seen)[labels]) / (now.at - seen.at)
        return None

    def _course(self, labels: tuple[str, ...]) -> list[float]:
        found = [(seen.at, seen.appended[labels]) for seen in self._seen if labels in seen.appended]
        return [
            max(0.0, value - before) / (at - earlier)
            for (earlier, before), (at, value) in pairwise(found)
            if at > earlier
        ]


def _sink(running: float | None, resting: float | None) -> Literal["running", "resting", "stopped"] | None:
    if running is None:
        return None
    return "stopped" if not running else "resting" if resting else "running"

"""Summaries of queues and groups, with rates computed from the last snapshots, and of sinks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from penstock.console.data.overview_history import OverviewHistory
from penstock.db.pool import Database
from penstock.db.statements import Statements
from penstock.server.metrics import database_metrics
from penstock.server.metrics.overview_snapshot import LabelValues, OverviewSnapshot

_sql = Statements("penstock.console.data", "sink_summary.sql")

#: Rates are computed over this time.
_RATE_MILLISECONDS = 10_000
#: Number of snapshots in the history of a rate.
_HISTORY_SNAPSHOTS = 60

_SinkState: TypeAlias = Literal["running", "resting", "stopped"]
#: The values of a counter by labels, and the milliseconds since the epoch, oldest first.
_Counter: TypeAlias = Sequence[tuple[int, LabelValues]]


@dataclass(frozen=True, slots=True)
class GroupSummary:
    name: str
    lag: int
    #: Partitions with unread events.
    behind: int
    leases: int
    counts: bool
    oldest_seconds: float
    #: The state of the sink, if the group is one.
    sink: _SinkState | None
    #: Events read per second; None until there are two samples.
    rate: float | None


@dataclass(frozen=True, slots=True)
class QueueSummary:
    name: str
    partitions: int
    #: The number of events that are stored, and of those that were ever appended.
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


async def read_queues(history: OverviewHistory) -> list[QueueSummary]:
    snapshots = list(await history.refresh())[-_HISTORY_SNAPSHOTS:]
    now = snapshots[-1]
    recent = [snapshot for snapshot in snapshots if now.at - snapshot.at <= _RATE_MILLISECONDS]
    appended = [(snapshot.at, snapshot.values(database_metrics.QUEUE_APPENDED)) for snapshot in snapshots]
    partitions = now.values(database_metrics.QUEUE_PARTITIONS)
    depths = now.values(database_metrics.QUEUE_DEPTH)
    shed = now.values(database_metrics.QUEUE_SHED)
    dead: dict[str, int] = {}
    for (queue, _), count in now.values(database_metrics.DEAD_LETTERS).items():
        dead[queue] = dead.get(queue, 0) + int(count)
    groups = _summarize_groups(recent)
    return [
        QueueSummary(
            name,
            partitions=int(partitions.get((name,), 0)),
            events=int(depths.get((name,), 0)),
            appended=int(total),
            shed=int(shed.get((name,), 0)),
            dead=dead.get(name, 0),
            rate=_rate(appended[-len(recent) :], (name,)),
            rate_history=_rate_history(appended, (name,)),
            groups=groups.get(name, []),
        )
        for (name,), total in sorted(now.values(database_metrics.QUEUE_APPENDED).items())
    ]


def _summarize_groups(snapshots: Sequence[OverviewSnapshot]) -> dict[str, list[GroupSummary]]:
    now = snapshots[-1]
    events_read = [(snapshot.at, snapshot.events_read()) for snapshot in snapshots]
    behind = now.values(database_metrics.GROUP_BEHIND)
    leases = now.values(database_metrics.GROUP_LEASES)
    counts = now.values(database_metrics.GROUP_COUNTS)
    oldest = now.values(database_metrics.GROUP_OLDEST)
    sinks = now.values(database_metrics.SINK_RUNNING)
    resting = now.values(database_metrics.SINK_RESTING)
    groups: dict[str, list[GroupSummary]] = {}
    for labels, lag in now.values(database_metrics.GROUP_LAG).items():
        queue, name = labels
        groups.setdefault(queue, []).append(
            GroupSummary(
                name,
                lag=int(lag),
                behind=int(behind.get(labels, 0)),
                leases=int(leases.get(labels, 0)),
                counts=bool(counts.get(labels, 1)),
                oldest_seconds=oldest.get(labels, 0.0),
                sink=_sink_state(sinks.get(labels), resting.get(labels)),
                rate=_rate(events_read, labels),
            )
        )
    return groups


def _rate(counter: _Counter, labels: tuple[str, ...]) -> float | None:
    """Return the growth per second since the first value."""
    known = [(at, values) for at, values in counter if labels in values]
    return next(iter(_rate_history([known[0], known[-1]], labels)), None)


def _rate_history(counter: _Counter, labels: tuple[str, ...]) -> list[float]:
    """Return the growth per second between successive values."""
    totals = [(at, values[labels]) for at, values in counter if labels in values]
    # The counter of a group decreases if the group seeks backwards.
    return [
        max(0.0, total - earlier_total) / (at - earlier) * 1000
        for (earlier, earlier_total), (at, total) in pairwise(totals)
        if at > earlier
    ]


def _sink_state(running: float | None, resting: float | None) -> _SinkState | None:
    if running is None:
        return None
    return "stopped" if not running else "resting" if resting else "running"


@dataclass(frozen=True, slots=True)
class SinkSummary:
    """A sink, with totals over all processes that have run it."""

    guarantee: str
    written: int
    retries: int
    #: Attempts that the target rejected because it was busy.
    busy: int
    dead_letters: int
    is_running: bool
    is_resting: bool
    #: The error of the last attempt, if it failed.
    error: str | None


async def read_sink_summary(database: Database, queue: str, group: str) -> SinkSummary | None:
    """Return the sink that reads the queue as this group, or None if the group is no sink."""
    sinks = await database.fetch(SinkSummary, _sql["sink"], {"queue": queue, "group": group})
    return sinks[0] if sinks else None

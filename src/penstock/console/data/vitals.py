"""How everything is: what the metrics say, moment by moment, for as long as somebody looks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.db.pool import Database
from penstock.db.statements import Statements
from penstock.server.metrics import database as database_metrics
from penstock.server.metrics.database import DatabaseMetrics, DatabaseSamples
from penstock.server.metrics.family import HistogramValue, MetricFamily

_sql = Statements("penstock.console.data", "vitals.sql")

#: So many moments are kept: five minutes, where one takes a second.
KEPT = 300
#: What was before is known in steps of so many seconds.
_PAST_STEP = 5.0
#: What was seen longer ago than this is not compared with: nobody looked in between.
_LONGEST_STEP = 15.0


@dataclass(frozen=True)
class Sight:
    """What was seen at one moment."""

    #: Milliseconds since the epoch, as charts want it.
    at: int
    read: DatabaseSamples
    #: How much each queue may hold.
    limits: Mapping[str, int | None]
    #: Queues that queries and rules write.
    written: frozenset[str]
    #: Rules that fire: the rule, the key, since when; and how many there are in all.
    firing: list[tuple[str, str, datetime]]
    firing_count: int
    #: Queries whose last cycle failed, and why.
    failed: Mapping[str, str]
    #: Sinks whose last attempt failed, by queue and group: why, and whether they leave the other side alone.
    failing_sinks: Mapping[tuple[str, str], tuple[str, bool]]

    def values(self, family: MetricFamily) -> Mapping[tuple[str, ...], float]:
        """The numbers of a metric."""
        sampled = self.read.sampled.get(family)
        found = {} if sampled is None else sampled.samples
        return {labels: value for labels, value in found.items() if not isinstance(value, HistogramValue)}

    def distributions(self, family: MetricFamily) -> Mapping[tuple[str, ...], HistogramValue]:
        """The distributions of a metric."""
        sampled = self.read.sampled.get(family)
        found = {} if sampled is None else sampled.samples
        return {labels: value for labels, value in found.items() if isinstance(value, HistogramValue)}


@dataclass(frozen=True, slots=True)
class Point:
    """The overview's numbers at one moment; None is what is not known."""

    at: int
    pushed: float | None
    read: float | None
    results: float | None
    freshness: float | None
    backlog: float | None
    dead: float | None
    firing: float | None


@dataclass(frozen=True, slots=True)
class Past:
    """What the ledgers of queries say of a while ago: events read and written per second, and how fresh they were."""

    at: int
    read: float
    results: float
    freshness: float | None


class Vitals:
    """Looks, and remembers what it saw."""

    def __init__(self, database: Database, source: DatabaseMetrics) -> None:
        self._database = database
        self._source = source
        self.seen: deque[Sight] = deque(maxlen=KEPT)
        #: What was before anybody looked, so that the first who does sees more than a moment.
        self.past: list[Past] = []

    async def look(self) -> deque[Sight]:
        """Look again; the last that was seen is at the end."""
        read = await self._source.read()
        if not self.seen or self.seen[-1].read.at != read.at:
            async with self._database.connection() as conn:
                if not self.seen:
                    params = {"step": _PAST_STEP, "seconds": KEPT}
                    rows = await (await conn.execute(_sql["past"], params)).fetchall()
                    self.past = [Past(at, r / _PAST_STEP, w / _PAST_STEP, age) for at, r, w, age in rows]
                queues = await (await conn.execute(_sql["queues"])).fetchall()
                firing = await (await conn.execute(_sql["firing"])).fetchall()
                failed = await (await conn.execute(_sql["failed"])).fetchall()
                sinks = await (await conn.execute(_sql["failing_sinks"])).fetchall()
            self.seen.append(_sight(read, queues, firing, failed, sinks))
        return self.seen


def _sight(read: DatabaseSamples, queues: list[Any], firing: list[Any], failed: list[Any], sinks: list[Any]) -> Sight:
    return Sight(
        int(time.time() * 1000),
        read,
        {name: limit for name, limit, _ in queues},
        frozenset(name for name, _, is_written in queues if is_written),
        [(rule, key, since) for rule, key, since, _ in firing],
        firing[0][3] if firing else 0,
        dict(failed),
        {(queue, sink): (error, is_resting) for queue, sink, error, is_resting in sinks},
    )


def point(before: Sight | None, now: Sight, sees: Callable[[str], bool], sees_all: bool) -> Point:
    """What a moment comes to, for somebody who may know of some queues."""
    if before is not None and not 0 < now.at - before.at <= _LONGEST_STEP * 1000:
        before = None
    lags = _of(now.values(database_metrics.GROUP_LAG), sees)
    return Point(
        now.at,
        _rate(before, now, lambda sight: _pushed(sight, sees)),
        _rate(before, now, lambda sight: _read(sight, sees)),
        _rate(before, now, lambda sight: sight.values(database_metrics.QUERY_OUTPUTS)) if sees_all else None,
        _freshness(before, now) if sees_all else None,
        sum(lags.values()),
        sum(_of(now.values(database_metrics.DEAD_LETTERS), sees).values()),
        now.firing_count if sees_all else 0,
    )


def _of(values: Mapping[tuple[str, ...], float], sees: Callable[[str], bool]) -> dict[tuple[str, ...], float]:
    return {labels: value for labels, value in values.items() if sees(labels[0])}


def _pushed(sight: Sight, sees: Callable[[str], bool]) -> Mapping[tuple[str, ...], float]:
    """Events that came from outside."""
    appended = _of(sight.values(database_metrics.QUEUE_APPENDED), sees)
    return {labels: value for labels, value in appended.items() if labels[0] not in sight.written}


def _read(sight: Sight, sees: Callable[[str], bool]) -> Mapping[tuple[str, ...], float]:
    """How far each group has come."""
    appended = sight.values(database_metrics.QUEUE_APPENDED)
    lags = _of(sight.values(database_metrics.GROUP_LAG), sees)
    return {labels: appended.get((labels[0],), 0.0) - lag for labels, lag in lags.items()}


def _rate(before: Sight | None, now: Sight, count: Callable[[Sight], Mapping[tuple[str, ...], float]]) -> float | None:
    if before is None:
        return None
    earlier = count(before)
    # A group that was sent back, or a queue that was made anew, has read nothing.
    grown = sum(max(0.0, value - earlier[labels]) for labels, value in count(now).items() if labels in earlier)
    return grown / (now.at - before.at) * 1000


def _freshness(before: Sight | None, now: Sight) -> float | None:
    """The mean age of the oldest event of each cycle that was committed meanwhile."""
    if before is None:
        return None
    cycles = seconds = 0.0
    earlier = before.distributions(database_metrics.FRESHNESS)
    for query, distribution in now.distributions(database_metrics.FRESHNESS).items():
        last = earlier.get(query)
        if last is not None:
            cycles += sum(distribution.counts) - sum(last.counts)
            seconds += distribution.sum - last.sum
    return max(0.0, seconds / cycles) if cycles > 0 else None

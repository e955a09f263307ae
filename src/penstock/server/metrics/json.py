"""Metrics as JSON: totals of the server, and details by queue, group and query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.server.metrics import counters
from penstock.server.metrics import database as database_metrics
from penstock.server.metrics.exposition import (
    DATABASE,
    THROUGHPUT,
    UPTIME,
    WORKERS,
    MetricsSnapshot,
    queue_depths,
    total_dropped,
)
from penstock.server.metrics.family import HistogramValue, MetricFamily


class MetricTotals(msgspec.Struct, rename="camel"):
    """Totals of the server. Numbers from the database are 0 while it cannot be reached."""

    events_received: int
    events_accepted: int
    events_duplicate: int
    events_rejected: int
    events_dropped: int
    events_processed: int
    windows_emitted: int
    late_events: int
    backpressure_events: int
    dlq_size: int
    queue_depth: int
    throughput_per_second: float
    processed_per_second: float
    uptime_ms: int
    workers: int
    database_reachable: bool


class QueueMetrics(msgspec.Struct, rename="camel"):
    """Metrics of a queue; ``depth`` is the lag of its slowest group."""

    name: str
    depth: int
    events: int
    appended: int
    partitions: int
    received: int
    accepted: int
    duplicates: int
    rejected: int
    dropped: int
    dead_letters: int


class GroupMetrics(msgspec.Struct, rename="camel"):
    """Metrics of a consumer group."""

    queue: str
    group: str
    lag: int
    counts: bool
    partitions_behind: int
    leases: int
    oldest_seconds: float
    dead_letters: int


class QueryMetrics(msgspec.Struct, rename="camel"):
    """Metrics of a query."""

    name: str
    running: bool
    paused: bool
    cycles: int
    failed_cycles: int
    events: int
    outputs: int
    windows: int
    late: int
    dead_letters: int
    events_per_second: float
    open_windows: int | None
    watermark_lag_seconds: float | None
    last_commit_seconds: float | None
    cycle_seconds_mean: float | None
    freshness_seconds_mean: float | None


class MetricDetails(MetricTotals, rename="camel"):
    """Totals of the server, and metrics by queue, group and query."""

    queues: list[QueueMetrics]
    groups: list[GroupMetrics]
    queries: list[QueryMetrics]


#: The metrics of integer fields.
_TOTAL_FIELDS: Mapping[str, MetricFamily] = {
    "events_received": counters.RECEIVED,
    "events_accepted": counters.ACCEPTED,
    "events_duplicate": counters.DUPLICATES,
    "events_rejected": counters.REJECTED,
    "events_processed": database_metrics.QUERY_EVENTS,
    "windows_emitted": database_metrics.QUERY_WINDOWS,
    "late_events": database_metrics.QUERY_LATE,
    "backpressure_events": counters.BACKPRESSURE,
    "dlq_size": database_metrics.DEAD_LETTERS,
    "workers": WORKERS,
}
_QUEUE_FIELDS: Mapping[str, MetricFamily] = {
    "events": database_metrics.QUEUE_DEPTH,
    "appended": database_metrics.QUEUE_APPENDED,
    "partitions": database_metrics.QUEUE_PARTITIONS,
    "received": counters.RECEIVED,
    "accepted": counters.ACCEPTED,
    "duplicates": counters.DUPLICATES,
    "rejected": counters.REJECTED,
    "dropped": database_metrics.QUEUE_SHED,
}
_GROUP_FIELDS: Mapping[str, MetricFamily] = {
    "lag": database_metrics.GROUP_LAG,
    "partitions_behind": database_metrics.GROUP_BEHIND,
    "leases": database_metrics.GROUP_LEASES,
    "dead_letters": database_metrics.DEAD_LETTERS,
}
_QUERY_FIELDS: Mapping[str, MetricFamily] = {
    "cycles": database_metrics.QUERY_CYCLES,
    "failed_cycles": database_metrics.QUERY_FAILED,
    "events": database_metrics.QUERY_EVENTS,
    "outputs": database_metrics.QUERY_OUTPUTS,
    "windows": database_metrics.QUERY_WINDOWS,
    "late": database_metrics.QUERY_LATE,
    "dead_letters": database_metrics.QUERY_DEAD,
}


def server_totals(snapshot: MetricsSnapshot) -> MetricTotals:
    return MetricTotals(**_totals(snapshot))


def processor_totals(snapshot: MetricsSnapshot) -> MetricTotals:
    """Return the totals of a process that runs queries and receives no pushes.

    Events received are those appended to the queues that its queries read.
    """
    queues = {
        queue
        for queue, group in snapshot[database_metrics.GROUP_LAG].samples
        if (group,) in snapshot[database_metrics.QUERY_RUNNING].samples
    }
    accepted = sum(_integer(snapshot, database_metrics.QUEUE_APPENDED, queue) for queue in queues)
    shed = sum(_integer(snapshot, database_metrics.QUEUE_SHED, queue) for queue in queues)
    totals = _totals(snapshot)
    totals |= {"events_received": accepted + shed, "events_accepted": accepted}
    return MetricTotals(**totals | {"throughput_per_second": totals["processed_per_second"]})


def server_details(snapshot: MetricsSnapshot) -> MetricDetails:
    return MetricDetails(
        **_totals(snapshot),
        queues=_queue_metrics(snapshot),
        groups=_group_metrics(snapshot),
        queries=_query_metrics(snapshot),
    )


def _totals(snapshot: MetricsSnapshot) -> dict[str, Any]:
    return {
        **{field: int(snapshot.total(family)) for field, family in _TOTAL_FIELDS.items()},
        "events_dropped": int(total_dropped(snapshot)),
        "queue_depth": sum(queue_depths(snapshot).values()),
        "throughput_per_second": round(snapshot.total(THROUGHPUT), 1),
        "processed_per_second": round(snapshot.total(database_metrics.QUERY_THROUGHPUT), 1),
        "uptime_ms": int(snapshot.total(UPTIME) * 1000),
        "database_reachable": bool(snapshot.total(DATABASE)),
    }


def _queue_metrics(snapshot: MetricsSnapshot) -> list[QueueMetrics]:
    dead_letters: dict[str, int] = {}
    for queue, group in snapshot[database_metrics.DEAD_LETTERS].samples:
        count = _integer(snapshot, database_metrics.DEAD_LETTERS, queue, group)
        dead_letters[queue] = dead_letters.get(queue, 0) + count
    return [
        QueueMetrics(
            name=queue,
            depth=depth,
            dead_letters=dead_letters.get(queue, 0),
            **{field: _integer(snapshot, family, queue) for field, family in _QUEUE_FIELDS.items()},
        )
        for queue, depth in sorted(queue_depths(snapshot).items())
    ]


def _group_metrics(snapshot: MetricsSnapshot) -> list[GroupMetrics]:
    return [
        GroupMetrics(
            queue=queue,
            group=group,
            counts=bool(_number(snapshot, database_metrics.GROUP_COUNTS, queue, group)),
            oldest_seconds=round(_number(snapshot, database_metrics.GROUP_OLDEST, queue, group) or 0.0, 3),
            **{field: _integer(snapshot, family, queue, group) for field, family in _GROUP_FIELDS.items()},
        )
        for queue, group in sorted(snapshot[database_metrics.GROUP_LAG].samples)
    ]


def _query_metrics(snapshot: MetricsSnapshot) -> list[QueryMetrics]:
    metrics = []
    for (query,) in sorted(snapshot[database_metrics.QUERY_RUNNING].samples):
        open_windows = _number(snapshot, database_metrics.OPEN_WINDOWS, query)
        metrics.append(
            QueryMetrics(
                name=query,
                running=bool(_number(snapshot, database_metrics.QUERY_RUNNING, query)),
                paused=bool(_number(snapshot, database_metrics.QUERY_PAUSED, query)),
                events_per_second=_number(snapshot, database_metrics.QUERY_THROUGHPUT, query) or 0.0,
                open_windows=None if open_windows is None else int(open_windows),
                watermark_lag_seconds=_rounded(_number(snapshot, database_metrics.QUERY_WATERMARK_LAG, query)),
                last_commit_seconds=_rounded(_number(snapshot, database_metrics.QUERY_COMMIT_AGE, query)),
                cycle_seconds_mean=_mean(snapshot, database_metrics.CYCLE, query),
                freshness_seconds_mean=_mean(snapshot, database_metrics.FRESHNESS, query),
                **{field: _integer(snapshot, family, query) for field, family in _QUERY_FIELDS.items()},
            )
        )
    return metrics


def _number(snapshot: MetricsSnapshot, family: MetricFamily, *labels: str) -> float | None:
    value = snapshot[family].samples.get(labels)
    return None if isinstance(value, HistogramValue) else value


def _integer(snapshot: MetricsSnapshot, family: MetricFamily, *labels: str) -> int:
    return int(_number(snapshot, family, *labels) or 0)


def _mean(snapshot: MetricsSnapshot, family: MetricFamily, *labels: str) -> float | None:
    value = snapshot[family].samples.get(labels)
    if not isinstance(value, HistogramValue) or not sum(value.counts):
        return None
    return round(value.sum / sum(value.counts), 4)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)

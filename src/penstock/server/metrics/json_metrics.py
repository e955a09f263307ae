"""Metrics as JSON: totals of the server, and details by queue, group and query.

A field with a metric in its annotation holds the value of that metric: the total over all series, or that of one
queue, group or query.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, get_args, get_type_hints

import msgspec

from penstock.server.metrics import counters, database_metrics
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

    events_received: Annotated[int, counters.RECEIVED]
    events_accepted: Annotated[int, counters.ACCEPTED]
    events_duplicate: Annotated[int, counters.DUPLICATES]
    events_rejected: Annotated[int, counters.REJECTED]
    events_dropped: int
    events_processed: Annotated[int, database_metrics.QUERY_EVENTS]
    windows_emitted: Annotated[int, database_metrics.QUERY_WINDOWS]
    late_events: Annotated[int, database_metrics.QUERY_LATE]
    backpressure_events: Annotated[int, counters.BACKPRESSURE]
    dlq_size: Annotated[int, database_metrics.DEAD_LETTERS]
    queue_depth: int
    throughput_per_second: Annotated[float, THROUGHPUT]
    processed_per_second: Annotated[float, database_metrics.QUERY_THROUGHPUT]
    uptime_ms: int
    workers: Annotated[int, WORKERS]
    database_reachable: Annotated[bool, DATABASE]


class QueueMetrics(msgspec.Struct, rename="camel"):
    """Metrics of a queue; ``depth`` is the lag of its slowest group."""

    name: str
    depth: int
    events: Annotated[int, database_metrics.QUEUE_DEPTH]
    appended: Annotated[int, database_metrics.QUEUE_APPENDED]
    partitions: Annotated[int, database_metrics.QUEUE_PARTITIONS]
    received: Annotated[int, counters.RECEIVED]
    accepted: Annotated[int, counters.ACCEPTED]
    duplicates: Annotated[int, counters.DUPLICATES]
    rejected: Annotated[int, counters.REJECTED]
    dropped: Annotated[int, database_metrics.QUEUE_SHED]
    dead_letters: int


class GroupMetrics(msgspec.Struct, rename="camel"):
    queue: str
    group: str
    lag: Annotated[int, database_metrics.GROUP_LAG]
    counts: Annotated[bool, database_metrics.GROUP_COUNTS]
    partitions_behind: Annotated[int, database_metrics.GROUP_BEHIND]
    leases: Annotated[int, database_metrics.GROUP_LEASES]
    oldest_seconds: Annotated[float, database_metrics.GROUP_OLDEST]
    dead_letters: Annotated[int, database_metrics.DEAD_LETTERS]


class OperatorMetrics(msgspec.Struct, rename="camel"):
    """The state of an operator of a materialized view. Operators are numbered from 1, inputs first."""

    operator: int
    description: str
    rows: int
    bytes: int


class QueryMetrics(msgspec.Struct, rename="camel"):
    name: str
    #: Those of a materialized view.
    operators: list[OperatorMetrics]
    running: Annotated[bool, database_metrics.QUERY_RUNNING]
    paused: Annotated[bool, database_metrics.QUERY_PAUSED]
    cycles: Annotated[int, database_metrics.QUERY_CYCLES]
    failed_cycles: Annotated[int, database_metrics.QUERY_FAILED]
    events: Annotated[int, database_metrics.QUERY_EVENTS]
    outputs: Annotated[int, database_metrics.QUERY_OUTPUTS]
    windows: Annotated[int, database_metrics.QUERY_WINDOWS]
    late: Annotated[int, database_metrics.QUERY_LATE]
    dead_letters: Annotated[int, database_metrics.QUERY_DEAD]
    events_per_second: Annotated[float, database_metrics.QUERY_THROUGHPUT]
    open_windows: Annotated[int | None, database_metrics.OPEN_WINDOWS]
    watermark_lag_seconds: Annotated[float | None, database_metrics.QUERY_WATERMARK_LAG]
    last_commit_seconds: Annotated[float | None, database_metrics.QUERY_COMMIT_AGE]
    cycle_seconds_mean: Annotated[float | None, database_metrics.CYCLE]
    freshness_seconds_mean: Annotated[float | None, database_metrics.FRESHNESS]
    view_rows: Annotated[int | None, database_metrics.VIEW_ROWS]
    view_bytes: Annotated[int | None, database_metrics.VIEW_BYTES]
    view_state_limit_bytes: Annotated[int | None, database_metrics.VIEW_STATE_LIMIT]


class MetricDetails(MetricTotals, rename="camel"):
    """Totals of the server, and metrics by queue, group and query."""

    queues: list[QueueMetrics]
    groups: list[GroupMetrics]
    queries: list[QueryMetrics]


def server_totals(snapshot: MetricsSnapshot) -> MetricTotals:
    return MetricTotals(**_totals(snapshot))


def processor_totals(snapshot: MetricsSnapshot) -> MetricTotals:
    """Return the totals of a process that runs queries and receives no pushes.

    Events received are those appended to the queues that its queries read.
    """
    queues = {
        queue
        for queue, group in snapshot[database_metrics.GROUP_LAG]
        if (group,) in snapshot[database_metrics.QUERY_RUNNING]
    }
    accepted, shed = (
        sum(int(_number(snapshot, family, queue) or 0) for queue in queues)
        for family in (database_metrics.QUEUE_APPENDED, database_metrics.QUEUE_SHED)
    )
    totals = _totals(snapshot)
    totals |= {"events_received": accepted + shed, "events_accepted": accepted}
    return MetricTotals(**totals | {"throughput_per_second": totals["processed_per_second"]})


def server_details(snapshot: MetricsSnapshot) -> MetricDetails:
    dead_letters: dict[str, int] = {}
    for queue, group in snapshot[database_metrics.DEAD_LETTERS]:
        count = int(_number(snapshot, database_metrics.DEAD_LETTERS, queue, group) or 0)
        dead_letters[queue] = dead_letters.get(queue, 0) + count
    return MetricDetails(
        **_totals(snapshot),
        queues=[
            QueueMetrics(
                name=queue,
                depth=depth,
                dead_letters=dead_letters.get(queue, 0),
                **_annotated_fields(QueueMetrics, snapshot, queue),
            )
            for queue, depth in sorted(queue_depths(snapshot).items())
        ],
        groups=[
            GroupMetrics(queue=queue, group=group, **_annotated_fields(GroupMetrics, snapshot, queue, group))
            for queue, group in sorted(snapshot[database_metrics.GROUP_LAG])
        ],
        queries=[
            QueryMetrics(
                name=query, operators=_operators(snapshot, query), **_annotated_fields(QueryMetrics, snapshot, query)
            )
            for (query,) in sorted(snapshot[database_metrics.QUERY_RUNNING])
        ],
    )


def _operators(snapshot: MetricsSnapshot, query: str) -> list[OperatorMetrics]:
    found = []
    for labels in snapshot[database_metrics.OPERATOR_ROWS]:
        name, operator, description = labels
        if name == query:
            rows = _number(snapshot, database_metrics.OPERATOR_ROWS, *labels)
            size = _number(snapshot, database_metrics.OPERATOR_BYTES, *labels)
            found.append(OperatorMetrics(int(operator), description, int(rows or 0), int(size or 0)))
    return sorted(found, key=lambda each: each.operator)


def _totals(snapshot: MetricsSnapshot) -> dict[str, Any]:
    return {
        **_annotated_fields(MetricTotals, snapshot),
        "events_dropped": int(total_dropped(snapshot)),
        "queue_depth": sum(queue_depths(snapshot).values()),
        "uptime_ms": int(snapshot.total(UPTIME) * 1000),
    }


def _annotated_fields(struct: type[msgspec.Struct], snapshot: MetricsSnapshot, *labels: str) -> dict[str, Any]:
    """Return the values of the fields with a metric; without labels, the totals over all series."""
    values: dict[str, Any] = {}
    for name, kind, family in _metric_fields(struct):
        number = _number(snapshot, family, *labels) if labels else snapshot.total(family)
        if number is None and type(None) in get_args(kind):
            values[name] = None
        elif kind in (int, int | None):
            values[name] = int(number or 0)
        else:
            values[name] = bool(number) if kind is bool else round(number or 0.0, 3)
    return values


@cache
def _metric_fields(struct: type[msgspec.Struct]) -> list[tuple[str, Any, MetricFamily]]:
    """Return the fields with a metric in their annotation: name, type and metric."""
    fields: list[tuple[str, Any, MetricFamily]] = []
    for name, hint in get_type_hints(struct, include_extras=True).items():
        match get_args(hint):
            case (kind, MetricFamily() as family):
                fields.append((name, kind, family))
    return fields


def _number(snapshot: MetricsSnapshot, family: MetricFamily, *labels: str) -> float | None:
    """Return the value of a series; of a histogram, the mean."""
    value = snapshot[family].get(labels)
    if not isinstance(value, HistogramValue):
        return value
    count = sum(value.counts)
    return value.sum / count if count else None

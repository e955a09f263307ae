"""Metrics as JSON: the totals under the names that dashboards of such systems use, and the details for management."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.server.metrics import counters
from penstock.server.metrics import database as database_metrics
from penstock.server.metrics.exposition import DATABASE, THROUGHPUT, UPTIME, WORKERS, Scrape, depths, dropped
from penstock.server.metrics.family import Distribution, Family


class Totals(msgspec.Struct, rename="camel"):
    """The whole server in numbers. Those of the database are 0 while it cannot be reached."""

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


class QueueNumbers(msgspec.Struct, rename="camel"):
    """A queue in numbers; depth is what its slowest group has yet to read."""

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


class GroupNumbers(msgspec.Struct, rename="camel"):
    """A group in numbers."""

    queue: str
    group: str
    lag: int
    counts: bool
    partitions_behind: int
    leases: int
    oldest_seconds: float
    dead_letters: int


class QueryNumbers(msgspec.Struct, rename="camel"):
    """A query in numbers."""

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


class Details(Totals, rename="camel"):
    """The same, and by queue, group and query."""

    queues: list[QueueNumbers]
    groups: list[GroupNumbers]
    queries: list[QueryNumbers]


def totals(found: Scrape) -> Totals:
    """The server as a whole."""
    return Totals(**_totals(found))


def processor_totals(found: Scrape) -> Totals:
    """A process that runs queries and takes no pushes: what was received is what came into the queues they read."""
    read = {
        queue
        for queue, group in found[database_metrics.GROUP_LAG].samples
        if (group,) in found[database_metrics.QUERY_RUNNING].samples
    }
    accepted = sum(_whole(found, database_metrics.QUEUE_APPENDED, queue) for queue in read)
    shed = sum(_whole(found, database_metrics.QUEUE_SHED, queue) for queue in read)
    known = _totals(found)
    known |= {"events_received": accepted + shed, "events_accepted": accepted}
    return Totals(**known | {"throughput_per_second": known["processed_per_second"]})


def details(found: Scrape) -> Details:
    """The server, and all that is in it."""
    return Details(
        **_totals(found),
        queues=_queues(found),
        groups=_groups(found),
        queries=_queries(found),
    )


def _totals(found: Scrape) -> dict[str, Any]:
    return {
        "events_received": int(found.sum(counters.RECEIVED)),
        "events_accepted": int(found.sum(counters.ACCEPTED)),
        "events_duplicate": int(found.sum(counters.DUPLICATES)),
        "events_rejected": int(found.sum(counters.REJECTED)),
        "events_dropped": int(dropped(found)),
        "events_processed": int(found.sum(database_metrics.QUERY_EVENTS)),
        "windows_emitted": int(found.sum(database_metrics.QUERY_WINDOWS)),
        "late_events": int(found.sum(database_metrics.QUERY_LATE)),
        "backpressure_events": int(found.sum(counters.BACKPRESSURE)),
        "dlq_size": int(found.sum(database_metrics.DEAD_LETTERS)),
        "queue_depth": sum(depths(found).values()),
        "throughput_per_second": round(found.sum(THROUGHPUT), 1),
        "processed_per_second": round(found.sum(database_metrics.QUERY_THROUGHPUT), 1),
        "uptime_ms": int(found.sum(UPTIME) * 1000),
        "workers": int(found.sum(WORKERS)),
        "database_reachable": bool(found.sum(DATABASE)),
    }


def _queues(found: Scrape) -> list[QueueNumbers]:
    dead: dict[str, int] = {}
    for (queue, _), events in found[database_metrics.DEAD_LETTERS].samples.items():
        dead[queue] = dead.get(queue, 0) + (0 if isinstance(events, Distribution) else int(events))
    return [
        QueueNumbers(
            queue,
            depth,
            _whole(found, database_metrics.QUEUE_DEPTH, queue),
            _whole(found, database_metrics.QUEUE_APPENDED, queue),
            _whole(found, database_metrics.QUEUE_PARTITIONS, queue),
            _whole(found, counters.RECEIVED, queue),
            _whole(found, counters.ACCEPTED, queue),
            _whole(found, counters.DUPLICATES, queue),
            _whole(found, counters.REJECTED, queue),
            _whole(found, database_metrics.QUEUE_SHED, queue),
            dead.get(queue, 0),
        )
        for queue, depth in sorted(depths(found).items())
    ]


def _groups(found: Scrape) -> list[GroupNumbers]:
    return [
        GroupNumbers(
            labels[0],
            labels[1],
            _whole(found, database_metrics.GROUP_LAG, *labels),
            bool(_number(found, database_metrics.GROUP_COUNTS, *labels)),
            _whole(found, database_metrics.GROUP_BEHIND, *labels),
            _whole(found, database_metrics.GROUP_LEASES, *labels),
            round(_number(found, database_metrics.GROUP_OLDEST, *labels) or 0.0, 3),
            _whole(found, database_metrics.DEAD_LETTERS, *labels),
        )
        for labels in sorted(found[database_metrics.GROUP_LAG].samples)
    ]


def _queries(found: Scrape) -> list[QueryNumbers]:
    numbers = []
    for (name,) in sorted(found[database_metrics.QUERY_RUNNING].samples):
        windows = _number(found, database_metrics.OPEN_WINDOWS, name)
        numbers.append(
            QueryNumbers(
                name,
                bool(_number(found, database_metrics.QUERY_RUNNING, name)),
                bool(_number(found, database_metrics.QUERY_PAUSED, name)),
                _whole(found, database_metrics.QUERY_CYCLES, name),
                _whole(found, database_metrics.QUERY_FAILED, name),
                _whole(found, database_metrics.QUERY_EVENTS, name),
                _whole(found, database_metrics.QUERY_OUTPUTS, name),
                _whole(found, database_metrics.QUERY_WINDOWS, name),
                _whole(found, database_metrics.QUERY_LATE, name),
                _whole(found, database_metrics.QUERY_DEAD, name),
                _number(found, database_metrics.QUERY_THROUGHPUT, name) or 0.0,
                None if windows is None else int(windows),
                _rounded(_number(found, database_metrics.QUERY_WATERMARK_LAG, name)),
                _rounded(_number(found, database_metrics.QUERY_COMMIT_AGE, name)),
                _mean(found, database_metrics.CYCLE, name),
                _mean(found, database_metrics.FRESHNESS, name),
            )
        )
    return numbers


def _number(found: Scrape, family: Family, *labels: str) -> float | None:
    value = found[family].samples.get(labels)
    return None if isinstance(value, Distribution) else value


def _whole(found: Scrape, family: Family, *labels: str) -> int:
    return int(_number(found, family, *labels) or 0)


def _mean(found: Scrape, family: Family, *labels: str) -> float | None:
    value = found[family].samples.get(labels)
    if not isinstance(value, Distribution) or not sum(value.counts):
        return None
    return round(value.sum / sum(value.counts), 4)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)

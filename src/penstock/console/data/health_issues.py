"""Problems that the overview lists under "Needs attention"."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from penstock.console.page import url_for
from penstock.core import formatting
from penstock.server.metrics import database_metrics
from penstock.server.metrics.exposition import MetricsSnapshot, queue_depths
from penstock.server.metrics.overview_snapshot import OverviewSnapshot

#: A queue is reported when its depth reaches this part of the maximum.
_NEARLY_FULL = 0.8
#: A group is reported when its oldest unread event is older than this.
_BEHIND_SECONDS = 60.0
_MAX_ALERTS = 5
_SEVERITY = {"bad": 0, "warn": 1, "info": 2}


@dataclass(frozen=True, slots=True)
class HealthIssue:
    """A problem, and the page where the user can fix it."""

    tone: Literal["bad", "warn", "info"]
    message: str
    href: str
    #: Viewers without access to the queue do not see the problem; without a queue, they need access to all queues.
    queue: str | None = None


def find_health_issues(
    snapshot: OverviewSnapshot, can_see: Callable[[str], bool], can_see_all: bool
) -> list[HealthIssue]:
    """Return the problems that the viewer can see, most severe first."""
    finders = (_queue_issues, _sink_issues, _dead_letter_issues, _group_issues, _alert_issues, _query_issues)
    issues = [issue for find_issues in finders for issue in find_issues(snapshot)]
    visible = [issue for issue in issues if (can_see_all if issue.queue is None else can_see(issue.queue))]
    return sorted(visible, key=lambda issue: _SEVERITY[issue.tone])


def _alert_issues(snapshot: OverviewSnapshot) -> Iterator[HealthIssue]:
    for rule, key in snapshot.firing[:_MAX_ALERTS]:
        yield HealthIssue("bad", f"Alert {rule} is firing" + (f" for {key}" if key else ""), url_for("/alerts"))
    if snapshot.firing_count > _MAX_ALERTS:
        more = formatting.counted(snapshot.firing_count - _MAX_ALERTS, "more alert")
        yield HealthIssue("bad", f"{more} firing", url_for("/alerts"))


def _query_issues(snapshot: OverviewSnapshot) -> Iterator[HealthIssue]:
    lags: dict[str, float] = {}
    for (_, group), lag in snapshot.values(database_metrics.GROUP_LAG).items():
        lags[group] = lags.get(group, 0) + lag
    paused = snapshot.values(database_metrics.QUERY_PAUSED)
    for (query,), is_running in snapshot.values(database_metrics.QUERY_RUNNING).items():
        waiting = f"; {formatting.counted(lags[query], 'event')} waiting" if lags.get(query) else ""
        href = url_for("/queries", query=query)
        error = snapshot.failed_queries.get(query)
        if error is not None:
            yield HealthIssue("bad", f"The last cycle of {query} failed: {_first_line(error)}", href)
        if not is_running:
            yield HealthIssue("bad" if waiting else "info", f"Query {query} is not running{waiting}", href)
        elif paused.get((query,)):
            yield HealthIssue("warn", f"Query {query} is paused{waiting}", href)


def _dead_letter_issues(snapshot: OverviewSnapshot) -> Iterator[HealthIssue]:
    for (queue, group), count in snapshot.values(database_metrics.DEAD_LETTERS).items():
        if count:
            message = f"{formatting.counted(count, 'dead letter')} of {group} in {queue}"
            yield HealthIssue("warn", message, url_for("/dead-letters", queue=queue), queue)


def _queue_issues(snapshot: OverviewSnapshot) -> Iterator[HealthIssue]:
    for queue, depth in queue_depths(MetricsSnapshot(snapshot.samples.sampled)).items():
        limit = snapshot.limits.get(queue)
        if limit and depth >= limit * _NEARLY_FULL:
            is_full = depth >= limit
            level = "full" if is_full else f"{depth / limit:.0%} full"
            message = f"{queue} is {level}: {formatting.counted(depth, 'event')} waiting"
            yield HealthIssue("bad" if is_full else "warn", message, url_for("/queues", queue=queue), queue)


def _sink_issues(snapshot: OverviewSnapshot) -> Iterator[HealthIssue]:
    lags = snapshot.values(database_metrics.GROUP_LAG)
    for (queue, sink), is_running in snapshot.values(database_metrics.SINK_RUNNING).items():
        lag, href = lags.get((queue, sink), 0), url_for("/queues", queue=queue, group=sink)
        if not lag:
            continue
        failure = snapshot.failing_sinks.get((queue, sink))
        if not is_running:
            message = f"Sink {sink} of {queue} is not running: {formatting.counted(lag, 'event')} waiting"
            yield HealthIssue("info", message, href, queue)
        elif failure is not None:
            state = "failed too often and is resting" if failure.is_resting else "is failing"
            message = f"Sink {sink} of {queue} {state}: {_first_line(failure.error)}"
            yield HealthIssue("bad" if failure.is_resting else "warn", message, href, queue)


def _group_issues(snapshot: OverviewSnapshot) -> Iterator[HealthIssue]:
    counts = snapshot.values(database_metrics.GROUP_COUNTS)
    running = snapshot.values(database_metrics.QUERY_RUNNING)
    sinks = snapshot.values(database_metrics.SINK_RUNNING)
    for (queue, group), oldest in snapshot.values(database_metrics.GROUP_OLDEST).items():
        # _query_issues and _sink_issues report these.
        if not running.get((group,), 1) or not sinks.get((queue, group), 1) or (queue, group) in snapshot.failing_sinks:
            continue
        if counts.get((queue, group)) and oldest > _BEHIND_SECONDS:
            message = f"{group} is {formatting.duration(oldest)} behind in {queue}"
            yield HealthIssue("warn", message, url_for("/queues", queue=queue), queue)


def _first_line(error: str) -> str:
    first = error.strip().splitlines()[0] if error.strip() else "no error message"
    return first if len(first) <= 140 else f"{first[:139]}…"

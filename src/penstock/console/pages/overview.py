"""The overview: rates, freshness, lag, and the problems that need attention."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from penstock.console.data.health_issues import HealthIssue, find_health_issues
from penstock.console.data.overview_history import MAX_SNAPSHOTS, OverviewPoint, OverviewSnapshot, compute_point
from penstock.console.page import Page, View
from penstock.console.widgets import elements
from penstock.console.widgets.charts import ChartLine, TimeChart
from penstock.core import formatting
from penstock.server.metrics import database as database_metrics

#: The time span of the charts in milliseconds: the longest, and the shortest when the console has just started.
_MAX_SPAN = MAX_SNAPSHOTS * 1000
_MIN_SPAN = 60_000
_MAX_ISSUES = 8
_ISSUE_LABELS = {"bad": "Now", "warn": "Soon", "info": "Note"}


async def build(view: View) -> None:
    overview = _Overview(view)
    await view.poll("overview", view.console.overview_history.refresh, overview.show)


class _Overview:
    def __init__(self, view: View) -> None:
        self._view = view
        self._points: deque[OverviewPoint] = deque(maxlen=MAX_SNAPSHOTS)
        self._last_snapshot: OverviewSnapshot | None = None
        self._shown_issues: list[HealthIssue] | None = None
        self._empty = elements.empty_state(
            "No queues yet",
            "Push an event to create one, or start the demo, which generates events.",
            "penstock push orders '{\"amount\": 12.5}'",
        )
        self._empty.set_visibility(False)
        with elements.element("div", "ps-stack") as self._content:
            self._build_tiles()
            with elements.card("Needs attention"):
                self._issues = elements.element("ul", "ps-stack")
            with elements.element("div", "ps-grid ps-wide-columns"):
                self._build_charts()

    def _build_tiles(self) -> None:
        with elements.tiles():
            self._pushed = elements.tile("Events in", "/s", href="/queues")
            self._results = elements.tile("Results out", "/s", href="/queries")
            self._freshness = elements.tile("Freshness", href="/queries")
            self._backlog = elements.tile("Lag", href="/queues")
            self._dead = elements.tile("Dead letters", href="/dead-letters")
            self._alerts = elements.tile("Alerts", href="/alerts")

    def _build_charts(self) -> None:
        with elements.card("Events per second", hint="pushed, read by groups, written by queries"):
            self._rate_chart = TimeChart(
                "Events per second over the last five minutes",
                [ChartLine("In", 1, filled=True), ChartLine("Read", 2), ChartLine("Results", 3)],
            )
        with elements.card("Freshness", hint="from the push of an event to its result"):
            self._freshness_chart = TimeChart(
                "Freshness over the last five minutes",
                [ChartLine("Freshness", 2, filled=True, joined=True)],
                unit="seconds",
            )
        with elements.card("Lag", hint="events that groups have not read yet"):
            self._lag_chart = TimeChart(
                "Lag over the last five minutes", [ChartLine("Lag", 4, filled=True)], whole=True
            )
        with elements.card("Dead letters and alerts"):
            self._failure_chart = TimeChart(
                "Dead letters and alerts over the last five minutes",
                [ChartLine("Dead letters", 5), ChartLine("Alerts", 4)],
                whole=True,
            )

    def show(self, snapshots: Sequence[OverviewSnapshot]) -> None:
        view = self._view
        if self._last_snapshot is None and snapshots and view.can_see_all:
            ledger_points = view.console.overview_history.ledger_points
            self._points.extend(point for point in ledger_points if point.at < snapshots[0].at)
        for snapshot in snapshots:
            if self._last_snapshot is None or snapshot.at > self._last_snapshot.at:
                self._points.append(compute_point(self._last_snapshot, snapshot, view.can_see, view.can_see_all))
                self._last_snapshot = snapshot
        if self._last_snapshot is None:
            return
        has_queues = any(view.can_see(queue) for queue in self._last_snapshot.limits)
        self._empty.set_visibility(not has_queues)
        self._content.set_visibility(has_queues)
        if has_queues:
            self._show_tiles(self._last_snapshot)
            self._show_charts()
            self._show_issues(find_health_issues(self._last_snapshot, view.can_see, view.can_see_all))

    def _show_tiles(self, snapshot: OverviewSnapshot) -> None:
        now = self._points[-1]
        queues = sum(1 for queue in snapshot.limits if self._view.can_see(queue))
        self._pushed.set(formatting.rate(_recent_mean(self._points, "pushed")), _count(queues, "queue", "queues"))
        running = sum(map(bool, snapshot.values(database_metrics.QUERY_RUNNING).values()))
        self._results.set(
            formatting.rate(_recent_mean(self._points, "results", 60)),
            f"{_count(running, 'query', 'queries')} running" if self._view.can_see_all else "",
        )
        freshness = _recent_mean(self._points, "freshness")
        self._freshness.set(
            formatting.duration(freshness), "push to result" if freshness is not None else "no recent cycle"
        )
        ages = snapshot.values(database_metrics.GROUP_OLDEST).items()
        oldest = max((age for (queue, _), age in ages if self._view.can_see(queue)), default=0.0)
        self._backlog.set(
            formatting.compact(now.backlog), f"oldest {formatting.duration(oldest)}" if now.backlog else "all read"
        )
        self._dead.set(
            formatting.compact(now.dead), "to redrive or purge" if now.dead else "none", "bad" if now.dead else "idle"
        )
        self._alerts.set(
            formatting.compact(now.firing), "firing" if now.firing else "none firing", "bad" if now.firing else "idle"
        )

    def _show_charts(self) -> None:
        points = self._points
        span = (max(points[-1].at - _MAX_SPAN, min(points[0].at, points[-1].at - _MIN_SPAN)), points[-1].at)
        self._rate_chart.set([_series(points, name) for name in ("pushed", "read", "results")], span)
        self._freshness_chart.set([_series(points, "freshness")], span)
        self._lag_chart.set([_series(points, "backlog")], span)
        self._failure_chart.set([_series(points, name) for name in ("dead", "firing")], span)

    def _show_issues(self, issues: list[HealthIssue]) -> None:
        if issues == self._shown_issues:
            return
        self._shown_issues = issues
        self._issues.clear()
        with self._issues:
            for issue in issues[:_MAX_ISSUES]:
                with elements.element("li", "ps-row"):
                    elements.badge(_ISSUE_LABELS[issue.tone], issue.tone)
                    elements.link(issue.message, issue.href, "ps-break")
            if len(issues) > _MAX_ISSUES:
                elements.text(f"and {formatting.number(len(issues) - _MAX_ISSUES)} more", "ps-muted", tag="li")
            if not issues:
                with elements.element("li", "ps-row"):
                    elements.badge("OK", "good")
                    elements.text("No problems.", "ps-muted")


def _series(points: Sequence[OverviewPoint], name: str) -> list[tuple[int, float | None]]:
    return [(point.at, getattr(point, name)) for point in points]


def _recent_mean(points: Sequence[OverviewPoint], name: str, count: int = 5) -> float | None:
    """Return the mean of the last points: single points vary, since cycles commit about once per second."""
    values = [value for point in list(points)[-count:] if (value := getattr(point, name)) is not None]
    return sum(values) / len(values) if values else None


def _count(number: int, singular: str, plural: str) -> str:
    return f"{formatting.number(number)} {singular if number == 1 else plural}"


PAGE = Page("/", "Overview", "speed", build)

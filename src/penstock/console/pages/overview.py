"""The overview: rates, freshness, lag, and the problems that need attention."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.console.data.health_issues import HealthIssue, find_health_issues
from penstock.console.data.overview_history import MAX_SNAPSHOTS, is_gap
from penstock.console.page import Page, View, url_for
from penstock.console.widgets import elements, forms
from penstock.console.widgets.charts import ChartLine, TimeChart
from penstock.core import formatting
from penstock.server.metrics import database_metrics
from penstock.server.metrics.overview_snapshot import OverviewSnapshot
from penstock.server.metrics.vitals import MAX_GAP_SECONDS, RECORD_SECONDS, Vitals, compute_vitals, read_vitals


@dataclass(frozen=True)
class _ChartRange:
    """A time span of the charts. The seconds of a step are those of one point."""

    name: str
    seconds: int
    step: float


#: The first range has a point per second, from snapshots. The others have recorded vitals.
_RANGES = {
    "5m": _ChartRange("5 minutes", MAX_SNAPSHOTS, 1.0),
    "1h": _ChartRange("hour", 3600, RECORD_SECONDS),
    "6h": _ChartRange("6 hours", 6 * 3600, 60.0),
    "24h": _ChartRange("24 hours", 24 * 3600, 240.0),
}
#: Shortest time span of the charts in milliseconds, when the console has just started.
_MIN_SPAN = 60_000
_MAX_ISSUES = 8
_ISSUE_LABELS = {"bad": "Now", "warn": "Soon", "info": "Note"}


async def build(view: View) -> None:
    overview = _Overview(view)
    await view.poll("overview", view.console.overview_history.refresh, overview.show)
    if overview.range_name != "5m":
        seconds, step = overview.range.seconds, overview.range.step

        async def read() -> list[Vitals]:
            async with view.database.connection() as conn:
                return await read_vitals(conn, seconds, step)

        await view.poll(("vitals", seconds), read, overview.show_charts, seconds=RECORD_SECONDS)


class _Overview:
    def __init__(self, view: View) -> None:
        self._view = view
        chosen = view.params.get("range", "5m")
        # The record has the values of all queues.
        self.range_name = chosen if chosen in _RANGES and view.can_see_all else "5m"
        self.range = _RANGES[self.range_name]
        self._points: deque[Vitals] = deque(maxlen=MAX_SNAPSHOTS)
        self._last_snapshot: OverviewSnapshot | None = None
        self._shown_issues: list[HealthIssue] | None = None
        self._empty = elements.empty_state(
            "No queues yet",
            "Create one and send it simulated orders, or start the demo.",
            "penstock simulate orders",
        )
        self._empty.set_visibility(False)
        with elements.element("div", "ps-stack") as self._content:
            self._build_tiles()
            with elements.card("Needs attention"):
                self._issues = elements.element("ul", "ps-stack")
            if view.can_see_all:
                urls = {f"Last {each.name}": url_for("/", range=name) for name, each in _RANGES.items()}
                forms.tabs("Time span of the charts", f"Last {self.range.name}", urls)
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
            self._rate_chart = self._create_chart(
                "Events per second", [ChartLine("In", 1, filled=True), ChartLine("Read", 2), ChartLine("Results", 3)]
            )
        with elements.card("Freshness", hint="from the push of an event to its result"):
            self._freshness_chart = self._create_chart(
                "Freshness", [ChartLine("Freshness", 2, filled=True)], unit="seconds"
            )
        with elements.card("Lag", hint="events that groups have not read yet"):
            self._lag_chart = self._create_chart("Lag", [ChartLine("Lag", 4, filled=True)], whole=True)
        with elements.card("Dead letters and alerts"):
            self._failure_chart = self._create_chart(
                "Dead letters and alerts", [ChartLine("Dead letters", 5), ChartLine("Alerts", 4)], whole=True
            )

    def _create_chart(
        self, title: str, lines: Sequence[ChartLine], *, unit: str = "number", whole: bool = False
    ) -> TimeChart:
        max_gap = max(MAX_GAP_SECONDS, 2.5 * self.range.step) * 1000
        label = f"{title} over the last {self.range.name}"
        return TimeChart(label, lines, unit=unit, whole=whole, max_gap=max_gap)

    def show(self, snapshots: Sequence[OverviewSnapshot]) -> None:
        view = self._view
        for snapshot in snapshots:
            last = self._last_snapshot
            if last is not None and snapshot.at <= last.at:
                continue
            if is_gap(last, snapshot) and view.can_see_all:
                since = 0 if last is None else last.at
                recorded = view.console.overview_history.recorded
                self._points.extend(point for point in recorded if since < point.at < snapshot.at)
            self._points.append(compute_vitals(last, snapshot, view.can_see, view.can_see_all))
            self._last_snapshot = snapshot
        if self._last_snapshot is None:
            return
        has_queues = any(view.can_see(queue) for queue in self._last_snapshot.limits)
        self._empty.set_visibility(not has_queues)
        self._content.set_visibility(has_queues)
        if has_queues:
            self._show_tiles(self._last_snapshot)
            if self.range_name == "5m":
                self.show_charts(self._points)
            self._show_issues(find_health_issues(self._last_snapshot, view.can_see, view.can_see_all))

    def _show_tiles(self, snapshot: OverviewSnapshot) -> None:
        now = self._points[-1]
        queues = sum(1 for queue in snapshot.limits if self._view.can_see(queue))
        self._pushed.set(formatting.rate(_recent_mean(self._points, "pushed")), formatting.counted(queues, "queue"))
        running = sum(map(bool, snapshot.values(database_metrics.QUERY_RUNNING).values()))
        self._results.set(
            formatting.rate(_recent_mean(self._points, "results", 60)),
            f"{formatting.counted(running, 'query', 'queries')} running" if self._view.can_see_all else "",
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

    def show_charts(self, points: Sequence[Vitals]) -> None:
        now = points[-1].at if points else int(time.time() * 1000)
        oldest = points[0].at if self.range_name == "5m" else 0
        span = (max(now - self.range.seconds * 1000, min(oldest, now - _MIN_SPAN)), now)
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
                with elements.element("li", "ps-row ps-issue"):
                    elements.badge(_ISSUE_LABELS[issue.tone], issue.tone)
                    elements.link(issue.message, issue.href, "ps-break")
            if len(issues) > _MAX_ISSUES:
                elements.text(f"and {formatting.number(len(issues) - _MAX_ISSUES)} more", "ps-muted", tag="li")
            if not issues:
                with elements.element("li", "ps-row"):
                    elements.badge("OK", "good")
                    elements.text("No problems.", "ps-muted")


def _series(points: Sequence[Vitals], name: str) -> list[tuple[int, float | None]]:
    # A value is unknown in a second in which no query commits, which is no gap unless it lasts for ``max_gap``.
    return [(point.at, value) for point in points if (value := getattr(point, name)) is not None]


def _recent_mean(points: Sequence[Vitals], name: str, count: int = 5) -> float | None:
    """Return the mean of the last points: single points vary, since cycles commit about once per second."""
    values = [value for point in list(points)[-count:] if (value := getattr(point, name)) is not None]
    return sum(values) / len(values) if values else None


PAGE = Page("/", "Overview", "speed", build, short="Home")

"""How everything is now, and what needs somebody first."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from penstock.console.data.attention import Finding, findings
from penstock.console.data.vitals import KEPT, Past, Point, Sight, point
from penstock.console.page import Page, View
from penstock.console.widgets import parts
from penstock.console.widgets.charts import Course, Line
from penstock.core import formatting
from penstock.server.metrics import database as database_metrics

#: Charts show so many milliseconds.
_SPAN = KEPT * 1000
#: Or fewer, at the beginning, but not so few that a second is a step.
_SHORTEST_SPAN = 60_000
_MOST_FINDINGS = 8


async def build(view: View) -> None:
    """Make the page."""
    board = _Board(view)
    await view.follow("vitals", view.console.vitals.look, board.show)


class _Board:
    def __init__(self, view: View) -> None:
        self._view = view
        self._points: deque[Point] = deque(maxlen=KEPT)
        self._last: Sight | None = None
        self._shown: list[Finding] | None = None
        with parts.element("div", "ps-stack") as self._empty:
            parts.nothing(
                "Nothing flows yet",
                "Push an event, and this page begins to move. Or start the demo, which brings its own traffic.",
                "penstock push orders '{\"amount\": 12.5}'",
            )
        self._empty.set_visibility(False)
        with parts.element("div", "ps-stack ps-wide-gap") as self._whole:
            self._tiles()
            with parts.card("Needs attention", classes="ps-attention"):
                self._attention = parts.element("ul", "ps-findings")
            with parts.element("div", "ps-two"):
                self._charts()

    def _tiles(self) -> None:
        with parts.tiles():
            self._pushed = parts.tile("Events in", "/s", href="/queues")
            self._results = parts.tile("Results out", "/s", href="/queries")
            self._freshness = parts.tile("Freshness", href="/queries")
            self._backlog = parts.tile("Lag", href="/queues")
            self._dead = parts.tile("Dead letters", href="/dead-letters")
            self._alerts = parts.tile("Alerts", href="/alerts")

    def _charts(self) -> None:
        with parts.card("Events per second", hint="pushed, read by groups, written by queries"):
            self._rates = Course(
                "Events per second over the last five minutes",
                [Line("In", 1, filled=True), Line("Read", 2), Line("Results", 3)],
            )
        with parts.card("Freshness", hint="from a push to the result that counts it"):
            self._fresh = Course(
                "Freshness over the last five minutes", [Line("Freshness", 2, filled=True, joined=True)], unit="seconds"
            )
        with parts.card("Lag", hint="events that groups have yet to read"):
            self._lag = Course("Lag over the last five minutes", [Line("Lag", 4, filled=True)], whole=True)
        with parts.card("Dead letters and alerts"):
            self._troubles = Course(
                "Dead letters and alerts over the last five minutes",
                [Line("Dead letters", 5), Line("Alerts", 4)],
                whole=True,
            )

    def show(self, seen: Sequence[Sight]) -> None:
        """Show what was seen, with all that led to it."""
        if self._last is None and seen and self._view.sees_all:
            self._points.extend(_before(self._view.console.vitals.past, seen[0].at))
        for sight in seen:
            if self._last is None or sight.at > self._last.at:
                self._points.append(point(self._last, sight, self._view.sees, self._view.sees_all))
                self._last = sight
        if self._last is None:
            return
        has_queues = any(self._view.sees(queue) for queue in self._last.limits)
        self._empty.set_visibility(not has_queues)
        self._whole.set_visibility(has_queues)
        if has_queues:
            self._show_tiles(self._last)
            self._show_charts()
            self._show_findings(findings(self._last, self._view.sees, self._view.sees_all))

    def _show_tiles(self, sight: Sight) -> None:
        now = self._points[-1]
        queues = sum(1 for queue in sight.limits if self._view.sees(queue))
        self._pushed.set(
            formatting.rate(_lately(self._points, "pushed")), f"{formatting.number(queues)} {_plural('queue', queues)}"
        )
        running = sum(map(bool, sight.values(database_metrics.QUERY_RUNNING).values()))
        self._results.set(
            formatting.rate(_lately(self._points, "results", 60)),
            f"{formatting.number(running)} {_plural('query', running)} running" if self._view.sees_all else "",
        )
        fresh = _lately(self._points, "freshness")
        self._freshness.set(formatting.duration(fresh), "push to result" if fresh is not None else "no cycle of late")
        oldest = max(sight.values(database_metrics.GROUP_OLDEST).values(), default=0.0)
        self._backlog.set(
            formatting.compact(now.backlog), f"oldest {formatting.duration(oldest)}" if now.backlog else "all read"
        )
        self._dead.set(
            formatting.compact(now.dead), "wait for somebody" if now.dead else "none", "bad" if now.dead else None
        )
        self._alerts.set(
            formatting.compact(now.firing), "fire now" if now.firing else "quiet", "bad" if now.firing else None
        )

    def _show_charts(self) -> None:
        points = self._points
        span = (max(points[-1].at - _SPAN, min(points[0].at, points[-1].at - _SHORTEST_SPAN)), points[-1].at)
        self._rates.set([_series(points, name) for name in ("pushed", "read", "results")], span)
        self._fresh.set([_series(points, "freshness")], span)
        self._lag.set([_series(points, "backlog")], span)
        self._troubles.set([_series(points, name) for name in ("dead", "firing")], span)

    def _show_findings(self, found: list[Finding]) -> None:
        if found == self._shown:
            return
        self._shown = found
        self._attention.clear()
        with self._attention:
            for each in found[:_MOST_FINDINGS]:
                with parts.element("li"):
                    parts.badge({"bad": "Now", "warn": "Soon", "info": "Note"}[each.tone], each.tone)
                    with parts.element("a", "ps-break", href=each.href):
                        parts.text(each.what)
            if len(found) > _MOST_FINDINGS:
                parts.text(f"and {formatting.number(len(found) - _MOST_FINDINGS)} more", "ps-muted", tag="li")
            if not found:
                with parts.element("li"):
                    parts.badge("All well", "good")
                    parts.text("Nothing needs you.", "ps-muted")


def _before(past: Sequence[Past], until: int) -> list[Point]:
    """What queries did before anybody looked; of the rest nothing is known."""
    known = [each for each in past if each.at < until]
    return [Point(each.at, None, each.read, each.results, each.freshness, None, None, None) for each in known]


def _series(points: Sequence[Point], name: str) -> list[tuple[int, float | None]]:
    return [(each.at, getattr(each, name)) for each in points]


def _lately(points: Sequence[Point], name: str, count: int = 5) -> float | None:
    """The mean of the last few looks: a cycle commits once or twice in a second, and windows close together."""
    values = [value for each in list(points)[-count:] if (value := getattr(each, name)) is not None]
    return sum(values) / len(values) if values else None


def _plural(word: str, count: int) -> str:
    return word if count == 1 else {"query": "queries"}.get(word, f"{word}s")


PAGE = Page("/", "Overview", "speed", build)

"""One query: its pipeline, rates, cycles and failures, with buttons to pause and resume it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from penstock.console.data.views import ViewDefinition, find_view
from penstock.console.formatting import TimeFormatter
from penstock.console.page import View, url_for
from penstock.console.widgets import elements, forms
from penstock.console.widgets.charts import BarSeries, StackedBarChart
from penstock.console.widgets.elements import Tone
from penstock.console.widgets.operator_tree import OperatorTree
from penstock.console.widgets.pipeline import PipelineDiagram
from penstock.console.widgets.tables import DataTable, TableCell, TableColumn, number_column
from penstock.core import formatting
from penstock.core.errors import NotFound
from penstock.engine import query_commands
from penstock.engine.cycle_ledger import COMMIT_BEFORE, Activity, CycleRecord, read_activity, read_cycles
from penstock.engine.query_registry import QueryInfo, Registry
from penstock.log.queue_info import GroupInfo
from penstock.server.auth.identity import Role

_CHART_CYCLES = 60
_TABLE_CYCLES = 15
_SHOWN_FAILURES = 3
_ACTIVITY_TIME = timedelta(minutes=5)
#: Events read per second are averaged over this time.
_RATE_SECONDS = 10.0
#: Results are averaged over a longer time: windows close rarely, and many at once.
_RESULT_SECONDS = 60.0
#: The phases of a cycle in their order, and the index of each colour. "wait" lasts from the plan to the Spark job.
_PHASE_COLOURS = {
    "wait": 6,
    "spark": 1,
    COMMIT_BEFORE: 9,
    "prepare": 7,
    "copy": 2,
    "advance": 8,
    "merge": 3,
    "dead letters": 5,
    "append": 4,
}
#: Phases that always take less than this are left out of the chart.
_SHORTEST_PHASE_MS = 0.5
#: The tone of each state of a query.
STATE_TONES: dict[str, Tone] = {"running": "good", "paused": "warn", "stopped": "idle", "failed": "bad"}
_CYCLE_TONES: dict[str, Tone] = {"committed": "good", "failed": "bad"}


@dataclass(frozen=True)
class QueryData:
    info: QueryInfo
    activity: Activity
    cycles: list[CycleRecord]
    groups: list[GroupInfo]
    failures: list[CycleRecord]


async def read_query(view: View, name: str) -> QueryData:
    info = next((query for query in await Registry(view.log).list() if query.name == name), None)
    activity = None if info is None else await read_activity(view.database, info.id, _ACTIVITY_TIME)
    if info is None or activity is None:
        raise NotFound(f"there is no query {name!r}: list them with `penstock query list`")
    return QueryData(
        info,
        activity,
        cycles=await read_cycles(view.database, info.id, limit=_CHART_CYCLES),
        groups=[group for group in await view.log.groups() if group.query_id == name],
        failures=await read_cycles(view.database, info.id, limit=_SHOWN_FAILURES, failed=True),
    )


class QueryDetail:
    def __init__(self, view: View, name: str) -> None:
        self._view = view
        self._name = name
        #: None if the query is no materialized view.
        self._definition: ViewDefinition | None = None

    async def build(self) -> None:
        if self._name not in {query.name for query in await Registry(self._view.log).list()}:
            elements.empty_state(f"There is no query {self._name}", "It may have been deleted.", "penstock query list")
            return
        self._definition = await find_view(self._view.log, self._name)
        self._build_head()
        if self._definition is None:
            with elements.card("Pipeline", hint="events per second; results over the last minute"):
                self._pipeline = PipelineDiagram()
        else:
            with elements.card("Operators"):
                self._tree = OperatorTree()
        self._build_tiles()
        with elements.card("Time per cycle", hint=f"the last {_CHART_CYCLES} cycles"):
            self._phases = StackedBarChart("Milliseconds of each phase of the last cycles")
        with elements.card("Failed cycles", hint="each was retried from its start") as self._failure_card:
            self._failures = DataTable("Errors", _failure_columns(self._view.times))
        with elements.card("Cycles"):
            self._cycles = DataTable("Cycles", _cycle_columns(self._view.times))
        await self._view.poll(("query", self._name), lambda: read_query(self._view, self._name), self._show)

    def _build_head(self) -> None:
        reason = self._view.missing_permission(Role.ADMIN)
        with elements.element("div", "ps-row ps-between"):
            with elements.element("div", "ps-row"):
                forms.breadcrumb(("All queries", "/queries"), current=self._name)
                self._state = elements.badge("…")
                self._driver = elements.text("", "ps-muted ps-small ps-break ps-driver")
            with elements.element("div", "ps-row"):
                if self._definition is not None:
                    elements.link("Rows of the view", url_for("/views", view=self._name), "ps-button")
                with elements.element("div") as self._board_link:
                    elements.link("Live board", url_for("/live", query=self._name), "ps-button")
                self._pause_button = elements.button("Pause", self._pause, icon="pause", disabled_reason=reason)
                self._resume_button = elements.button(
                    "Resume", self._resume, icon="play_arrow", tone="primary", disabled_reason=reason
                )
        self._resume_button.set_visibility(False)

    def _build_tiles(self) -> None:
        with elements.tiles():
            self._rate = elements.tile("Events", "/s")
            self._freshness = elements.tile("Freshness")
            self._lag = elements.tile("Lag")
            self._watermark = elements.tile("Watermark")
            self._windows = elements.tile("Open windows")
            self._late = elements.tile("Late")
            self._dead = elements.tile("Dead letters")
        for tile in (self._watermark, self._windows, self._late):
            tile.frame.set_visibility(self._definition is None)  # a view has no windows

    async def _pause(self) -> None:
        done = f"{self._name} finishes its cycle and pauses"
        async with self._view.action("POST /v1/queries/{query}/pause", Role.ADMIN, subject=self._name, done=done):
            await query_commands.pause(self._view.database, self._name)
            self._show_state("paused", is_paused=True)

    async def _resume(self) -> None:
        done = f"{self._name} resumes"
        async with self._view.action("POST /v1/queries/{query}/resume", Role.ADMIN, subject=self._name, done=done):
            await query_commands.resume(self._view.database, self._name)
            self._show_state("running", is_paused=False)

    def _show_state(self, state: str, *, is_paused: bool) -> None:
        elements.set_badge(self._state, state, STATE_TONES[state])
        self._pause_button.set_visibility(not is_paused)
        self._resume_button.set_visibility(is_paused)

    def _show(self, query: QueryData) -> None:
        info = query.info
        self._show_state(info.state, is_paused=info.is_paused)
        self._driver.set_text(f"driver {info.driver}" if info.is_running and info.driver else "no driver")
        self._board_link.set_visibility(query.activity.has_result)
        self._show_tiles(query)
        if self._definition is None:
            self._pipeline.show(info.description, _input_rate(query.cycles), _output_rate(query.cycles), query.groups)
        else:
            self._tree.show(self._definition.operators, lags={group.queue: group.lag for group in query.groups})
        self._show_cycles(query.cycles)
        self._failure_card.set_visibility(bool(query.failures))
        self._failures.set(query.failures)

    def _show_tiles(self, query: QueryData) -> None:
        info, activity, times = query.info, query.activity, self._view.times
        self._rate.set(formatting.rate(_input_rate(query.cycles)), f"cycle {formatting.number(info.cycle)}")
        freshness = _mean([cycle.freshness_seconds for cycle in _recent(query.cycles)])
        self._freshness.set(formatting.duration(freshness), f"committed {times.ago(info.committed_at)}")
        lag = sum(group.lag for group in query.groups)
        self._lag.set(formatting.compact(lag), "events to read" if lag else "all read")
        behind = None if activity.watermark is None else (datetime.now(UTC) - activity.watermark).total_seconds()
        self._watermark.set(
            times.clock(activity.watermark),
            "no watermark yet" if behind is None else f"{formatting.duration(behind)} behind",
        )
        closed = f"{formatting.compact(activity.windows)} closed in 5 min"
        self._windows.set(formatting.compact(activity.open_windows) if activity.has_result else "–", closed)
        self._late.set(formatting.compact(activity.late), "in 5 min", "warn" if activity.late else "idle")
        self._dead.set(formatting.compact(activity.dead), "in 5 min", "bad" if activity.dead else "idle")

    def _show_cycles(self, cycles: Sequence[CycleRecord]) -> None:
        committed = [cycle for cycle in reversed(cycles) if cycle.took is not None]
        series = [
            BarSeries(phase, colour, [_phase_milliseconds(cycle, phase) for cycle in committed])
            for phase, colour in _PHASE_COLOURS.items()
        ]
        self._phases.set(
            [self._view.times.clock(cycle.committed_at) for cycle in committed],
            [bars for bars in series if max(bars.values, default=0.0) >= _SHORTEST_PHASE_MS],
        )
        self._cycles.set(cycles[:_TABLE_CYCLES])


def _cycle_columns(times: TimeFormatter) -> list[TableColumn[CycleRecord]]:
    return [
        number_column("Cycle", lambda cycle: formatting.number(cycle.cycle)),
        TableColumn("State", lambda cycle: TableCell(cycle.state, tone=_CYCLE_TONES.get(cycle.state, "info"))),
        TableColumn("Committed", lambda cycle: times.clock(cycle.committed_at), classes="ps-desktop"),
        number_column("Duration", lambda cycle: formatting.duration(cycle.seconds)),
        number_column("Freshness", lambda cycle: formatting.duration(cycle.freshness_seconds), classes="ps-desktop"),
        number_column("Events", lambda cycle: formatting.number(cycle.events_in)),
        number_column("Windows closed", lambda cycle: formatting.number(cycle.windows), classes="ps-desktop"),
        number_column("Late", lambda cycle: formatting.number(cycle.late), classes="ps-desktop"),
        number_column("Dead letters", lambda cycle: formatting.number(cycle.dead), classes="ps-desktop"),
    ]


def _failure_columns(times: TimeFormatter) -> list[TableColumn[CycleRecord]]:
    return [
        number_column("Cycle", lambda cycle: formatting.number(cycle.cycle)),
        TableColumn("Planned", lambda cycle: TableCell(times.full(cycle.planned_at), classes="ps-nowrap")),
        TableColumn("Error", lambda cycle: TableCell(cycle.error or "", classes="ps-error ps-mono")),
    ]


def _recent(cycles: Sequence[CycleRecord]) -> list[CycleRecord]:
    since = datetime.now(UTC) - timedelta(seconds=_RATE_SECONDS)
    return [cycle for cycle in cycles if cycle.committed_at is not None and cycle.committed_at > since]


def _input_rate(cycles: Sequence[CycleRecord]) -> float:
    """Return the events read per second."""
    return sum(cycle.events_in or 0 for cycle in _recent(cycles)) / _RATE_SECONDS


def _output_rate(cycles: Sequence[CycleRecord]) -> float:
    """Return the events written per second."""
    now = datetime.now(UTC)
    ages = [((now - cycle.committed_at).total_seconds(), cycle) for cycle in cycles if cycle.committed_at is not None]
    recent = [(age, cycle) for age, cycle in ages if age <= _RESULT_SECONDS]
    events = sum(cycle.events_out or 0 for _, cycle in recent)
    return events / max((age for age, _ in recent), default=_RESULT_SECONDS)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _phase_milliseconds(cycle: CycleRecord, phase: str) -> float:
    if phase != "wait":
        return (cycle.took or {}).get(phase, 0.0)
    if cycle.started_at is None:
        return 0.0
    return max(0.0, (cycle.started_at - cycle.planned_at).total_seconds() * 1000)

"""Queries: which there are, and of one the way that events take, where its time goes, and what went wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from penstock.console.data.vitals import Sight
from penstock.console.page import Page, View, link
from penstock.console.widgets import parts
from penstock.console.widgets.charts import Stacks
from penstock.console.widgets.parts import Cell, Column, Tone, numbers
from penstock.console.widgets.pipeline import Pipeline
from penstock.core import formatting
from penstock.core.errors import NotFound
from penstock.engine import commands
from penstock.engine.client_queries import ClientQuery, list_client_queries
from penstock.engine.ledger import COMMIT_BEFORE, Activity, CycleRecord, read_activity, read_cycles
from penstock.engine.registry import QueryInfo, Registry
from penstock.log.queue_info import GroupInfo
from penstock.server.auth.identity import Role
from penstock.server.metrics import database as database_metrics
from penstock.server.metrics.family import MetricFamily

_CYCLES = 60
_LISTED = 15
_LATELY = timedelta(minutes=5)
#: Rates are those of so many seconds.
_RATE_SECONDS = 10.0
_RESULT_SECONDS = 60.0
#: The parts of a cycle, in their order, and the colour of each. Before Spark begins, the plan waits for it.
_PARTS = {
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
_COLUMNS: Sequence[Column | str] = (
    "Query",
    "State",
    *numbers("Events", "Lag", "Freshness", "Watermark behind", "Open windows", "Late", "Dead letters", "Failed cycles"),
)
_SHARED_COLUMNS: Sequence[Column | str] = ("Query", "State", "Reads", "Writes", "Group", *numbers("Lag"), "Last got on")
_SHARED_SECONDS = 5.0
_CYCLE_COLUMNS: Sequence[Column | str] = (
    *numbers("Cycle"),
    "State",
    "Committed",
    *numbers("Took", "Freshness", "Events", "Windows closed", "Late", "Dead letters"),
)
_TONES: dict[str, Tone] = {"running": "good", "paused": "warn", "stopped": "idle"}


async def build(view: View) -> None:
    """Make the page: of all queries, or of the one that is named."""
    name = view.params.get("query")
    if name is None:
        await _list(view)
    else:
        await _Details(view, name).build()


async def _list(view: View) -> None:
    with parts.element("div") as nothing:
        parts.nothing(
            "No query runs yet",
            "A stream in Python becomes a query when it is started; its results and its cycles are shown here.",
            "penstock run app.py",
            icon="account_tree",
        )
    with parts.card("Queries") as card:
        table = parts.table("Queries", _COLUMNS)
    with parts.card(
        "Computed by clients", hint="streams of the message plane, whose state is in penstock.state"
    ) as theirs:
        shared = parts.table("Computed by clients", _SHARED_COLUMNS)
    there = {"spark": False, "clients": False}

    def show_or_hide() -> None:
        card.set_visibility(there["spark"])
        theirs.set_visibility(there["clients"])
        nothing.set_visibility(not any(there.values()))

    def show(seen: Sequence[Sight]) -> None:
        sight = seen[-1]
        names = sorted(query for (query,) in sight.values(database_metrics.QUERY_RUNNING))
        table.set([_row(sight, name) for name in names])
        there["spark"] = bool(names)
        show_or_hide()

    def show_shared(found: Sequence[ClientQuery]) -> None:
        shared.set([_shared_row(view, each) for each in found])
        there["clients"] = bool(found)
        show_or_hide()

    await view.follow("shared queries", lambda: list_client_queries(view.log), show_shared, seconds=_SHARED_SECONDS)
    await view.follow("vitals", view.console.vitals.look, show)


def _shared_row(view: View, query: ClientQuery) -> list[Cell | str]:
    return [
        Cell(query.name, classes="ps-strong"),
        Cell(query.state, tone=_TONES[query.state]),
        query.queue,
        query.sink or "–",
        query.group,
        formatting.compact(query.lag),
        view.times.ago(query.committed_at),
    ]


def _row(sight: Sight, name: str) -> list[Cell | str]:
    def of(family: MetricFamily) -> float | None:
        return sight.values(family).get((name,))

    state = "stopped"
    if of(database_metrics.QUERY_RUNNING):
        state = "paused" if of(database_metrics.QUERY_PAUSED) else "running"
    lag = sum(value for (_, group), value in sight.values(database_metrics.GROUP_LAG).items() if group == name)
    fresh = sight.distributions(database_metrics.FRESHNESS).get((name,))
    cycles = 0.0 if fresh is None else sum(fresh.counts)
    mean = fresh.sum / cycles if fresh is not None and cycles else None
    failed = of(database_metrics.QUERY_FAILED) or 0
    return [
        Cell(name, href=link("/queries", query=name), classes="ps-strong"),
        Cell(state, tone=_TONES[state]),
        f"{formatting.rate(of(database_metrics.QUERY_THROUGHPUT))}/s",
        formatting.compact(lag),
        formatting.duration(mean),
        formatting.duration(of(database_metrics.QUERY_WATERMARK_LAG)),
        formatting.number(of(database_metrics.OPEN_WINDOWS)),
        formatting.compact(of(database_metrics.QUERY_LATE)),
        formatting.compact(of(database_metrics.QUERY_DEAD)),
        Cell(formatting.number(failed), tone="bad" if name in sight.failed else None),
    ]


@dataclass(frozen=True)
class Found:
    """All that there is to know of one query."""

    info: QueryInfo
    activity: Activity
    cycles: list[CycleRecord]
    groups: list[GroupInfo]
    failures: list[CycleRecord]


async def find(view: View, name: str) -> Found:
    """Look a query up."""
    infos = [each for each in await Registry(view.log).list() if each.name == name]
    activity = await read_activity(view.database, infos[0].id, _LATELY) if infos else None
    if activity is None:
        raise NotFound(f"there is no query {name!r}")
    info = infos[0]
    return Found(
        info,
        activity,
        await read_cycles(view.database, info.id, limit=_CYCLES),
        [group for group in await view.log.groups() if group.query_id == name],
        await read_cycles(view.database, info.id, limit=3, failed=True),
    )


class _Details:
    def __init__(self, view: View, name: str) -> None:
        self._view = view
        self._name = name

    async def build(self) -> None:
        """Make the page of one query, if it is there."""
        if self._name not in {each.name for each in await Registry(self._view.log).list()}:
            parts.nothing(f"There is no query {self._name}", "It may have been deleted.", "penstock query list")
            return
        self._head()
        with parts.card("Pipeline", hint="events per second; results over the last minute"):
            self._pipeline = Pipeline()
        self._tiles()
        with parts.card("Where the time of each cycle went", hint=f"the last {_CYCLES} cycles"):
            self._stacks = Stacks("Milliseconds of each part of the last cycles")
        self._errors = parts.element("div", "ps-stack")
        self._errors.set_visibility(False)
        self._said: list[tuple[int, str | None]] = []
        with parts.card("Cycles"):
            self._cycles = parts.table("Cycles", _CYCLE_COLUMNS)
        await self._view.follow(("query", self._name), lambda: find(self._view, self._name), self._show)

    def _head(self) -> None:
        view = self._view
        is_admin = view.may(Role.ADMIN)
        why = "Your key may look, not change: pausing needs the role admin"
        with parts.element("div", "ps-row ps-between"):
            with parts.element("div", "ps-row"):
                with parts.element("a", href="/queries"):
                    parts.text("All queries")
                parts.text("/", "ps-muted")
                parts.text(self._name, "ps-strong ps-break")
                self._state = parts.badge("…")
                self._driver = parts.text("", "ps-muted ps-small ps-break ps-driver")
            with parts.element("div", "ps-row"):
                with parts.element("a", "ps-tab", href=link("/live", query=self._name)):
                    parts.text("Live board")
                self._pause = parts.button("Pause", self._press_pause, icon="pause", enabled=is_admin, why_not=why)
                self._resume = parts.button(
                    "Resume", self._press_resume, icon="play_arrow", tone="primary", enabled=is_admin, why_not=why
                )
        self._resume.set_visibility(False)

    def _tiles(self) -> None:
        with parts.tiles():
            self._rate = parts.tile("Events", "/s")
            self._fresh = parts.tile("Freshness")
            self._lag = parts.tile("Lag")
            self._watermark = parts.tile("Watermark")
            self._windows = parts.tile("Open windows")
            self._late = parts.tile("Late")
            self._dead = parts.tile("Dead letters")

    async def _press_pause(self) -> None:
        view = self._view
        done = f"{self._name} finishes its cycle and pauses"
        async with view.acting("POST /v1/queries/{query}/pause", Role.ADMIN, subject=self._name, done=done):
            await commands.pause(view.database, self._name)
            self._show_state("paused")

    async def _press_resume(self) -> None:
        view = self._view
        done = f"{self._name} goes on"
        async with view.acting("POST /v1/queries/{query}/resume", Role.ADMIN, subject=self._name, done=done):
            await commands.resume(view.database, self._name)
            self._show_state("running")

    def _show_state(self, state: str, *, is_paused: bool | None = None) -> None:
        paused = state == "paused" if is_paused is None else is_paused
        self._state.set_text(state)
        self._state.classes(replace=f"ps-badge ps-tone-{_TONES[state]}")
        self._pause.set_visibility(not paused)
        self._resume.set_visibility(paused)

    def _show(self, found: Found) -> None:
        info, activity, times = found.info, found.activity, self._view.times
        self._show_state(info.state, is_paused=info.is_paused)
        self._driver.set_text(f"driven by {info.driver}" if info.is_running and info.driver else "nobody runs it")
        lately = _lately(found.cycles)
        self._rate.set(formatting.rate(_per_second(lately, "events_in")), f"cycle {formatting.number(info.cycle)}")
        self._fresh.set(
            formatting.duration(_mean([_age(cycle) for cycle in lately])), f"committed {times.ago(info.committed_at)}"
        )
        lag = sum(group.lag for group in found.groups)
        self._lag.set(formatting.compact(lag), "events to read" if lag else "all read")
        behind = None if activity.watermark is None else (datetime.now(UTC) - activity.watermark).total_seconds()
        self._watermark.set(
            times.clock(activity.watermark),
            f"{formatting.duration(behind)} behind" if behind is not None else "closes nothing",
        )
        closed = f"{formatting.compact(activity.windows)} closed in 5 min"
        self._windows.set(formatting.compact(activity.open_windows) if activity.has_result else "–", closed)
        self._late.set(formatting.compact(activity.late), "in 5 min", "warn" if activity.late else None)
        self._dead.set(formatting.compact(activity.dead), "in 5 min", "bad" if activity.dead else None)
        self._pipeline.show(info.description, _per_second(lately, "events_in"), _results(found.cycles), found.groups)
        self._show_cycles(found.cycles)
        self._show_errors(found.failures)

    def _show_cycles(self, cycles: Sequence[CycleRecord]) -> None:
        times = self._view.times
        committed = [cycle for cycle in reversed(cycles) if cycle.took is not None]
        stacks = [
            (
                name,
                colour,
                [_waited(cycle) if name == "wait" else (cycle.took or {}).get(name, 0.0) for cycle in committed],
            )
            for name, colour in _PARTS.items()
        ]
        # What never takes half a millisecond would only fill the legend.
        self._stacks.set(
            [times.clock(cycle.committed_at) for cycle in committed],
            [(name, colour, values) for name, colour, values in stacks if max(values, default=0.0) >= 0.5],
        )
        self._cycles.set([_cycle_row(self._view, cycle) for cycle in cycles[:_LISTED]])

    def _show_errors(self, failures: Sequence[CycleRecord]) -> None:
        said = [(cycle.cycle, cycle.error) for cycle in failures]
        if said == self._said:
            return
        self._said = said
        self._errors.clear()
        self._errors.set_visibility(bool(failures))
        if failures:
            with self._errors, parts.card("Cycles that failed", hint="each was done again from where it began"):
                for cycle in failures:
                    when = self._view.times.full(cycle.planned_at)
                    parts.text(f"Cycle {formatting.number(cycle.cycle)}, {when}", "ps-muted ps-small")
                    parts.text(cycle.error, "ps-error ps-mono", tag="p")


def _cycle_row(view: View, cycle: CycleRecord) -> list[Cell | str]:
    tone: Tone = {"committed": "good", "failed": "bad"}.get(cycle.state, "info")  # type: ignore[assignment]
    return [
        formatting.number(cycle.cycle),
        Cell(cycle.state, tone=tone),
        view.times.clock(cycle.committed_at),
        formatting.duration(cycle.seconds),
        formatting.duration(_age(cycle)),
        formatting.number(cycle.events_in),
        formatting.number(cycle.windows),
        formatting.number(cycle.late),
        formatting.number(cycle.dead),
    ]


def _lately(cycles: Sequence[CycleRecord]) -> list[CycleRecord]:
    since = datetime.now(UTC) - timedelta(seconds=_RATE_SECONDS)
    return [cycle for cycle in cycles if cycle.committed_at is not None and cycle.committed_at > since]


def _per_second(cycles: Sequence[CycleRecord], what: str) -> float:
    return float(sum(getattr(cycle, what) or 0 for cycle in cycles)) / _RATE_SECONDS


def _results(cycles: Sequence[CycleRecord]) -> float:
    """Events written per second. Windows close together and seldom, so this looks back for longer."""
    now = datetime.now(UTC)
    ages = [((now - each.committed_at).total_seconds(), each) for each in cycles if each.committed_at is not None]
    recent = [(age, each) for age, each in ages if age <= _RESULT_SECONDS]
    return sum(each.events_out or 0 for _, each in recent) / max((age for age, _ in recent), default=_RESULT_SECONDS)


def _age(cycle: CycleRecord) -> float | None:
    if cycle.committed_at is None or cycle.oldest_at is None:
        return None
    return (cycle.committed_at - cycle.oldest_at).total_seconds()


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _waited(cycle: CycleRecord) -> float:
    """Milliseconds from the plan to where Spark began."""
    if cycle.started_at is None:
        return 0.0
    return max(0.0, (cycle.started_at - cycle.planned_at).total_seconds() * 1000)


PAGE = Page("/queries", "Queries", "account_tree", build, needs_all=True)

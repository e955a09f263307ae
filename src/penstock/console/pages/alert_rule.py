"""An alert rule: its form, a trial on past results with a chart of the thresholds, and silences."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Any

from nicegui import ui

from penstock.console.page import View, error_message, url_for
from penstock.console.polling import EXPECTED_ERRORS
from penstock.console.widgets import elements, forms
from penstock.console.widgets.charts import ChartLine, TimeChart, window_gap
from penstock.console.widgets.tables import DataTable, TableCell, TableColumn, key_cell
from penstock.core import formatting
from penstock.core.clock import to_micros
from penstock.core.errors import InvalidOption, InvalidRequest
from penstock.engine.alerts.rule_store import RuleInfo, RuleStore
from penstock.engine.alerts.trial import Trial, TrialAlert, TrialPoint, try_rule
from penstock.server.auth.identity import Role
from penstock.stream import rules
from penstock.stream.rules import Condition, ConditionKind, Rule

PATH = "/alerts"

_KINDS: dict[ConditionKind, str] = {
    "above": "is above a limit",
    "below": "is below a limit",
    "change": "changes by a share of the previous windows",
    "zscore": "is some standard deviations off",
    "absent": "is missing for some seconds",
}
_SILENCES = {"15 minutes": 900, "1 hour": 3600, "8 hours": 28_800, "1 day": 86_400}
#: The most keys to choose from, and the most alerts of a trial.
_MAX_KEYS = 100
_MAX_ALERTS = 100
#: The most names of fields below the form.
_MAX_FIELDS = 40


async def build(view: View, name: str | None) -> None:
    store = RuleStore(view.log)
    info = None if name is None else next((each for each in await store.all() if each.rule.name == name), None)
    forms.breadcrumb(("Alerts", PATH), current=name or "New rule")
    if name is not None and info is None:
        elements.empty_state("This rule does not exist", "It was deleted, or the link is wrong.")
        return
    reason = view.missing_permission(Role.ADMIN)
    rule = None if info is None else info.rule
    queues = [queue.name for queue in await view.log.queues() if view.can_see(queue.name)]
    if reason:
        elements.text(f"{reason} to change rules.", "ps-muted", tag="p")
    with elements.element("div", "ps-stack"):
        with elements.card("Rule"):
            form = _RuleForm(rule, queues)
            fields_hint = elements.text("", "ps-muted ps-small ps-break", tag="p")
            error = elements.error_text()
            buttons = elements.element("div", "ps-row ps-end")
        trial_card = _TrialCard(view)
        if info is not None:
            _silence_card(view, store, info, reason)

    async def show_fields() -> None:
        """Suggest the fields of the recent results of the queue."""
        fields = await store.fields(form.queue) if form.queue in queues else []
        form.suggest_fields(fields)
        fields_hint.set_text(f"Fields of the results: {', '.join(fields[:_MAX_FIELDS])}" if fields else "")

    async def try_it() -> None:
        error.set_text("")
        try:
            trial_card.show(await try_rule(view.log, form.read()))
        except (InvalidRequest, *EXPECTED_ERRORS) as problem:
            error.set_text(error_message(problem))

    async def save() -> None:
        error.set_text("")
        made: Rule | None = None
        try:
            made = form.read()
            await store.check(made)
        except InvalidOption as problem:
            if problem.option != "value" or made is None:
                error.set_text(error_message(problem))
                return
            question = f"Save {made.name} with a field that no result has?"
            if not await elements.confirm(question, error_message(problem), "Save anyway", danger=False):
                return
        except (InvalidRequest, *EXPECTED_ERRORS) as problem:
            error.set_text(error_message(problem))
            return
        async with view.action("PUT /v1/rules/{rule}", Role.ADMIN, subject=made.name, done=f"Saved {made.name}"):
            await view.log.catalog.get(made.queue)
            await store.save(made, strict=False)
            ui.navigate.to(url_for(PATH, rule=made.name))

    async def delete() -> None:
        if rule is None or not await elements.confirm(
            f"Delete the rule {rule.name}?", "Its firing alerts clear.", "Delete"
        ):
            return
        async with view.action("DELETE /v1/rules/{rule}", Role.ADMIN, subject=rule.name, done=f"Deleted {rule.name}"):
            await store.delete(rule.name)
            ui.navigate.to(PATH)

    with buttons:
        if rule is not None:
            elements.button("Delete", delete, tone="danger", disabled_reason=reason)
        elements.button("Try on past windows", try_it, icon="history")
        elements.button("Save", save, tone="primary", disabled_reason=reason)
    form.on_queue_change(show_fields)
    if rule is not None:
        await show_fields()
        await try_it()


class _RuleForm:
    def __init__(self, rule: Rule | None, queues: Sequence[str]) -> None:
        condition = Condition("above", 100, 100) if rule is None else rule.condition
        self._rule = rule
        with elements.element("div", "ps-row"):
            self._name = None if rule is not None else _text("Name", "")
            self._queue = _text("Queue of the results", rule.queue if rule else "", queues)
            self._value = _text("Field", rule.value if rule else "value")
        with elements.element("div", "ps-row"):
            self._kind = _select("The rule fires when the field", _KINDS, condition.kind)
            self._limit = _number("Limit", condition.limit)
            self._clear = _number("Clears at", None if condition.clear == condition.limit else condition.clear)
            self._over = _number("Windows to compare with", condition.over or None)
            self._live = _text("Query whose open windows count too", rule.live or "" if rule else "")
        self._dropped = elements.text("", "ps-muted ps-small", tag="p")
        with elements.element("div", "ps-row"):
            self._fire_after = _number("Windows until it fires", rule.fire_after if rule else 1)
            self._clear_after = _number("Windows until it clears", rule.clear_after if rule else 1)
            self._alerts = _text("Queue for alerts", rule.alerts if rule else "alerts", queues)
            self._expect = _text("Expected keys, with commas", ", ".join(rule.expect) if rule else "")
        self._kind.on_value_change(self._show_options)
        self._show_options()

    @property
    def queue(self) -> str:
        return str(self._queue.value or "")

    def on_queue_change(self, handler: Callable[[], Awaitable[None]]) -> None:
        self._queue.on("blur", handler)

    def suggest_fields(self, fields: Sequence[str]) -> None:
        self._value.set_autocomplete(list(fields))

    def _show_options(self) -> None:
        """Show the options that the kind of condition has."""
        kind = self._kind.value
        self._clear.set_visibility(kind != "absent")
        self._over.set_visibility(kind in ("change", "zscore"))
        self._expect.set_visibility(kind == "absent")
        self._value.set_visibility(kind != "absent")
        self._live.set_visibility(kind == "above")
        is_dropped = kind != "above" and bool(self._live.value)
        self._dropped.set_visibility(is_dropped)
        self._dropped.set_text(
            f"Open windows of {self._live.value} do not count then: only a value above a limit is certain before its "
            "window closes."
            if is_dropped
            else ""
        )

    def read(self) -> Rule:
        """Return the rule, or raise InvalidRequest."""
        kind: ConditionKind = self._kind.value
        if self._limit.value is None:
            raise InvalidRequest("enter a limit")
        options: dict[str, Any] = {}
        if self._clear.value is not None and kind != "absent":
            options["clear"] = float(self._clear.value)
        if self._over.value is not None and kind in ("change", "zscore"):
            options["over"] = int(self._over.value)
        expect = [key.strip() for key in (self._expect.value or "").split(",") if key.strip()]
        return rules.rule(
            self._name.value if self._name is not None else self._rule.name if self._rule is not None else "",
            on=self._queue.value,
            value=self._value.value,
            when=rules.make_condition(kind, float(self._limit.value), **options),
            alerts=self._alerts.value,
            fire_after=int(self._fire_after.value or 1),
            clear_after=int(self._clear_after.value or 1),
            live=(self._live.value or "").strip() or None if kind == "above" else None,
            expect=expect if kind == "absent" else (),
        )


class _TrialCard:
    """The past values of a key with the thresholds, and the alerts of all keys."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._points: dict[str, list[TrialPoint]] = {}
        with elements.card("Past windows", hint="nothing is stored") as self._card:
            self._summary = elements.text("", "ps-muted", tag="p")
            self._key = _select("Key", {}, None)
            self._key.on_value_change(self._show_key)
            lines = [
                ChartLine("Value"),
                ChartLine("Upper threshold", colour=4),
                ChartLine("Lower threshold", colour=3),
                ChartLine("Fires", colour=5, filled=True),
            ]
            self._chart = TimeChart("Past values and thresholds", lines, height=240)
            self._alerts = DataTable("Alerts on past windows", self._columns())
        self._card.set_visibility(False)

    def show(self, trial: Trial) -> None:
        self._card.set_visibility(True)
        self._points = {}
        for point in trial.points:
            self._points.setdefault(point.key, []).append(point)
        fired = [each for each in trial.alerts if each.state == "firing"]
        self._summary.set_text(
            f"{formatting.counted(len(trial.points), 'result')} of {formatting.counted(len(self._points), 'key')}: "
            f"the rule would have fired {'once' if len(fired) == 1 else f'{formatting.number(len(fired))} times'}."
            if trial.points
            else "The queue has no results yet."
        )
        alarmed = {each.key: None for each in fired}
        keys = [*alarmed, *(key for key in self._points if key not in alarmed)][:_MAX_KEYS]
        self._key.set_options({key: key or "(no key)" for key in keys}, value=keys[0] if keys else None)
        self._key.set_visibility(len(keys) > 1)
        self._show_key()
        self._alerts.set(list(trial.alerts)[-_MAX_ALERTS:][::-1])

    def _show_key(self) -> None:
        points = self._points.get(self._key.value, [])
        times = [to_micros(point.at) // 1000 for point in points]
        if not times:
            self._chart.set([[], [], [], []], (0, 1))
            return
        readers: Sequence[Callable[[TrialPoint], float | None]] = (
            lambda point: point.value,
            lambda point: point.upper,
            lambda point: point.lower,
            lambda point: point.value if point.firing else None,
        )
        series = [[(at, read(point)) for at, point in zip(times, points, strict=True)] for read in readers]
        # Results that are not windows have no steps.
        self._chart.max_gap = window_gap(times) if all(point.is_window for point in points) else inf
        self._chart.set(series, (times[0], max(times[-1], times[0] + 1)))

    def _columns(self) -> list[TableColumn[TrialAlert]]:
        times = self._view.times

        def when(alert: TrialAlert) -> TableCell:
            start = alert.window_start
            return TableCell(times.clock(start or alert.at), title=f"until {times.clock(alert.at)}" if start else "")

        return [
            TableColumn("When", when),
            TableColumn(
                "State",
                lambda each: TableCell(each.state, tone="bad" if each.state == "firing" else "good"),
            ),
            TableColumn("Key", lambda each: key_cell(each.key or "(no key)")),
            TableColumn("Message", lambda each: each.message, classes="ps-desktop"),
        ]


def _silence_card(view: View, store: RuleStore, info: RuleInfo, reason: str) -> None:
    name = info.rule.name
    with elements.card("Silence", hint="no new alerts for a time"):
        if info.silenced_until is not None:
            elements.text(f"Silent until {view.times.clock(info.silenced_until)}", "ps-strong", tag="p")
        for key, until in info.silenced_keys.items():
            elements.text(f"{key} is silent until {view.times.clock(until)}", "ps-strong", tag="p")
        with elements.element("div", "ps-row"):
            duration = _select("For", {seconds: label for label, seconds in _SILENCES.items()}, 3600)
            chosen_key = _text("Key", "")
            chosen_key.props["placeholder"] = "all keys"

        async def silence(seconds: float) -> None:
            key = chosen_key.value or None
            done = f"{name} is silent" if seconds else f"{name} is not silent any more"
            async with view.action("POST /v1/rules/{rule}/silence", Role.ADMIN, subject=name, done=done):
                if seconds or key is not None:
                    await store.silence(name, seconds, key=key)
                else:
                    for each in (None, *info.silenced_keys):
                        await store.silence(name, 0, key=each)
                ui.navigate.to(url_for(PATH, rule=name))

        with elements.element("div", "ps-row ps-end"):
            if info.silenced_until is not None or info.silenced_keys:
                elements.button("End the silence", lambda: silence(0), disabled_reason=reason)
            elements.button(
                "Silence", lambda: silence(float(duration.value)), icon="notifications_off", disabled_reason=reason
            )


def _text(label: str, value: str, choices: Sequence[str] = ()) -> ui.input:
    created = ui.input(label, value=value, autocomplete=list(choices) or None).props("outlined dense")
    created.props["aria-label"] = label
    return created.classes("ps-grow")


def _number(label: str, value: float | None) -> ui.number:
    created = ui.number(label, value=value).props("outlined dense").classes("ps-grow")
    created.props["aria-label"] = label
    return created


def _select(label: str, options: dict[Any, str], value: Any) -> ui.select:
    created = ui.select(options, label=label, value=value).props("outlined dense options-dense").classes("ps-grow")
    created.props["aria-label"] = label
    return created

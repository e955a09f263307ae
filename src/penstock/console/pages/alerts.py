"""Alerts: those that are firing, recent alerts, and the rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.console.formatting import TimeFormatter
from penstock.console.page import Page, View, url_for
from penstock.console.pages import alert_rule
from penstock.console.widgets import elements
from penstock.console.widgets.tables import DataTable, TableCell, TableColumn, key_cell, number_column
from penstock.core import formatting
from penstock.core.errors import NotFound
from penstock.engine.alerts.rule_store import FiringAlert
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.sinks.alerts import RuleInfo, RuleStore
from penstock.stream.rules import Condition

_MAX_FIRING = 200
_MAX_RECENT = 50


@dataclass(frozen=True)
class AlertsData:
    rules: list[RuleInfo]
    firing: list[FiringAlert]
    #: The newest events of the rules' alert queues.
    recent: list[Event]


async def read_alerts(log: Log) -> AlertsData:
    store = RuleStore(log)
    rules = await store.all()
    recent: list[Event] = []
    for queue in sorted({info.rule.alerts for info in rules}):
        try:
            recent += await log.browse(queue, limit=_MAX_RECENT)
        except NotFound:
            continue
    recent.sort(key=lambda event: event.appended_at, reverse=True)
    return AlertsData(rules, await store.firing(), recent[:_MAX_RECENT])


async def build(view: View) -> None:
    if "rule" in view.params or view.params.get("new"):
        await alert_rule.build(view, view.params.get("rule"))
        return
    with elements.element("div", "ps-row ps-end"):
        elements.link("New rule", url_for("/alerts", new="1"), "ps-button", "add")
    with elements.element("div", "ps-stack") as content:
        with elements.card("Firing now"):
            with elements.element("div") as firing:
                firing_table = DataTable("Firing alerts", _firing_columns(view.times))
            with elements.element("div", "ps-row") as no_alerts:
                elements.badge("OK", "good")
                elements.text("No alert is firing.", "ps-muted")
        with elements.card("Rules"):
            rule_table = DataTable("Rules", _rule_columns(view.times))
        with elements.card("Recent alerts", hint=f"the last {_MAX_RECENT}") as recent_card:
            recent_table = DataTable("Recent alerts", _recent_columns(view.times))
    empty = elements.empty_state(
        "No rules yet",
        "A rule checks each result of a query and fires an alert if its condition holds. Create one above.",
        icon="notifications_none",
    )

    def show(alerts: AlertsData) -> None:
        empty.set_visibility(not alerts.rules)
        content.set_visibility(bool(alerts.rules))
        firing.set_visibility(bool(alerts.firing))
        no_alerts.set_visibility(not alerts.firing)
        recent_card.set_visibility(bool(alerts.recent))
        firing_table.set(alerts.firing[:_MAX_FIRING])
        rule_table.set(alerts.rules)
        recent_table.set(alerts.recent)

    await view.poll("alerts", lambda: read_alerts(view.log), show)


def _firing_columns(times: TimeFormatter) -> list[TableColumn[FiringAlert]]:
    return [
        TableColumn("Rule", lambda alert: TableCell(alert.rule, href=_rule_url(alert.rule), tone="bad")),
        TableColumn("Key", lambda alert: key_cell(alert.key or "(no key)")),
        TableColumn("Since", lambda alert: times.clock(alert.since)),
        number_column("For", lambda alert: times.ago(alert.since).removesuffix(" ago")),
    ]


def _recent_columns(times: TimeFormatter) -> list[TableColumn[Event]]:
    def field(event: Event, name: str) -> Any:
        return event.data.get(name) if isinstance(event.data, dict) else None

    def state(event: Event) -> TableCell:
        value = str(field(event, "state") or "unknown")
        return TableCell(value, tone="bad" if value == "firing" else "good")

    def narrow(text: str, href: str = "") -> TableCell:
        return TableCell(text, href, classes="ps-key ps-narrow")

    return [
        TableColumn("When", lambda event: times.clock(event.appended_at)),
        TableColumn("State", state),
        TableColumn("Rule", lambda event: narrow(rule := str(field(event, "rule") or "–"), _rule_url(rule))),
        TableColumn("Key", lambda event: narrow(str(field(event, "key") or event.key or "–"))),
        TableColumn("Message", lambda event: str(field(event, "message") or ""), classes="ps-desktop"),
        number_column("Value", lambda event: times.value(field(event, "value")), classes="ps-desktop"),
    ]


def describe_condition(value: str, condition: Condition) -> str:
    """Describe a condition in words.

    >>> describe_condition("avg", Condition("above", 101.58, 75.0))
    'avg is above 101.58, until it is 75 or less'
    """
    windows = formatting.counted(condition.over, "window")
    limit, clear = formatting.full_number(condition.limit), formatting.full_number(condition.clear)
    match condition.kind:
        case "above":
            return f"{value} is above {limit}" + (f", until it is {clear} or less" if clear != limit else "")
        case "below":
            return f"{value} is below {limit}" + (f", until it is {clear} or more" if clear != limit else "")
        case "change":
            return f"{value} differs by more than {condition.limit:.0%} from the previous {windows}"
        case "zscore":
            return f"{value} is {limit} standard deviations away from the previous {windows}"
        case "absent":
            return f"no window closes for {formatting.duration(condition.limit)}"


def _rule_url(rule: str) -> str:
    return url_for("/alerts", rule=rule)


def _queue_cell(queue: str) -> TableCell:
    return TableCell(queue, href=url_for("/queues", queue=queue))


def _rule_columns(times: TimeFormatter) -> list[TableColumn[RuleInfo]]:
    def silence(info: RuleInfo) -> TableCell:
        if info.silenced_until is not None:
            return TableCell(f"until {times.clock(info.silenced_until)}", tone="warn")
        if info.silenced_keys:
            return TableCell(", ".join(info.silenced_keys), tone="warn")
        return TableCell("–")

    return [
        TableColumn("Rule", lambda info: key_cell(info.rule.name, _rule_url(info.rule.name))),
        TableColumn("Fires when", lambda info: describe_condition(info.rule.value, info.rule.condition)),
        TableColumn("On", lambda info: _queue_cell(info.rule.queue), classes="ps-desktop"),
        TableColumn("Alerts go to", lambda info: _queue_cell(info.rule.alerts), classes="ps-desktop"),
        TableColumn("Silent", silence),
        number_column(
            "Firing", lambda info: TableCell(formatting.number(info.firing), tone="bad" if info.firing else None)
        ),
    ]


PAGE = Page("/alerts", "Alerts", "notifications", build, needs_all=True)

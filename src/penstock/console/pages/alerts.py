"""Alerts: what fires now, what was said lately, and the rules behind it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.console.page import Page, View, link
from penstock.console.widgets import parts
from penstock.console.widgets.parts import Cell, Column
from penstock.core import formatting
from penstock.core.errors import NotFound
from penstock.engine.alerts.store import FiringAlert
from penstock.log.event import Event
from penstock.log.log import Log
from penstock.sinks.alerts import RuleInfo, RuleStore
from penstock.stream.rules import Condition

_MOST_FIRING = 200
_MOST_SAID = 50


@dataclass(frozen=True)
class Found:
    """What there is to know of alerts."""

    rules: list[RuleInfo]
    firing: list[FiringAlert]
    said: list[Event]


async def find(log: Log) -> Found:
    """Look at the rules, and at the newest events in their queues."""
    rules = RuleStore(log)
    known = await rules.all()
    said: list[Event] = []
    for queue in sorted({each.rule.alerts for each in known}):
        try:
            said += await log.browse(queue, limit=_MOST_SAID)
        except NotFound:
            continue
    said.sort(key=lambda event: event.appended_at, reverse=True)
    return Found(known, await rules.firing(), said[:_MOST_SAID])


async def build(view: View) -> None:
    """Make the page."""
    with parts.element("div") as nothing:
        parts.nothing(
            "No rules yet",
            "A rule looks at the results of a query and says when one of them is worth an alert.",
            "penstock rule save hot --on readings.5s --value avg --above 80",
            icon="notifications_none",
        )
    with parts.element("div", "ps-stack ps-wide-gap") as whole:
        with parts.card("Firing now") as now:
            firing = parts.table("Alerts that fire now", ["Rule", "Key", "Since", Column("For", is_number=True)])
        quiet = parts.element("div", "ps-row")
        with quiet:
            parts.badge("Quiet", "good")
            parts.text("No rule fires.", "ps-muted")
        with parts.card("Rules"):
            rules = parts.table("Rules", ["Rule", "Fires when", "On", "Alerts go to", Column("Firing", is_number=True)])
        with parts.card("Lately", hint=f"the last {_MOST_SAID}") as lately:
            said = parts.table("Alerts of late", ["When", "State", "Rule", "Key", Column("Value", is_number=True)])

    def show(found: Found) -> None:
        nothing.set_visibility(not found.rules)
        whole.set_visibility(bool(found.rules))
        now.set_visibility(bool(found.firing))
        quiet.set_visibility(not found.firing)
        lately.set_visibility(bool(found.said))
        firing.set([_firing(view, *each) for each in found.firing[:_MOST_FIRING]])
        rules.set([_rule(each) for each in found.rules])
        said.set([_said(view, event) for event in found.said])

    await view.follow("alerts", lambda: find(view.log), show)


def _firing(view: View, rule: str, key: str, since: datetime) -> list[Cell | str]:
    return [
        Cell(rule, tone="bad"),
        Cell(key or "(no key)", classes="ps-strong"),
        view.times.clock(since),
        view.times.ago(since).removesuffix(" ago"),
    ]


def _rule(info: RuleInfo) -> list[Cell | str]:
    rule = info.rule
    return [
        Cell(rule.name, classes="ps-strong"),
        in_words(rule.value, rule.condition),
        Cell(rule.queue, href=link("/queues", queue=rule.queue)),
        Cell(rule.alerts, href=link("/queues", queue=rule.alerts)),
        Cell(formatting.number(info.firing), tone="bad" if info.firing else None),
    ]


def _said(view: View, event: Event) -> list[Cell | str]:
    data: Any = event.data if isinstance(event.data, dict) else {}
    state = str(data.get("state", "said"))
    return [
        view.times.clock(event.appended_at),
        Cell(state, tone="bad" if state == "firing" else "good"),
        str(data.get("rule", "–")),
        str(data.get("key") or event.key or "–"),
        view.times.of(data.get("value")),
    ]


def in_words(value: str, condition: Condition) -> str:
    """A condition as a person would say it.

    >>> in_words("avg", Condition("above", 80.0, 75.0))
    'avg is above 80, until it is 75 or less'
    """
    limit, clear = formatting.number(condition.limit), formatting.number(condition.clear)
    match condition.kind:
        case "above":
            return f"{value} is above {limit}" + (f", until it is {clear} or less" if clear != limit else "")
        case "below":
            return f"{value} is below {limit}" + (f", until it is {clear} or more" if clear != limit else "")
        case "change":
            return f"{value} differs by more than {condition.limit:.0%} from the {condition.over} windows before"
        case "zscore":
            return f"{value} is {limit} standard deviations away from the {condition.over} windows before"
        case "absent":
            return f"no window comes for {formatting.duration(condition.limit)}"


PAGE = Page("/alerts", "Alerts", "notifications", build, needs_all=True)

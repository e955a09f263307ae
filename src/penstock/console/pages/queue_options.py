"""The options of a queue: what they are, and changing one."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from nicegui import ui

from penstock.console.page import View, link
from penstock.console.widgets import parts
from penstock.console.widgets.parts import Cell, Column
from penstock.core import formatting
from penstock.core.errors import InvalidOption
from penstock.log.options import (
    DEFAULT_DEDUP_SECONDS,
    DEFAULTS,
    format_option,
    is_nullable_option,
    option_choices,
    parse_option,
)
from penstock.log.queue import Queue
from penstock.server.auth.identity import Role

PATH = "/queues"

#: What an option is for, in a line; the reference says more.
_MEANINGS = {
    "lease_seconds": "How long a consumer may take before others get the event",
    "retry_limit": "Failures of an event before it becomes a dead letter",
    "retry_delay_ms": "How long a failed event waits before it is tried again",
    "expiry_limit": "Leases that may end unanswered on an event before it becomes a dead letter",
    "delay_seconds": "How old an event has to be before it is delivered",
    "quiet_seconds": "How long nothing may have come to a partition before it is read",
    "retention_seconds": "How long events are kept",
    "retention_drops_unread": "Whether events that nobody has read yet go too",
    "dedup_window_seconds": "How long an id is remembered, so that a second event with it is left out",
    "max_depth_events": "How far the slowest group may be behind before pushes are refused",
    "max_event_bytes": "The largest event",
    "max_redrives": "How often a dead letter may be sent back",
    "overflow": "What becomes of pushes when the queue is full",
    "away_seconds": "After how long a group that nobody asks for no longer counts",
    "key_field": "The field of NDJSON events that holds the key",
    "id_field": "The field of NDJSON events that holds the id",
    "time_field": "The field of NDJSON events that holds the time",
}


#: What somebody should know before they change one of these: it may cost events.
_WARNINGS = {
    "retention_seconds": "Events that are older than that are dropped with the segment they are in, for good.",
    "retention_drops_unread": "With yes, events are dropped when they are old enough, read or not.",
    "overflow": "With shed, pushes to a full queue are dropped and counted; the producer is told that they were.",
    "dedup_window_seconds": "With a shorter time, an event that is pushed again later is taken for a new one.",
    "max_event_bytes": "Pushes with an event that is larger are refused from then on.",
}
_WHY_NOT = "Your key may not change queues: it needs the role admin"


def build(view: View, queue: Queue) -> None:
    """Make the part: all options, and above them the one that is being changed."""
    defaults = {**DEFAULTS, "dedup_window_seconds": DEFAULT_DEDUP_SECONDS[queue.partitioning]}
    chosen = view.params.get("option")
    if chosen in defaults:
        _change(view, queue, chosen, defaults[chosen])
    with parts.card("Options", hint="Also changed with penstock queue configure, or over HTTP"):
        table = parts.table("Options", ("Option", "Value", Column("Meaning", classes="ps-desk"), "From"))
        table.set(
            [
                Cell(each.name, href=_address(queue, each.name), classes="ps-mono"),
                _value(each.name, getattr(queue, each.name)),
                _MEANINGS.get(each.name, ""),
                Cell("default", tone="idle")
                if getattr(queue, each.name) == defaults[each.name]
                else Cell("set", tone="info"),
            ]
            for each in fields(queue)
            if each.name in defaults
        )


def _change(view: View, queue: Queue, name: str, default: Any) -> None:
    may = view.may(Role.ADMIN, queue=queue.name)
    now = getattr(queue, name)
    with parts.card(f"Change {name}", hint=_MEANINGS.get(name, "")):
        choices = option_choices(name)
        label = f"{name}, now {_value(name, now)}"
        given: ui.radio | ui.input
        if choices:
            given = ui.radio(list(choices), value=format_option(now)).props("dense inline")
        else:
            given = ui.input(label, value=format_option(now), placeholder=_form(name)).props("outlined dense")
            given.props["hint"] = _form(name)
        given.props["aria-label"] = label
        given.set_enabled(may)
        wrong = parts.text("", "ps-trouble")
        wrong.props["role"] = "alert"

        async def change(text: str) -> None:
            try:
                wanted = parse_option(name, text)
            except InvalidOption as error:
                wrong.set_text(str(error))
                return
            wrong.set_text("" if wanted != now else "It is that already")
            if wanted != now:
                await _confirmed(view, queue, name, wanted)

        with parts.element("div", "ps-row ps-end"):
            with parts.element("a", "ps-step", href=_address(queue, None)):
                parts.text("Leave it")
            if now != default:
                parts.button(
                    f"Back to {_value(name, default)}, the default",
                    lambda: change(format_option(default)),
                    enabled=may,
                    why_not=_WHY_NOT,
                )
            parts.button(
                "Change it", lambda: change(str(given.value or "")), tone="primary", enabled=may, why_not=_WHY_NOT
            )


async def _confirmed(view: View, queue: Queue, name: str, wanted: Any) -> None:
    """Ask once more, change the option and show that it is."""
    before, after = _value(name, getattr(queue, name)), _value(name, wanted)
    detail = f"{name} was {before}. {_WARNINGS.get(name, 'It counts from the next push or pop on.')}"
    question = f"Set {name} of {queue.name} to {after}?"
    with view.client.content:
        if not await parts.confirm(question, detail, "Change it", danger=name in _WARNINGS):
            return
        async with view.acting(
            "PATCH /v1/queues/{queue}",
            Role.ADMIN,
            subject=f"{queue.name}, {name}",
            queue=queue.name,
            done=f"{name} is {after}",
        ):
            await view.log.configure(queue.name, {name: wanted})
            ui.navigate.to(_address(queue, None))


def _address(queue: Queue, option: str | None) -> str:
    return link(PATH, queue=queue.name, tab="options", option=option)


def _form(name: str) -> str:
    """How a value is written."""
    if name.endswith("_field"):
        return "the name of a field, or none"
    unit = "seconds" if name.endswith("_seconds") else "milliseconds" if name.endswith("_ms") else "a number"
    unit = "bytes" if name.endswith("_bytes") else unit
    return f"{unit}, or none" if is_nullable_option(name) else unit


def _value(name: str, value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if value == 0:
            return "0"
        if name.endswith("_seconds"):
            return formatting.duration(float(value))
        if name.endswith("_ms"):
            return formatting.duration(value / 1000)
        return formatting.size(value) if name.endswith("_bytes") else formatting.number(value)
    return str(value)

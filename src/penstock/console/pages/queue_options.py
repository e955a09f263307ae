"""The options of a queue, with a form to change one."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from nicegui import ui

from penstock.console.page import View, url_for
from penstock.console.widgets import elements
from penstock.console.widgets.tables import DataTable, TableCell, TableColumn, key_cell
from penstock.core import formatting
from penstock.core.errors import InvalidOption
from penstock.log.queue import Queue
from penstock.log.queue_options import (
    DEFAULT_DEDUP_SECONDS,
    DEFAULTS,
    DESCRIPTIONS,
    format_option,
    is_nullable_option,
    option_choices,
    parse_option,
)
from penstock.server.auth.identity import Role

PATH = "/queues"

#: Shown before a change of these options, which can lose events.
_WARNINGS = {
    "retention_seconds": "Older events are deleted with their segment. This cannot be undone.",
    "retention_drops_unread": "With yes, old events are deleted even if no group has read them.",
    "overflow": "With shed, pushes to a full queue are dropped and counted. The producer gets a notice.",
    "dedup_window_seconds": "With a shorter time, an event that is pushed again later is stored as a new event.",
    "max_event_bytes": "Pushes with a larger event are refused.",
}


def build(view: View, queue: Queue) -> None:
    defaults = {**DEFAULTS, "dedup_window_seconds": DEFAULT_DEDUP_SECONDS[queue.partitioning]}

    def source(name: str) -> TableCell:
        is_default = getattr(queue, name) == defaults[name]
        return TableCell("default", tone="idle") if is_default else TableCell("set", tone="info")

    chosen = view.params.get("option")
    if chosen in defaults:
        _change_card(view, queue, chosen, defaults[chosen])
    with elements.card("Options", hint="penstock queue configure changes them too"):
        columns: list[TableColumn[str]] = [
            TableColumn("Option", lambda name: key_cell(name, _option_url(queue, name))),
            TableColumn(
                "Value", lambda name: TableCell(_format_value(name, getattr(queue, name)), classes="ps-nowrap")
            ),
            TableColumn("Description", lambda name: DESCRIPTIONS[name].rstrip("."), classes="ps-desktop"),
            TableColumn("Source", source),
        ]
        DataTable("Options", columns).set(field.name for field in fields(queue) if field.name in defaults)


def _change_card(view: View, queue: Queue, name: str, default: Any) -> None:
    reason = view.missing_permission(Role.ADMIN, queue=queue.name)
    current = getattr(queue, name)
    with elements.card(f"Change {name}", hint=DESCRIPTIONS[name].rstrip(".")):
        choices = option_choices(name)
        label = f"{name}, now {_format_value(name, current)}"
        field: ui.radio | ui.input
        if choices:
            field = ui.radio(list(choices), value=format_option(current)).props("dense inline")
        else:
            field = ui.input(label, value=format_option(current), placeholder=_input_hint(name)).props("outlined dense")
            field.props["hint"] = _input_hint(name)
        field.props["aria-label"] = label
        field.set_enabled(not reason)
        error_text = elements.error_text()

        async def change(text: str) -> None:
            try:
                value = parse_option(name, text)
            except InvalidOption as error:
                error_text.set_text(str(error))
                return
            error_text.set_text("" if value != current else "The option has this value already")
            if value != current:
                await _confirm_change(view, queue, name, value)

        with elements.element("div", "ps-row ps-end"):
            elements.link("Cancel", _option_url(queue, None), "ps-button")
            if current != default:
                elements.button(
                    f"Reset to {_format_value(name, default)}, the default",
                    lambda: change(format_option(default)),
                    disabled_reason=reason,
                )
            elements.button("Change it", lambda: change(str(field.value or "")), tone="primary", disabled_reason=reason)


async def _confirm_change(view: View, queue: Queue, name: str, value: Any) -> None:
    """Change an option after confirmation."""
    before, after = _format_value(name, getattr(queue, name)), _format_value(name, value)
    detail = f"{name} is {before} now. {_WARNINGS.get(name, 'The change applies from the next push or pop.')}"
    question = f"Set {name} of {queue.name} to {after}?"
    with view.client.content:
        if not await elements.confirm(question, detail, "Change it", danger=name in _WARNINGS):
            return
        async with view.action(
            "PATCH /v1/queues/{queue}",
            Role.ADMIN,
            subject=f"{queue.name}, {name}",
            queue=queue.name,
            done=f"{name} is {after}",
        ):
            await view.log.configure(queue.name, {name: value})
            ui.navigate.to(_option_url(queue, None))


def _option_url(queue: Queue, option: str | None) -> str:
    return url_for(PATH, queue=queue.name, tab="options", option=option)


def _input_hint(name: str) -> str:
    """Return the unit and form of an option's values, as a hint for the input."""
    if name.endswith("_field"):
        return "the name of a field, or none"
    unit = "seconds" if name.endswith("_seconds") else "milliseconds" if name.endswith("_ms") else "a number"
    unit = "bytes" if name.endswith("_bytes") else unit
    return f"{unit}, or none" if is_nullable_option(name) else unit


def _format_value(name: str, value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return str(value)
    if name.endswith("_seconds"):
        return _with_unit(value, "s", formatting.duration(float(value)))
    if name.endswith("_ms"):
        return _with_unit(value, "ms", formatting.duration(value / 1000))
    if name.endswith("_bytes"):
        return _with_unit(value, "bytes", formatting.size(value))
    return formatting.number(value)


def _with_unit(value: float, unit: str, readable: str) -> str:
    """Return the value in the unit of its option, and in a larger one if that differs: ``300 s (5 min)``."""
    shown = f"{formatting.number(value)} {unit}"
    return shown if value == 0 or readable == shown else f"{shown} ({readable})"

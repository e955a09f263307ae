"""Elements that pages consist of: cards, tiles, badges, empty states, buttons, dialogs. ``console.css`` styles them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from nicegui import ui
from nicegui.element import Element

Tone = Literal["good", "warn", "bad", "info", "idle"]


def element(tag: str, classes: str = "", **attributes: str) -> Element:
    """Create an HTML element. An underscore in an attribute becomes a dash: ``aria_label`` sets ``aria-label``."""
    created = ui.element(tag)
    if classes:
        created.classes(classes)
    for name, value in attributes.items():
        created.props[name.rstrip("_").replace("_", "-")] = value
    return created


def text(content: object, classes: str = "", tag: str = "span") -> ui.label:
    """Create an element with text, which the browser never parses as markup."""
    created = ui.label(str(content))
    created.tag = tag
    return created.classes(classes)


def card(title: str, *, hint: str = "") -> Element:
    """Create a section with a title. ``hint`` is shown beside the title."""
    with element("section", "ps-card ps-stack", aria_label=title) as section, element("header", "ps-row ps-between"):
        text(title, tag="h2")
        if hint:
            text(hint, "ps-muted ps-small")
    return section


@dataclass(frozen=True)
class Tile:
    """A number with a title and a note."""

    value: ui.label
    note: ui.label
    frame: Element

    def set(self, value: str, note: str = "", tone: Tone = "idle", *, title: str = "") -> None:
        """Set the number and the note. ``title`` is shown when the pointer is over the number."""
        self.value.set_text(value)
        if self.value.props.get("title", "") != title:
            self.value.props["title"] = title
            self.value.update()
        self.note.set_text(note)
        # NiceGUI hides an element with a class, which must stay.
        hidden = "" if self.frame.visible else "hidden"
        self.frame.classes(replace=f"ps-tile ps-stack ps-tone-{tone} {hidden}")


def tile(title: str, unit: str = "", *, href: str = "") -> Tile:
    """Create a tile, which is a link if ``href`` is given."""
    with element("a", "ps-tile ps-stack", href=href) if href else element("div", "ps-tile ps-stack") as frame:
        text(title, "ps-muted ps-small")
        with element("span", "ps-tile-value"):
            value = text("–", "ps-tile-number")
            text(unit, "ps-muted ps-small")
        note = text("", "ps-tile-note ps-muted ps-small ps-ellipsis")
    return Tile(value, note, frame)


def tiles() -> Element:
    return element("div", "ps-grid ps-tiles")


def badge(content: str, tone: Tone = "idle") -> ui.label:
    """Create a short state with a coloured dot."""
    return text(content, f"ps-badge ps-tone-{tone}")


def set_badge(label: ui.label, content: str, tone: Tone) -> None:
    label.set_text(content)
    label.classes(replace=f"ps-badge ps-tone-{tone}")


def error_text() -> ui.label:
    """Create the place for the error of an input."""
    created = text("", "ps-field-error")
    created.props["role"] = "alert"
    return created


def link(label: str, href: str, classes: str = "", icon: str = "", **attributes: str) -> None:
    with element("a", classes, href=href, **attributes):
        if icon:
            ui.icon(icon).props("aria-hidden=true")
        text(label)


def command_line(command: str) -> Element:
    """Create a shell command with a button that copies it."""
    with element("div", "ps-command") as created:
        text(command, tag="code").props["tabindex"] = "0"
        copy_button = element("button", "ps-button", type="button", aria_label=f"Copy: {command}")
        with copy_button:
            ui.icon("content_copy").props("aria-hidden=true")
        copy_button.on("click", js_handler=f"(event) => penstock.copy({json.dumps(command)}, event.currentTarget)")
    return created


def empty_state(title: str, reason: str = "", command: str = "", icon: str = "water_drop") -> Element:
    """Create the placeholder of a list without entries: the reason, and the command to run next."""
    with element("div", "ps-empty ps-stack") as created:
        ui.icon(icon).props("aria-hidden=true")
        text(title, tag="h3")
        if reason:
            text(reason, "ps-muted", tag="p")
        if command:
            command_line(command)
    return created


def button(
    label: str,
    on_click: Callable[[], Any],
    *,
    icon: str = "",
    tone: Literal["plain", "primary", "danger"] = "plain",
    disabled_reason: str = "",
) -> ui.button:
    """Create a button. If there is a reason to disable it, its tooltip shows the reason."""
    created = ui.button(label, on_click=on_click, icon=icon or None, color=None).props("no-caps unelevated dense")
    created.classes(f"ps-button ps-button-{tone}")
    if disabled_reason:
        created.disable()
        created.tooltip(disabled_reason)
        created.props["title"] = disabled_reason
    return created


@contextmanager
def dialog(title: str, detail: str = "") -> Iterator[ui.dialog]:
    """Create a dialog. Elements that are created inside become its content."""
    with ui.dialog() as created, ui.card().classes("ps-dialog"):
        created.props["aria-label"] = title
        text(title, tag="h2")
        if detail:
            text(detail, "ps-muted", tag="p")
        yield created


async def confirm(question: str, detail: str, confirm_label: str, *, danger: bool = True) -> bool:
    """Ask the user to confirm an action."""
    with dialog(question, detail) as created, element("div", "ps-row ps-end"):
        button("Cancel", lambda: created.submit(False))
        button(confirm_label, lambda: created.submit(True), tone="danger" if danger else "primary")
    return bool(await open_dialog(created))


async def open_dialog(dialog: ui.dialog) -> Any:
    """Open a dialog and return the submitted value, or None if the user closes it or leaves the page."""
    try:
        return await dialog
    finally:
        if not dialog.is_deleted and not dialog.client.is_deleted:
            dialog.delete()

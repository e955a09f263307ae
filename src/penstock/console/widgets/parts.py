"""What pages are made of: cards, tiles, tables of numbers, marks, empty states. Their look is in ``look.css``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

from nicegui import ui
from nicegui.element import Element

Tone = Literal["good", "warn", "bad", "info", "idle"]


def element(tag: str, classes: str = "", **attributes: str) -> Element:
    """A plain element of HTML; ``aria_label`` and the like become attributes with a dash."""
    made = ui.element(tag)
    if classes:
        made.classes(classes)
    for name, value in attributes.items():
        made.props[name.rstrip("_").replace("_", "-")] = value
    return made


def text(content: object, classes: str = "", tag: str = "span") -> ui.label:
    """Some words; what users have named is shown as it is, never read as markup."""
    made = ui.label(str(content))
    made.tag = tag
    return made.classes(classes)


@contextmanager
def card(title: str = "", *, hint: str = "", classes: str = "") -> Iterator[Element]:
    """A frame around what belongs together; what is put into it while the title is made stands at the right of it."""
    with element("section", f"ps-card {classes}") as made:
        if title:
            made.props["aria-label"] = title
            with element("header", "ps-card-head"):
                text(title, tag="h2")
                if hint:
                    text(hint, "ps-muted")
        yield made


@dataclass
class Tile:
    """One number that matters, what it is, and a line about it."""

    value: ui.label
    note: ui.label
    frame: Element
    tone: Tone | None = None

    def set(self, value: str, note: str = "", tone: Tone | None = None) -> None:
        """Say what it is now."""
        self.value.set_text(value)
        self.note.set_text(note)
        if tone != self.tone:
            self.frame.classes(remove=f"ps-tone-{self.tone}", add=f"ps-tone-{tone}" if tone else "")
            self.tone = tone


def tile(title: str, unit: str = "", *, href: str = "") -> Tile:
    """Make a tile; ``href`` makes it a link to where one sees more."""
    frame = element("a", "ps-tile", href=href) if href else element("div", "ps-tile")
    with frame:
        text(title, "ps-tile-title")
        with element("span", "ps-tile-value"):
            value = text("–", "ps-figure")
            if unit:
                text(unit, "ps-unit")
        note = text("", "ps-tile-note")
    return Tile(value, note, frame)


def tiles() -> Element:
    """A row for tiles, as many beside each other as there is room for."""
    return element("div", "ps-tiles")


def badge(content: str, tone: Tone = "idle") -> ui.label:
    """A state in a word, with a dot of its colour."""
    return text(content, f"ps-badge ps-tone-{tone}")


def copyable(command: str) -> Element:
    """A command to copy."""
    with element("div", "ps-command") as made:
        text(command, tag="code").props["tabindex"] = "0"
        button = element("button", "ps-copy", type="button", aria_label=f"Copy: {command}")
        with button:
            ui.icon("content_copy").props("aria-hidden=true")
        button.on("click", js_handler=f"(event) => penstock.copy({json.dumps(command)}, event.currentTarget)")
    return made


@contextmanager
def empty(title: str, why: str = "", command: str = "", icon: str = "water_drop") -> Iterator[Element]:
    """What is shown where there is nothing yet: why, and what to do next."""
    with element("div", "ps-empty") as made:
        ui.icon(icon).props("aria-hidden=true")
        text(title, tag="h3")
        if why:
            text(why, "ps-muted", tag="p")
        if command:
            copyable(command)
        yield made


def nothing(title: str, why: str = "", command: str = "", icon: str = "water_drop") -> Element:
    """:func:`empty` with nothing more in it."""
    with empty(title, why, command, icon) as made:
        return made


@dataclass(frozen=True)
class Column:
    """A column of a table: its title, and how it is aligned."""

    title: str
    is_number: bool = False
    classes: str = ""
    #: What the table is sorted by when somebody presses the title.
    sort: str = ""


def numbers(*titles: str) -> list[Column]:
    """Columns of numbers."""
    return [Column(title, is_number=True) for title in titles]


@dataclass(frozen=True)
class Cell:
    """A cell that is more than its text: a link, a tone, or a bar behind the number."""

    text: str
    href: str = ""
    tone: Tone | None = None
    #: How much of the cell the bar fills, from 0 to 1.
    bar: float | None = None
    #: The course of the number, as a small line.
    line: Sequence[float] = ()
    classes: str = ""


@dataclass
class Table:
    """A table of a few hundred rows that is rewritten as a whole: one message, whatever has changed."""

    html: ui.html
    columns: Sequence[Column]
    label: str
    #: What it is sorted by, if somebody may choose, and whether the largest is first.
    sorted_by: str = ""
    is_descending: bool = True
    _last: str = field(default="", repr=False)

    def on_sort(self, press: Callable[[str], Any]) -> None:
        """Call this with what somebody wants it sorted by."""
        self.html.on(
            "click",
            lambda event: press(str(event.args)),
            js_handler="(event) => { const by = event.target.closest('[data-sort]'); if (by) emit(by.dataset.sort); }",
        )

    def set(self, rows: Iterable[Sequence[Cell | str]]) -> None:
        """Show these rows."""
        body = "".join(f"<tr>{''.join(map(self._cell, row, self.columns))}</tr>" for row in rows)
        caption = f"<caption>{escape(self.label)}</caption>"
        content = f'<table class="ps-table">{caption}{self._head()}<tbody>{body}</tbody></table>'
        if content != self._last:
            self._last = content
            self.html.set_content(content)

    def _head(self) -> str:
        return f"<thead><tr>{''.join(map(self._title, self.columns))}</tr></thead>"

    def _title(self, column: Column) -> str:
        title, sorting = escape(column.title), ""
        if column.sort:
            is_it = column.sort == self.sorted_by
            arrow = ("↓" if self.is_descending else "↑") if is_it else ""
            sorting = f' aria-sort="{"descending" if self.is_descending else "ascending"}"' if is_it else ""
            title = f'<button type="button" data-sort="{escape(column.sort)}">{title} <span>{arrow}</span></button>'
        classes = f"{'ps-number ' if column.is_number else ''}{column.classes}".strip()
        return f'<th scope="col" class="{classes}"{sorting}>{title}</th>'

    @staticmethod
    def _cell(cell: Cell | str, column: Column) -> str:
        shown = cell if isinstance(cell, Cell) else Cell(cell)
        inside = escape(shown.text)
        if shown.tone is not None:
            inside = f'<span class="ps-badge ps-tone-{shown.tone}">{inside}</span>'
        if shown.href:
            inside = f'<a href="{escape(shown.href)}">{inside}</a>'
        if shown.line:
            inside = f"{sparkline(shown.line)}{inside}"
        if shown.bar is not None:
            width = max(0.0, min(1.0, shown.bar)) * 100
            inside = f'<span class="ps-bar" style="--part:{width:.1f}%">{inside}</span>'
        classes = f"{'ps-number ' if column.is_number else ''}{column.classes} {shown.classes}".strip()
        return f'<td class="{classes}" data-title="{escape(column.title)}">{inside}</td>'


def table(label: str, columns: Sequence[Column | str]) -> Table:
    """Make a table; ``label`` tells those who cannot see it what it holds."""
    made = [each if isinstance(each, Column) else Column(each) for each in columns]
    with element("div", "ps-scroll", tabindex="0", role="region", aria_label=label):
        # Written by Table alone, which escapes what is in it.
        html = ui.html("", sanitize=False)
    return Table(html, made, label)


def sparkline(values: Sequence[float], width: int = 96, height: int = 22) -> str:
    """The course of a number as SVG, without axes."""
    if len(values) < 2:
        return f'<svg class="ps-spark" width="{width}" height="{height}" aria-hidden="true"></svg>'
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    step = width / (len(values) - 1)
    points = [
        (round(i * step, 1), round(height - 2 - (v - low) / span * (height - 4), 1)) for i, v in enumerate(values)
    ]
    line = " ".join(f"{x},{y}" for x, y in points)
    return (
        f'<svg class="ps-spark" width="{width}" height="{height}" viewBox="0 0 {width} {height}" aria-hidden="true">'
        f'<polygon points="0,{height} {line} {width},{height}"/><polyline points="{line}"/></svg>'
    )


def button(
    label: str,
    press: Callable[[], Any],
    *,
    icon: str = "",
    tone: Literal["plain", "primary", "danger"] = "plain",
    enabled: bool = True,
    why_not: str = "",
) -> ui.button:
    """A button; one that may not be pressed says why."""
    made = ui.button(label, on_click=press, icon=icon or None, color=None).props("no-caps unelevated dense")
    made.classes(f"ps-button ps-button-{tone}")
    if not enabled:
        made.disable()
        if why_not:
            made.tooltip(why_not)
            made.props["title"] = why_not
    return made


async def confirm(question: str, detail: str, yes: str, *, danger: bool = True) -> bool:
    """Ask before something that cannot be taken back."""
    with ui.dialog() as dialog, ui.card().classes("ps-dialog"):
        dialog.props["aria-label"] = question
        text(question, tag="h2")
        text(detail, "ps-muted", tag="p")
        with element("div", "ps-row ps-end"):
            button("Cancel", lambda: dialog.submit(False))
            button(yes, lambda: dialog.submit(True), tone="danger" if danger else "primary")
    return bool(await answer_of(dialog))


async def answer_of(dialog: ui.dialog) -> Any:
    """Open a dialog and wait: what it was answered with, or None if it was closed, or its reader has left the page."""
    try:
        return await dialog
    finally:
        if not dialog.is_deleted and not dialog.client.is_deleted:
            dialog.delete()

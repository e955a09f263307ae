"""Tables of up to a few hundred rows, rendered to HTML on the server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Generic, TypeVar

from nicegui.elements.mixins.content_element import ContentElement

from penstock.console.widgets.elements import Tone, element

T = TypeVar("T")

#: A key may break after these characters.
_SEPARATOR = re.compile(r"[/._:|,-]+")
#: Longer words may break anywhere.
_MAX_WORD_CHARACTERS = 24


@dataclass(frozen=True)
class TableCell:
    """A cell with a link, a tone, a bar or a sparkline beside its text."""

    text: str
    href: str = ""
    tone: Tone | None = None
    #: The filled part of the cell, from 0 to 1.
    bar: float | None = None
    sparkline: Sequence[float] = ()
    classes: str = ""
    #: Shown when the pointer is over the cell.
    title: str = ""


@dataclass(frozen=True)
class TableColumn(Generic[T]):
    """A column. If ``sort`` is set, a click on the title sorts the table by it."""

    title: str
    #: Returns the cell of a row.
    cell: Callable[[T], TableCell | str]
    is_number: bool = False
    classes: str = ""
    sort: str = ""

    @property
    def all_classes(self) -> str:
        return f"ps-number {self.classes}" if self.is_number else self.classes


def key_cell(text: str, href: str = "") -> TableCell:
    """Create the cell of a key or a name. It breaks after separators, and inside a word only if that is very long."""
    longest = max(map(len, _SEPARATOR.split(text)))
    breaks = "ps-key" if longest <= _MAX_WORD_CHARACTERS else "ps-break"
    return TableCell(text, href=href, classes=f"ps-strong {breaks}", title=text)


def number_column(title: str, cell: Callable[[T], TableCell | str], *, classes: str = "") -> TableColumn[T]:
    return TableColumn(title, cell, is_number=True, classes=classes)


def render_link(text: str, href: str = "") -> str:
    """Return a text, or a link, as HTML."""
    return f'<a href="{escape(href)}">{escape(text)}</a>' if href else escape(text)


class LiveHtml(ContentElement, component="live_html.js"):
    """HTML whose unchanged nodes stay when the content is set again.

    ``ui.html`` replaces all nodes. A link would then lose the keyboard focus, and a click that began before the update
    would be lost. The content is not sanitized: whoever sets it escapes all values.
    """

    def __init__(self) -> None:
        super().__init__(content="")


class DataTable(Generic[T]):
    """A table whose content is sent as a whole, so that an update is one message to the browser.

    ``label`` is its accessible name. With ``row_id``, each row has a tick box, and :meth:`on_select` tells which are
    ticked.
    """

    def __init__(
        self,
        label: str,
        columns: Sequence[TableColumn[T]],
        row_classes: Callable[[T], str] | None = None,
        row_id: Callable[[T], int] | None = None,
    ) -> None:
        self._label = label
        self._columns = columns
        self._row_classes = row_classes
        self._row_id = row_id
        #: The sort key of the column that the rows are sorted by, for the arrow beside its title.
        self.sorted_by = ""
        self.is_descending = True
        with element("div", "ps-scroll", tabindex="0", role="region", aria_label=label):
            # _render_cell escapes all values.
            self.html = LiveHtml()

    def on_sort(self, sort: Callable[[str], Any]) -> None:
        """Call ``sort`` with the sort key of the column whose title is clicked."""
        self.html.on(
            "click",
            lambda event: sort(str(event.args)),
            js_handler="(event) => { const by = event.target.closest('[data-sort]'); if (by) emit(by.dataset.sort); }",
        )

    def on_select(self, select: Callable[[list[int]], Any]) -> None:
        """Call ``select`` with the ids of the ticked rows when they change. They come from the browser."""
        self.html.on(
            "change",
            lambda event: select([int(row) for row in event.args]),
            js_handler="(event) => emit(penstock.tickedRows(event))",
        )

    def set(self, rows: Iterable[T]) -> None:
        """Replace all rows."""
        head = "" if self._row_id is None else f'<th scope="col" class="ps-tick">{_tick_box("all", "Select all")}</th>'
        head += "".join(map(self._render_title, self._columns))
        body = "".join(map(self._render_row, rows))
        self.html.set_content(
            f'<table class="ps-table"><caption>{escape(self._label)}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )

    def _render_row(self, row: T) -> str:
        classes = "" if self._row_classes is None else self._row_classes(row)
        cells = "" if self._row_id is None else self._render_tick_box(self._row_id(row))
        cells += "".join(_render_cell(column, row) for column in self._columns)
        return f'<tr class="{classes}">{cells}</tr>' if classes else f"<tr>{cells}</tr>"

    def _render_tick_box(self, number: int) -> str:
        return f'<td class="ps-tick">{_tick_box(str(number), f"Select #{number}")}</td>'

    def _render_title(self, column: TableColumn[T]) -> str:
        title, aria_sort = escape(column.title), ""
        if column.sort:
            arrow = ""
            if column.sort == self.sorted_by:
                arrow = "↓" if self.is_descending else "↑"
                aria_sort = f' aria-sort="{"descending" if self.is_descending else "ascending"}"'
            title = f'<button type="button" data-sort="{escape(column.sort)}">{title} <span>{arrow}</span></button>'
        return f'<th scope="col" class="{column.all_classes}"{aria_sort}>{title}</th>'


def _tick_box(row: str, label: str) -> str:
    return f'<input type="checkbox" data-row="{row}" aria-label="{label}">'


def _render_cell(column: TableColumn[T], row: T) -> str:
    cell = column.cell(row)
    if isinstance(cell, str):
        cell = TableCell(cell)
    content = escape(cell.text)
    if "ps-key" in cell.classes:
        content = _SEPARATOR.sub(lambda match: f"{match[0]}<wbr>", content)
    if cell.tone is not None:
        content = f'<span class="ps-badge ps-tone-{cell.tone}">{content}</span>'
    if cell.href:
        content = f'<a href="{escape(cell.href)}">{content}</a>'
    if cell.sparkline:
        content = f"{_render_sparkline(cell.sparkline)}{content}"
    if cell.bar is not None:
        width = max(0.0, min(1.0, cell.bar)) * 100
        content = f'<span class="ps-bar" style="--part:{width:.1f}%">{content}</span>'
    title = f' title="{escape(cell.title)}"' if cell.title else ""
    return f'<td class="{column.all_classes} {cell.classes}"{title}>{content}</td>'


def _render_sparkline(values: Sequence[float], width: int = 96, height: int = 22) -> str:
    if len(values) < 2:
        return ""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    step = width / (len(values) - 1)
    points = [
        (round(i * step, 1), round(height - 2 - (value - low) / span * (height - 4), 1))
        for i, value in enumerate(values)
    ]
    line = " ".join(f"{x},{y}" for x, y in points)
    return (
        f'<svg class="ps-sparkline" width="{width}" height="{height}" aria-hidden="true">'
        f'<polygon points="0,{height} {line} {width},{height}"/><polyline points="{line}"/></svg>'
    )

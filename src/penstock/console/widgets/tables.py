"""Tables of up to a few hundred rows, rendered to HTML on the server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from penstock.console.widgets.elements import Tone, element
from penstock.console.widgets.live_html import LiveHtml


@dataclass(frozen=True)
class TableColumn:
    """A column. If ``sort`` is set, a click on the title sorts the table by it."""

    title: str
    is_number: bool = False
    classes: str = ""
    sort: str = ""


def number_columns(*titles: str) -> list[TableColumn]:
    return [TableColumn(title, is_number=True) for title in titles]


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


class DataTable:
    """A table whose content is sent as a whole, so that an update is one message to the browser.

    Args:
        label: The accessible name of the table.
        columns: The columns; a string is the title of a text column.
    """

    def __init__(self, label: str, columns: Sequence[TableColumn | str]) -> None:
        self.label = label
        self.columns = [TableColumn(column) if isinstance(column, str) else column for column in columns]
        #: The sort key of the column that the rows are sorted by, for the arrow beside its title.
        self.sorted_by = ""
        self.is_descending = True
        self._content = ""
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

    def set(self, rows: Iterable[Sequence[TableCell | str]]) -> None:
        """Replace all rows."""
        head = "".join(map(self._render_title, self.columns))
        body = "".join(f"<tr>{''.join(map(_render_cell, row, self.columns))}</tr>" for row in rows)
        content = (
            f'<table class="ps-table"><caption>{escape(self.label)}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )
        if content != self._content:
            self._content = content
            self.html.set_content(content)

    def _render_title(self, column: TableColumn) -> str:
        title, aria_sort = escape(column.title), ""
        if column.sort:
            arrow = ""
            if column.sort == self.sorted_by:
                arrow = "↓" if self.is_descending else "↑"
                aria_sort = f' aria-sort="{"descending" if self.is_descending else "ascending"}"'
            title = f'<button type="button" data-sort="{escape(column.sort)}">{title} <span>{arrow}</span></button>'
        classes = f"{'ps-number ' if column.is_number else ''}{column.classes}".strip()
        return f'<th scope="col" class="{classes}"{aria_sort}>{title}</th>'


def _render_cell(cell: TableCell | str, column: TableColumn) -> str:
    if isinstance(cell, str):
        cell = TableCell(cell)
    content = escape(cell.text)
    if cell.tone is not None:
        content = f'<span class="ps-badge ps-tone-{cell.tone}">{content}</span>'
    if cell.href:
        content = f'<a href="{escape(cell.href)}">{content}</a>'
    if cell.sparkline:
        content = f"{_render_sparkline(cell.sparkline)}{content}"
    if cell.bar is not None:
        width = max(0.0, min(1.0, cell.bar)) * 100
        content = f'<span class="ps-bar" style="--part:{width:.1f}%">{content}</span>'
    classes = f"{'ps-number ' if column.is_number else ''}{column.classes} {cell.classes}".strip()
    return f'<td class="{classes}" data-title="{escape(column.title)}">{content}</td>'


def _render_sparkline(values: Sequence[float], width: int = 96, height: int = 22) -> str:
    if len(values) < 2:
        return f'<svg class="ps-spark" width="{width}" height="{height}" aria-hidden="true"></svg>'
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    step = width / (len(values) - 1)
    points = [
        (round(i * step, 1), round(height - 2 - (value - low) / span * (height - 4), 1))
        for i, value in enumerate(values)
    ]
    line = " ".join(f"{x},{y}" for x, y in points)
    return (
        f'<svg class="ps-spark" width="{width}" height="{height}" viewBox="0 0 {width} {height}" aria-hidden="true">'
        f'<polygon points="0,{height} {line} {width},{height}"/><polyline points="{line}"/></svg>'
    )

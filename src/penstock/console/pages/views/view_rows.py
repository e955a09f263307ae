"""The rows of a materialized view, which move as the view changes."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from nicegui import ui

from penstock.console.data.view_rows import MAX_COUNT, UPDATED_AT, ViewRow, ViewRows, ViewRowsReader, ViewRowsRequest
from penstock.console.data.views import ViewDefinition, VisibleColumn
from penstock.console.formatting import TimeFormatter, exact_decimals, exact_number
from penstock.console.page import View
from penstock.console.polling import PollSubscription
from penstock.console.widgets import elements
from penstock.console.widgets.tables import DataTable, TableCell, TableColumn, key_cell
from penstock.core import formatting

_NUMBERS = ("bigint", "integer", "smallint", "numeric", "double precision", "real")
#: Characters shown of a value; the whole value is shown when the pointer is over it.
_MAX_CHARACTERS = 200
_LONG_CHARACTERS = 60


class ViewRowsTable:
    """A page of the rows, sorted by the last change or by a column."""

    def __init__(self, view: View, name: str, definition: ViewDefinition) -> None:
        self._view = view
        self._name = name
        self._key = definition.visible_key
        searched = self._key or tuple(column.name for column in definition.columns)
        self._request = ViewRowsRequest(definition.query_id, definition.columns, definition.key, searched)
        self._subscription: PollSubscription[ViewRows] | None = None
        #: The read that is shown, and the number of decimals of each numeric column.
        self._shown: ViewRows | None = None
        self._decimals: dict[str, int] = {}

    async def build(self) -> None:
        with elements.card("Rows", hint="changed rows are marked"):
            with elements.element("div", "ps-row ps-between"):
                label = "Filter by key" if self._key else "Filter"
                search = ui.input(
                    label, on_change=lambda event: self._change(search=str(event.value or "").strip(), offset=0)
                )
                search.props('outlined dense clearable debounce="300"').classes("ps-search")
                with elements.element("div", "ps-row"):
                    self._newest = elements.button("Newest changes first", self._sort_by_change, icon="update")
                    self._range = elements.text("", "ps-muted ps-small")
                    self._previous = elements.button("Previous", lambda: self._turn_pages(-1), icon="chevron_left")
                    self._next = elements.button("Next", lambda: self._turn_pages(1), icon="chevron_right")
            self._table = DataTable[ViewRow](f"Rows of {self._name}", self._columns(), row_classes=self._row_classes)
            self._table.on_sort(self._sort)
        await self._poll()

    def _columns(self) -> list[TableColumn[ViewRow]]:
        return [
            *(self._value_column(position, column) for position, column in enumerate(self._request.columns)),
            TableColumn(
                "Changed",
                lambda row: TableCell(self._view.times.clock(row.updated_at), classes="ps-muted"),
                is_number=True,
                sort=UPDATED_AT,
            ),
        ]

    def _value_column(self, position: int, column: VisibleColumn) -> TableColumn[ViewRow]:
        is_number = column.type in _NUMBERS
        is_key = column.name in self._key

        def cell(row: ViewRow) -> TableCell | str:
            value = row.values[position]
            if value is None:
                return TableCell("null", classes="ps-muted")
            if is_number:
                return exact_number(value, self._decimals[column.name])
            return _text_cell(value, column, self._view.times, is_key=is_key)

        return TableColumn(column.name, cell, is_number, sort=column.name)

    def _row_classes(self, row: ViewRow) -> str:
        if not row.is_changed or self._shown is None:
            return ""
        # Another name of the animation starts it again, if a row changes in several commits in a row.
        return f"ps-changed-{'even' if self._shown.version % 2 == 0 else 'odd'}"

    async def _poll(self) -> None:
        if self._subscription is not None:
            self._view.stop_polling(self._subscription)
            self._subscription = None
        request, self._shown = self._request, None
        self._table.sorted_by, self._table.is_descending = request.sort, request.is_descending

        def show(result: ViewRows) -> None:
            if request is self._request:
                self._show(result)

        reader = ViewRowsReader(self._view.database, request)
        subscription = await self._view.poll(("view rows", request), reader.read, show)
        if request is self._request:
            self._subscription = subscription
        else:
            self._view.stop_polling(subscription)  # a newer request replaced this one

    async def _change(self, **changes: Any) -> None:
        self._request = replace(self._request, **changes)
        await self._poll()

    async def _sort(self, by: str) -> None:
        if by == self._request.sort:
            await self._change(is_descending=not self._request.is_descending, offset=0)
        elif by == UPDATED_AT or by in {column.name for column in self._request.columns}:
            await self._change(sort=by, is_descending=by not in self._key, offset=0)

    async def _sort_by_change(self) -> None:
        await self._change(sort=UPDATED_AT, is_descending=True, offset=0)

    async def _turn_pages(self, pages: int) -> None:
        await self._change(offset=max(0, self._request.offset + pages * self._request.limit))

    def _show(self, result: ViewRows) -> None:
        if result is self._shown:
            return
        self._shown = result
        request = self._request
        self._decimals = {
            column.name: exact_decimals(row.values[position] for row in result.rows)
            for position, column in enumerate(request.columns)
            if column.type in _NUMBERS
        }
        first, last = request.offset + 1, request.offset + len(result.rows)
        shown = f"{formatting.number(first)}–{formatting.number(last)}" if result.rows else "none"
        total = formatting.number(min(result.matching, MAX_COUNT))
        self._range.set_text(f"{shown} of {'more than ' if result.matching > MAX_COUNT else ''}{total}")
        self._previous.set_enabled(request.offset > 0)
        self._next.set_enabled(last < result.matching or len(result.rows) == request.limit < result.matching)
        is_newest = request.sort == UPDATED_AT and request.is_descending
        self._newest.set_visibility(not is_newest)
        self._table.set(result.rows)


def _text_cell(value: str, column: VisibleColumn, times: TimeFormatter, *, is_key: bool) -> TableCell | str:
    if column.type == "timestamptz":
        return TableCell(_local_time(value, times), classes="ps-nowrap", title=value)
    if len(value) > _MAX_CHARACTERS:
        return TableCell(f"{value[:_MAX_CHARACTERS]}…", classes="ps-long-text", title=value)
    if is_key:
        return key_cell(value)
    return TableCell(value, classes="ps-long-text" if len(value) > _LONG_CHARACTERS else "")


def _local_time(value: str, times: TimeFormatter) -> str:
    """Return a time in the zone of the viewer, with all digits of its second."""
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return value  # a year that Python does not have
    fraction = f".{time.microsecond:06}".rstrip("0") if time.microsecond else ""
    return times.full(time) + fraction

"""The live board: the open windows of a query by key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from nicegui import ui

from penstock.console.data.open_windows import (
    OpenWindows,
    OpenWindowsRequest,
    WindowColumn,
    WindowedQuery,
    WindowRow,
    list_windowed_queries,
    read_columns,
    read_open_windows,
)
from penstock.console.data.views import find_view
from penstock.console.page import Page, View, url_for
from penstock.console.pages import live_key
from penstock.console.pages.first_query import QUERY_COMMAND
from penstock.console.polling import PollSubscription
from penstock.console.widgets import elements, forms
from penstock.console.widgets.tables import DataTable, TableCell, TableColumn, key_cell
from penstock.core import formatting

_ROWS = 50
#: Longer numbers are abbreviated in a tile; the whole number is shown on hover.
_MAX_TILE_CHARACTERS = 14


async def build(view: View) -> None:
    queries = await list_windowed_queries(view.database)
    name = view.params.get("query")
    if name is not None and await find_view(view.log, name) is not None:
        ui.navigate.to(url_for("/views", view=name))
        return
    if not queries:
        elements.empty_state(
            "No query has windows yet",
            "The live board shows the open windows of a query by key. Start one, and push to its queue, e.g. with "
            "penstock simulate orders.",
            QUERY_COMMAND,
            icon="leaderboard",
        )
        return
    query = next((query for query in queries if query.name == name), None)
    if query is None and name is not None:
        elements.empty_state(f"Query {name} has no windows", "It does not exist, or it has not started yet.")
        return
    query = query or queries[0]
    if "key" in view.params:
        await live_key.build(view, query, view.params["key"])
        return
    forms.tabs("Queries", query.name, {query.name: url_for("/live", query=query.name) for query in queries})
    await _LiveBoard(view, query, await read_columns(view.database, query)).build()


class _LiveBoard:
    def __init__(self, view: View, query: WindowedQuery, columns: tuple[WindowColumn, ...]) -> None:
        self._view = view
        numbers = [column.name for column in columns if column.is_number]
        sort = numbers[0] if numbers else "key"
        self._request = OpenWindowsRequest(query, columns, sort, bool(numbers), "", 0, _ROWS)
        self._subscription: PollSubscription[OpenWindows] | None = None
        #: The largest value of each numeric column, for the bars.
        self._largest: Mapping[str, Decimal | float | None] = {}
        #: The number of decimals of each numeric column.
        self._decimals: Mapping[str, int] = {}

    async def build(self) -> None:
        request = self._request
        with elements.tiles():
            self._keys = elements.tile("Keys now")
            additive = [name for name in request.number_columns if request.query.is_additive(name)]
            self._sums = {name: elements.tile(f"{name}, all keys") for name in additive}
            self._updated = elements.tile("Updated")
        with elements.card(request.query.name) as card:
            with elements.element("div", "ps-row ps-between"):
                search = ui.input(
                    "Search keys", on_change=lambda event: self._change(search=str(event.value or "").strip(), offset=0)
                )
                search.props('outlined dense clearable debounce="300"').classes("ps-search")
                all_windows = ui.switch(
                    "All open windows", on_change=lambda event: self._change(all_windows=bool(event.value), offset=0)
                )
                all_windows.tooltip("Off: only the current window of each key")
                with elements.element("div", "ps-row"):
                    self._range = elements.text("", "ps-muted ps-small")
                    self._previous = elements.button("Previous", lambda: self._turn_pages(-1), icon="chevron_left")
                    self._next = elements.button("Next", lambda: self._turn_pages(1), icon="chevron_right")
            self._table = DataTable[WindowRow](f"Open windows of {request.query.name}", self._columns())
            self._table.on_sort(self._sort)
        card.props["aria-label"] = f"Open windows of {request.query.name}"
        await self._poll()

    def _columns(self) -> list[TableColumn[WindowRow]]:
        times = self._view.times

        def window(row: WindowRow) -> TableCell:
            return TableCell(f"{times.clock(row.start)} – {times.clock(row.end)}", classes="ps-muted ps-nowrap")

        # Narrow screens have no room for the other columns; a tile shows the time of the last update.
        return [
            TableColumn(
                "Key",
                lambda row: key_cell(
                    "(no key)" if row.key is None else row.key,
                    url_for("/live", query=self._request.query.name, key=row.key or ""),
                ),
                sort="key",
            ),
            TableColumn("Window", window, sort="window_end", classes="ps-desktop"),
            *map(self._value_column, self._request.columns),
            TableColumn("History", lambda row: TableCell("", sparkline=row.history), classes="ps-desktop"),
            TableColumn(
                "Updated",
                lambda row: TableCell(times.ago(row.updated_at), classes="ps-muted"),
                is_number=True,
                sort="updated_at",
                classes="ps-wide",
            ),
        ]

    def _value_column(self, column: WindowColumn) -> TableColumn[WindowRow]:
        name, is_number = column

        def cell(row: WindowRow) -> TableCell | str:
            value = row.values[name]
            if not is_number or value is None:
                return self._view.times.value(value)
            largest = float(self._largest[name] or 0.0)
            return TableCell(
                formatting.decimal_number(value, self._decimals[name]),
                bar=float(value) / largest if largest > 0 else None,
                title=formatting.full_number(value),
            )

        return TableColumn(name, cell, is_number, "ps-number-column" if is_number else "", sort=name)

    async def _poll(self) -> None:
        if self._subscription is not None:
            self._view.stop_polling(self._subscription)
            self._subscription = None
        request = self._request
        self._table.sorted_by, self._table.is_descending = request.sort, request.is_descending
        database = self._view.database

        def show(result: OpenWindows) -> None:
            if request is self._request:
                self._show(result)

        subscription = await self._view.poll(("live", request), lambda: read_open_windows(database, request), show)
        if request is self._request:
            self._subscription = subscription
        else:
            self._view.stop_polling(subscription)  # a newer request replaced this one

    async def _change(self, **changes: Any) -> None:
        self._request = replace(self._request, **changes)
        await self._poll()

    async def _sort(self, by: str) -> None:
        known = {"key", "window_end", "updated_at", *(column.name for column in self._request.columns)}
        if by in known:
            descending = not self._request.is_descending if by == self._request.sort else by != "key"
            await self._change(sort=by, is_descending=descending, offset=0)

    async def _turn_pages(self, pages: int) -> None:
        await self._change(offset=max(0, self._request.offset + pages * _ROWS))

    def _show(self, result: OpenWindows) -> None:
        self._keys.set(formatting.number(result.keys), f"{formatting.counted(result.windows, 'window')} shown")
        has_overlaps = self._request.all_windows and self._request.query.has_overlapping_windows
        for name, tile in self._sums.items():
            tile.frame.set_visibility(not has_overlaps)
            _show_sum(tile, result.sums[name])
        self._updated.set(self._view.times.ago(result.updated_at), self._view.times.clock(result.updated_at))
        first, last = self._request.offset + 1, self._request.offset + len(result.rows)
        shown = f"{formatting.number(first)}–{formatting.number(last)}" if result.rows else "none"
        self._range.set_text(f"{shown} of {formatting.number(result.matching)}")
        self._previous.set_enabled(self._request.offset > 0)
        self._next.set_enabled(last < result.matching)
        self._largest = result.largest
        self._decimals = {
            name: formatting.column_decimals(row.values[name] for row in result.rows)
            for name in self._request.number_columns
        }
        self._table.set(result.rows)


def _show_sum(tile: elements.Tile, value: Decimal | float | None) -> None:
    shown = formatting.decimal_number(value, formatting.column_decimals([value]))
    if len(shown) > _MAX_TILE_CHARACTERS:
        shown = formatting.compact(None if value is None else float(value))
    tile.set(shown, "now", title="" if value is None else formatting.full_number(value))


PAGE = Page("/live", "Live board", "leaderboard", build, needs_all=True, short="Live")

"""The live board: the open windows of a query by key."""

from __future__ import annotations

from dataclasses import replace

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
from penstock.console.page import Page, View, url_for
from penstock.console.polling import PollSubscription
from penstock.console.widgets import elements, forms
from penstock.console.widgets.tables import DataTable, TableCell, TableColumn
from penstock.core import formatting

_ROWS = 50


async def build(view: View) -> None:
    queries = await list_windowed_queries(view.database)
    if not queries:
        elements.empty_state(
            "No query has windows yet",
            "The live board shows the open windows of a query by key.",
            "penstock run app.py",
            icon="leaderboard",
        )
        return
    name = view.params.get("query")
    query = next((query for query in queries if query.name == name), None)
    if query is None and name is not None:
        elements.empty_state(f"Query {name} has no windows", "It does not exist, or it has not started yet.")
        return
    query = query or queries[0]
    forms.tabs(
        "Queries", query.name, {query.name: (query.name, url_for("/live", query=query.name)) for query in queries}
    )
    await _LiveBoard(view, query, await read_columns(view.database, query)).build()


class _LiveBoard:
    def __init__(self, view: View, query: WindowedQuery, columns: tuple[WindowColumn, ...]) -> None:
        self._view = view
        numbers = [column.name for column in columns if column.is_number]
        sort = numbers[0] if numbers else "key"
        self._request = OpenWindowsRequest(query, columns, sort, bool(numbers), "", 0, _ROWS)
        self._subscription: PollSubscription[OpenWindows] | None = None

    async def build(self) -> None:
        request = self._request
        with elements.tiles():
            self._keys = elements.tile("Keys now")
            additive = [name for name in request.number_columns if request.query.is_additive(name)]
            self._sums = {name: elements.tile(f"{name}, all keys") for name in additive}
            self._updated = elements.tile("Updated")
        with elements.card(request.query.name) as card:
            with elements.element("div", "ps-row ps-between"):
                search = ui.input(label="Search keys", on_change=lambda event: self._search(str(event.value or "")))
                search.props('outlined dense clearable debounce="300"').classes("ps-search")
                all_windows = ui.switch(
                    "All open windows", on_change=lambda event: self._show_all_windows(bool(event.value))
                )
                all_windows.tooltip("Off: only the current window of each key").classes("ps-switch")
                with elements.element("div", "ps-row"):
                    self._range = elements.text("", "ps-muted ps-small")
                    self._previous = elements.button("Previous", lambda: self._turn_pages(-1), icon="chevron_left")
                    self._next = elements.button("Next", lambda: self._turn_pages(1), icon="chevron_right")
            self._table = DataTable(f"Open windows of {request.query.name}", self._columns())
            self._table.on_sort(self._sort)
        card.props["aria-label"] = f"Open windows of {request.query.name}"
        await self._poll()

    def _columns(self) -> list[TableColumn]:
        columns = [TableColumn("Key", sort="key"), TableColumn("Window", sort="window_end", classes="ps-roomy")]
        for name, is_number in self._request.columns:
            classes = "ps-figure-column" if is_number else ""
            columns.append(TableColumn(name, is_number=is_number, sort=name, classes=classes))
        # Narrow screens have no room for these two; a tile shows the time of the last update.
        return [
            *columns,
            TableColumn("History", classes="ps-course ps-desk"),
            TableColumn("Updated", is_number=True, sort="updated_at", classes="ps-desk"),
        ]

    async def _poll(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
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
            subscription.close()  # a newer request replaced this one

    async def _search(self, text: str) -> None:
        self._request = replace(self._request, search=text.strip(), offset=0)
        await self._poll()

    async def _show_all_windows(self, all_windows: bool) -> None:
        self._request = replace(self._request, all_windows=all_windows, offset=0)
        await self._poll()

    async def _sort(self, by: str) -> None:
        known = {"key", "window_end", "updated_at", *(column.name for column in self._request.columns)}
        if by in known:
            descending = not self._request.is_descending if by == self._request.sort else by != "key"
            self._request = replace(self._request, sort=by, is_descending=descending, offset=0)
            await self._poll()

    async def _turn_pages(self, pages: int) -> None:
        self._request = replace(self._request, offset=max(0, self._request.offset + pages * _ROWS))
        await self._poll()

    def _show(self, result: OpenWindows) -> None:
        self._keys.set(formatting.number(result.keys), f"{formatting.number(result.windows)} windows shown")
        for name, tile in self._sums.items():
            tile.set(formatting.compact(result.sums.get(name)), "now")
        self._updated.set(self._view.times.ago(result.updated_at), self._view.times.clock(result.updated_at))
        first, last = self._request.offset + 1, self._request.offset + len(result.rows)
        shown = f"{formatting.number(first)}–{formatting.number(last)}" if result.rows else "none"
        self._range.set_text(f"{shown} of {formatting.number(result.matching)}")
        self._previous.set_enabled(self._request.offset > 0)
        self._next.set_enabled(last < result.matching)
        self._table.set([self._row(result, row) for row in result.rows])

    def _row(self, result: OpenWindows, row: WindowRow) -> list[TableCell | str]:
        times = self._view.times
        cells: list[TableCell | str] = [
            TableCell("(no key)" if row.key is None else row.key, classes="ps-strong ps-key"),
            TableCell(f"{times.clock(row.start)} – {times.clock(row.end)}", classes="ps-muted ps-nowrap ps-roomy"),
        ]
        for (name, is_number), value in zip(self._request.columns, row.values, strict=True):
            if is_number and value is not None:
                largest = result.largest.get(name)
                bar = float(value) / largest if largest and largest > 0 else None
                cells.append(TableCell(formatting.number(float(value)), bar=bar))
            else:
                cells.append(times.value(value))
        history = result.history.get(row.key or "", ())
        return [*cells, TableCell("", sparkline=history), TableCell(times.ago(row.updated_at), classes="ps-muted")]


PAGE = Page("/live", "Live board", "leaderboard", build, needs_all=True, short="Live")

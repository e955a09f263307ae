"""One key of a query: its values over time, its windows, and its events."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.console.data.key_windows import (
    KeyWindow,
    find_source,
    read_key_events,
    read_key_windows,
)
from penstock.console.data.open_windows import WindowColumn, WindowedQuery, read_columns
from penstock.console.page import View, url_for
from penstock.console.pages import queue_events
from penstock.console.widgets import elements, forms
from penstock.console.widgets.charts import ChartLine, TimeChart, window_gap
from penstock.console.widgets.tables import DataTable, TableCell, TableColumn
from penstock.core import formatting
from penstock.core.errors import PenstockError

_POLL_SECONDS = 2.0
_SHOWN_WINDOWS = 50
#: Largest number of columns that have a chart.
_MAX_CHARTS = 6
#: Columns of values that a phone shows. The tiles show the newest values of all.
_PHONE_COLUMNS = 3
_SEARCH_TIMEOUT_SECONDS = 8.0


async def build(view: View, query: WindowedQuery, key: str) -> None:
    name = key or "(no key)"
    board = url_for("/live", query=query.name)
    forms.breadcrumb(("Live board", "/live"), (query.name, board), current=name)
    columns = await read_columns(view.database, query)
    numbers = [column.name for column in columns if column.is_number]
    empty = elements.empty_state(
        f"No windows of {name}",
        "The query has no open window of this key, and no recent closed one.",
        icon="search_off",
    )
    with elements.element("div", "ps-stack") as content:
        with elements.tiles():
            tiles = {column: elements.tile(column) for column in numbers}
            updated = elements.tile("Updated")
        with elements.element("div", "ps-grid ps-wide-columns"):
            charts = {}
            for colour, column in enumerate(numbers[:_MAX_CHARTS], 1):
                with elements.card(column, hint="by end of window") as card:
                    charts[column] = (TimeChart(f"{column} of {name} over time", [ChartLine(column, colour)]), card)
        with elements.card("Windows", hint="newest first"):
            table = DataTable(f"Windows of {name}", _columns(view, columns))

    def show(windows: Sequence[KeyWindow]) -> None:
        empty.set_visibility(not windows)
        content.set_visibility(bool(windows))
        if not windows:
            return
        newest = windows[0]
        state = "open window" if newest.is_open else "last closed window"
        for column, tile in tiles.items():
            value = newest.values[column]
            shown = formatting.decimal_number(value, formatting.column_decimals([value]))
            tile.set(shown, state, title="" if value is None else formatting.full_number(value))
        updated.set(view.times.ago(newest.updated_at), view.times.clock(newest.updated_at))
        for column, (chart, card) in charts.items():
            card.set_visibility(len(windows) > 1)
            _show_chart(chart, column, windows)
        table.set(windows[:_SHOWN_WINDOWS])

    await view.poll(
        ("key", query.id, key),
        lambda: read_key_windows(view.database, query, columns, key),
        show,
        seconds=_POLL_SECONDS,
    )
    await _build_events(view, query, key)


def _show_chart(chart: TimeChart, column: str, windows: Sequence[KeyWindow]) -> None:
    # The value of an open window is not complete.
    closed = [window for window in reversed(windows) if not window.is_open]
    drawn = closed if len(closed) > 1 else list(reversed(windows))
    points = [(int(window.end.timestamp() * 1000), window.values[column]) for window in drawn]
    chart.max_gap = window_gap([at for at, _ in points])
    chart.set([[(at, None if value is None else float(value)) for at, value in points]], (points[0][0], points[-1][0]))


def _columns(view: View, columns: Sequence[WindowColumn]) -> list[TableColumn[KeyWindow]]:
    times = view.times

    def window(row: KeyWindow) -> TableCell:
        return TableCell(f"{times.clock(row.start)} – {times.clock(row.end)}", classes="ps-nowrap")

    def state(row: KeyWindow) -> TableCell:
        if row.is_open:
            return TableCell("open", tone="info")
        corrected = f", corrected {formatting.counted(row.revision, 'time')}" if row.revision else ""
        return TableCell(f"closed{corrected}", tone="idle")

    return [
        TableColumn("Window", window),
        *(
            _value_column(view, column, "" if index < _PHONE_COLUMNS else "ps-desktop")
            for index, column in enumerate(columns)
        ),
        TableColumn("State", state, classes="ps-desktop"),
        TableColumn(
            "Updated",
            lambda row: TableCell(times.ago(row.updated_at), classes="ps-muted"),
            is_number=True,
            classes="ps-desktop",
        ),
    ]


def _value_column(view: View, column: WindowColumn, classes: str) -> TableColumn[KeyWindow]:
    def cell(row: KeyWindow) -> str:
        value = row.values[column.name]
        if not column.is_number or value is None:
            return view.times.value(value)
        return formatting.full_number(value)

    return TableColumn(column.name, cell, column.is_number, classes)


async def _build_events(view: View, query: WindowedQuery, key: str) -> None:
    source = find_source(query)
    if source is None:
        elements.text("The key of this query is computed, so its events cannot be looked up.", "ps-muted", tag="p")
        return
    hint = "newest first" if source.field is None else f"the newest events whose {source.field} is {key or 'missing'}"
    with elements.card("Events", hint=hint):
        try:
            async with asyncio.timeout(_SEARCH_TIMEOUT_SECONDS):
                events = await read_key_events(view.log, source, key)
        except (TimeoutError, PenstockError):
            elements.text("The search for events took too long.", "ps-muted", tag="p")
            return
        if events:
            queue_events.show_events(view, events)
        else:
            elements.text("No recent event has this key.", "ps-muted", tag="p")
    with elements.element("div", "ps-row"):
        for queue in source.queues:
            filters = {"key": key} if source.field is None and key else {}
            href = url_for("/queues", queue=queue, tab="events", **filters)
            elements.link(f"Events of {queue}", href, "ps-button")

"""Result of an SQL statement as a table, a chart and a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from math import inf
from operator import itemgetter
from statistics import median

from nicegui import ui

from penstock.console.formatting import TimeFormatter, exact_number
from penstock.console.widgets.charts import BarSeries, ChartLine, StackedBarChart, TimeChart
from penstock.console.widgets.elements import card
from penstock.console.widgets.tables import DataTable, TableCell, TableColumn
from penstock.core import formatting
from penstock.db.adhoc_query import AdhocColumn, AdhocResult

#: Largest number of lines and of bars in a chart.
_MAX_SERIES = 8
_MAX_BARS = 60
_CHART_HEIGHT = 260
#: A line has a gap where values are further apart than this many of its usual steps.
_MAX_GAP_STEPS = 3
#: Characters shown of a value; the CSV file contains the whole value.
_MAX_CELL_CHARACTERS = 300


def show_table(result: AdhocResult, times: TimeFormatter) -> None:
    """Show all rows, with times in the viewer's time zone."""
    table = DataTable("Result", [_column(index, column, times) for index, column in enumerate(result.columns)])
    table.html.classes("ps-tall-table")
    table.html.props["tabindex"] = "0"
    table.set(result.rows)


def download_csv(result: AdhocResult) -> None:
    """Download the result, with values as PostgreSQL formats them."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([column.name for column in result.columns])
    writer.writerows(result.rows)
    ui.download.content(text.getvalue().encode(), "penstock.csv", "text/csv")


def show_chart(result: AdhocResult) -> None:
    """Show a chart of the numbers by the first time or text column, if the result has such columns."""
    kinds = [column.kind for column in result.columns]
    numbers = [i for i, kind in enumerate(kinds) if kind == "number"]
    if not numbers or len(result.rows) < 2:
        return
    if "time" in kinds:
        _show_lines(result, kinds.index("time"), numbers)
    elif "text" in kinds:
        _show_bars(result, kinds.index("text"), numbers[0])


def _show_lines(result: AdhocResult, time: int, numbers: Sequence[int]) -> None:
    name_index = next((i for i, column in enumerate(result.columns) if column.kind == "text"), None)
    lines: dict[str, list[tuple[int, float | None]]] = {}
    for row in result.rows:
        at = _epoch_milliseconds(row[time])
        if at is None:
            continue
        if name_index is not None:
            # The names become lines, so only the first number is shown.
            lines.setdefault(row[name_index] or "–", []).append((at, _parse_number(row[numbers[0]])))
        else:
            for i in numbers[:_MAX_SERIES]:
                lines.setdefault(result.columns[i].name, []).append((at, _parse_number(row[i])))
    chosen = sorted(lines, key=lambda name: -sum(value or 0.0 for _, value in lines[name]))[:_MAX_SERIES]
    if all(len(lines[name]) < 2 for name in chosen):
        return
    title = f"{result.columns[numbers[0]].name if name_index is not None else 'the numbers'} over time"
    with card("Chart", hint=title):
        series = [ChartLine(name, colour) for colour, name in enumerate(chosen, start=1)]
        times = [at for name in chosen for at, _ in lines[name]]
        steps = [
            after - at
            for name in chosen
            for (at, _), (after, _) in pairwise(sorted(lines[name], key=itemgetter(0)))
            if after > at
        ]
        max_gap = _MAX_GAP_STEPS * median(steps) if steps else inf
        chart = TimeChart(f"Chart: {title}", series, height=_CHART_HEIGHT, max_gap=max_gap)
        chart.set([sorted(lines[name], key=itemgetter(0)) for name in chosen], (min(times), max(times)))


def _show_bars(result: AdhocResult, name: int, number: int) -> None:
    column, rows = result.columns[number].name, result.rows[:_MAX_BARS]
    title = f"{column} by {result.columns[name].name}"
    with card("Chart", hint=title):
        chart = StackedBarChart(f"Chart: {title}", unit="number", height=_CHART_HEIGHT)
        bars = BarSeries(column, 1, [_parse_number(row[number]) or 0.0 for row in rows])
        chart.set([row[name] or "–" for row in rows], [bars])


def summarize(result: AdhocResult) -> str:
    """Return the number of rows, the duration and the reason of a truncation."""
    rows = formatting.counted(len(result.rows), "row")
    limit = {"rows": "row", "size": "size", "columns": "column"}.get(result.truncation or "")
    truncation = "" if limit is None else f"; truncated at the {limit} limit"
    return f"{rows} in {formatting.duration(result.seconds)}{truncation}"


def _column(index: int, column: AdhocColumn, times: TimeFormatter) -> TableColumn[Sequence[str | None]]:
    return TableColumn(column.name, lambda row: _cell(row[index], column, times), is_number=column.kind == "number")


def _cell(value: str | None, column: AdhocColumn, times: TimeFormatter) -> TableCell | str:
    if value is None:
        return TableCell("null", classes="ps-muted")
    if column.kind == "number":
        return exact_number(value)
    if column.kind == "time" and column.type.startswith("timestamptz"):
        time = _parse_timestamp(value)
        return TableCell(value if time is None else times.full(time), classes="ps-nowrap")
    shown = value if len(value) <= _MAX_CELL_CHARACTERS else f"{value[:_MAX_CELL_CHARACTERS]}…"
    return TableCell(shown, classes="ps-long-text" if len(value) > 60 else "")


def _parse_timestamp(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None  # infinity, or a year outside the range of Python


def _epoch_milliseconds(text: str | None) -> int | None:
    time = None if text is None else _parse_timestamp(text)
    return None if time is None else int(time.timestamp() * 1000)


def _parse_number(text: str | None) -> float | None:
    try:
        value = None if text is None else float(text)
    except ValueError:
        return None
    return value if value is not None and abs(value) < 1e300 else None

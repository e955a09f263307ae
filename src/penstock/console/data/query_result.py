"""What a statement gave, as a table, a chart and a file."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nicegui import ui

from penstock.console.formatting import Times
from penstock.console.widgets import charts, parts
from penstock.console.widgets.parts import Cell
from penstock.core import formatting
from penstock.db.adhoc_query import AdhocColumn, AdhocResult

#: More lines or bars than this nobody can tell apart.
_SERIES = 8
_BARS = 60
#: Characters of a value in a table; the file has more.
_LONG = 300


def table(answer: AdhocResult, times: Times) -> None:
    """Every row, with times in the reader's zone."""
    made = parts.table(
        "Result", [parts.Column(column.name, is_number=column.kind == "number") for column in answer.columns]
    )
    made.html.classes("ps-tall")
    made.html.props["tabindex"] = "0"
    made.set(
        [_cell(value, column, times) for value, column in zip(row, answer.columns, strict=True)] for row in answer.rows
    )


def as_csv(answer: AdhocResult) -> bytes:
    """The same as a file for a spreadsheet, with times as the database has them."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([column.name for column in answer.columns])
    writer.writerows(answer.rows)
    return text.getvalue().encode()


@dataclass(frozen=True)
class Drawing:
    """What can be drawn of an answer: values over time, or a bar for each name."""

    over_time: bool
    names: Sequence[str]
    #: A line or a kind of bar: its name, and points or values.
    series: Sequence[tuple[str, Sequence[Any]]]
    of: str


def drawing(answer: AdhocResult) -> Drawing | None:
    """What can be drawn of it: the first time or text against the numbers; None if there is nothing of the kind."""
    kinds = [column.kind for column in answer.columns]
    numbers = [i for i, kind in enumerate(kinds) if kind == "number"]
    if not numbers or len(answer.rows) < 2:
        return None
    if "time" in kinds:
        return _over_time(answer, kinds.index("time"), numbers)
    if "text" in kinds:
        return _by_name(answer, kinds.index("text"), numbers[0])
    return None


def _over_time(answer: AdhocResult, time: int, numbers: Sequence[int]) -> Drawing | None:
    named = next((i for i, column in enumerate(answer.columns) if column.kind == "text"), None)
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in answer.rows:
        at = _moment(row[time])
        if at is None:
            continue
        if named is not None:
            # With several numbers, the first is the one that was asked for.
            lines.setdefault(row[named] or "–", []).append((at, _number(row[numbers[0]])))
        else:
            for i in numbers[:_SERIES]:
                lines.setdefault(answer.columns[i].name, []).append((at, _number(row[i])))
    chosen = sorted(lines, key=lambda name: -sum(value for _, value in lines[name]))[:_SERIES]
    if not chosen or all(len(lines[name]) < 2 for name in chosen):
        return None
    of = answer.columns[numbers[0]].name if named is not None else "the numbers"
    return Drawing(True, [], [(name, sorted(lines[name])) for name in chosen], f"{of} over time")


def _by_name(answer: AdhocResult, name: int, number: int) -> Drawing:
    rows = answer.rows[:_BARS]
    what = answer.columns[number].name
    series = [(what, [_number(row[number]) for row in rows])]
    return Drawing(False, [row[name] or "–" for row in rows], series, f"{what} by {answer.columns[name].name}")


def draw(found: Drawing, height: int = 260) -> None:
    """Make the chart."""
    if found.over_time:
        lines = [charts.Line(name, place % _SERIES + 1) for place, (name, _) in enumerate(found.series)]
        course = charts.Course(f"Chart: {found.of}", lines, height=height)
        moments = [at for _, points in found.series for at, _ in points]
        course.set([points for _, points in found.series], (min(moments), max(moments)))
    else:
        stacks = charts.Stacks(f"Chart: {found.of}", unit="number", height=height)
        stacks.set(found.names, [(name, 1, values) for name, values in found.series])


def summary(answer: AdhocResult) -> str:
    """How much it is, and how long it took."""
    rows = "1 row" if len(answer.rows) == 1 else f"{formatting.number(len(answer.rows))} rows"
    cut = {
        "rows": "; there are more, which are not shown",
        "size": "; the rest is too large to show",
        "columns": "; more columns are not shown",
        None: "",
    }[answer.truncation]
    return f"{rows} in {formatting.duration(answer.seconds)}{cut}"


def _cell(value: str | None, column: AdhocColumn, times: Times) -> Cell | str:
    if value is None:
        return Cell("null", classes="ps-muted")
    if column.kind == "number":
        return _figure(value)
    if column.kind == "time" and column.type.startswith("timestamptz"):
        moment = _parsed(value)
        return Cell(value if moment is None else times.full(moment), classes="ps-nowrap")
    shown = value if len(value) <= _LONG else f"{value[:_LONG]}…"
    return Cell(shown, classes="ps-wide-text" if len(value) > 60 else "")


def _figure(text: str) -> str:
    """A number as it is, with separators before the point."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    whole, point, rest = digits.partition(".")
    return f"{sign}{int(whole):,}{point}{rest}" if whole.isascii() and whole.isdigit() and len(whole) < 400 else text


def _parsed(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None  # infinity, or a year that Python has not


def _moment(text: str | None) -> int | None:
    moment = None if text is None else _parsed(text)
    return None if moment is None else int(moment.timestamp() * 1000)


def _number(text: str | None) -> float:
    try:
        value = float(text or 0)
    except ValueError:
        return 0.0
    return value if abs(value) < 1e300 else 0.0


def downloaded(answer: AdhocResult) -> None:
    """Give it to the browser as a file."""
    ui.download.content(as_csv(answer), "penstock.csv", "text/csv")

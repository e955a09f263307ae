"""Charts, drawn as SVG so that CSS variables of the theme can set their colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any

from nicegui import ui

#: JavaScript functions in console.js that format values, as ``formatting.compact`` and ``formatting.duration`` do.
_FORMATS = {"number": "penstock.number", "seconds": "penstock.seconds", "milliseconds": "penstock.milliseconds"}
#: JavaScript functions that format times, by the longest span of the axis in milliseconds.
_TIME_FORMATS = ((30 * 60_000, "penstock.clock"), (24 * 3_600_000, "penstock.minute"), (inf, "penstock.day"))
#: A single point is as long as this part of the axis. ECharts does not draw lines shorter than a pixel.
_DOTS = 200

#: Not inherited, since a chart measures its labels before they are part of the page.
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif"
_TEXT = {"color": "var(--ps-muted)", "fontSize": 11, "fontFamily": _FONT}
_LEGEND = {
    # One line with paging: on a phone, a second line would cover the axis.
    "type": "scroll",
    "top": 0,
    "left": 0,
    "right": 0,
    "pageIconColor": "var(--ps-muted)",
    "pageIconInactiveColor": "var(--ps-line)",
    "pageIconSize": 9,
    "pageTextStyle": _TEXT,
    "icon": "roundRect",
    "itemWidth": 10,
    "itemHeight": 3,
    "itemGap": 14,
    "inactiveColor": "var(--ps-line)",
    "textStyle": {**_TEXT, "fontSize": 12},
}
_CATEGORY_AXIS: dict[str, Any] = {
    "axisLine": {"lineStyle": {"color": "var(--ps-line)"}},
    "axisTick": {"show": False},
    "axisLabel": {**_TEXT, "hideOverlap": True},
}


def _create_chart(label: str, height: int, unit: str, **options: Any) -> ui.echart:
    """Create a chart without series. ``options`` are added to those that all charts have."""
    chart = ui.echart({**_base_options(unit), **options, "series": []}, renderer="svg").classes("ps-chart")
    chart.style(f"height: {height}px")
    chart.props["role"] = "img"
    chart.props["aria-label"] = label
    return chart


def _base_options(unit: str) -> dict[str, Any]:
    return {
        "animation": False,
        "textStyle": {"fontFamily": _FONT},
        "grid": {"left": 4, "right": 26, "top": 28, "bottom": 4, "containLabel": True},
        "legend": _LEGEND,
        "tooltip": {
            "trigger": "axis",
            "confine": True,
            "backgroundColor": "var(--ps-surface)",
            "borderColor": "var(--ps-line)",
            "textStyle": {"color": "var(--ps-text)", "fontSize": 12, "fontFamily": _FONT},
            "axisPointer": {"lineStyle": {"color": "var(--ps-muted)"}, "shadowStyle": {"opacity": 0.08}},
            ":valueFormatter": _FORMATS[unit],
        },
        "yAxis": {
            "type": "value",
            "min": 0,
            # Without values, ECharts would draw no axis and leave no room for the labels of the time axis.
            ":max": "(extent) => extent.max > 0 ? null : 3",
            "splitNumber": 3,
            "axisLabel": {**_TEXT, ":formatter": _FORMATS[unit]},
            "splitLine": {"lineStyle": {"color": "var(--ps-grid)"}},
        },
    }


@dataclass(frozen=True)
class ChartLine:
    """A line of a time chart. ``colour`` is the index of a series colour of the theme."""

    name: str
    colour: int = 1
    filled: bool = False


class TimeChart:
    """Lines over time. A line ends at a point without a value, and where a gap is longer than ``max_gap`` milliseconds.

    ``whole`` is for values that are whole numbers.
    """

    def __init__(
        self,
        label: str,
        lines: Sequence[ChartLine],
        *,
        unit: str = "number",
        whole: bool = False,
        height: int = 190,
        max_gap: float = inf,
    ) -> None:
        self.max_gap = max_gap
        axis_label = {**_CATEGORY_AXIS["axisLabel"], ":formatter": "penstock.clock"}
        axis = {**_CATEGORY_AXIS, "axisLabel": axis_label, "type": "time", "splitNumber": 4}
        self._chart = _create_chart(label, height, unit, xAxis=axis)
        options = self._chart.options
        options["series"] = [_line_series(line) for line in lines]
        options["yAxis"]["minInterval"] = 1 if whole else 0
        if len(lines) == 1:
            options["legend"] = {"show": False}
            options["grid"]["top"] = 10

    def set(self, series: Sequence[Iterable[tuple[int, float | None]]], span: tuple[int, int]) -> None:
        """Replace the points of each line: milliseconds since the epoch, and value."""
        options = self._chart.options
        options["xAxis"]["min"], options["xAxis"]["max"] = start, end = span
        options["xAxis"]["axisLabel"][":formatter"] = next(
            formatter for longest, formatter in _TIME_FORMATS if end - start <= longest
        )
        for line, data in zip(options["series"], series, strict=True):
            line["data"] = break_at_gaps(data, self.max_gap, (end - start) // _DOTS)
        self._chart.update()


def break_at_gaps(
    points: Iterable[tuple[int, float | None]], max_gap: float, dot: int = 1
) -> list[tuple[int, float | None]]:
    """Replace points without a value by gaps, and add a gap where two points are further apart than ``max_gap``.

    A point with a gap on both sides becomes a line of the length ``dot``, since a line of one point is not drawn.

    >>> break_at_gaps([(0, 1.0), (1, 1.5), (9, 2.0)], 3)
    [(0, 1.0), (1, 1.5), (8, None), (9, 2.0), (10, 2.0)]
    >>> break_at_gaps([(0, 1.0), (1, 1.5), (2, None), (3, 2.0), (4, 2.5)], 3)
    [(0, 1.0), (1, 1.5), (2, None), (3, 2.0), (4, 2.5)]
    """
    runs: list[list[tuple[int, float]]] = []
    previous: int | None = None
    for at, value in points:
        if value is None:
            previous = None
            continue
        if previous is None or at - previous > max_gap:
            runs.append([])
        runs[-1].append((at, round(value, 4)))
        previous = at
    line: list[tuple[int, float | None]] = []
    for run in runs:
        first, value = run[0]
        if line:
            line.append((first - 1, None))
        line += run
        if len(run) == 1:
            line.append((first + dot, value))
    return line


def window_gap(ends: Sequence[int]) -> float:
    """Return the gap that ends a line of windows: longer than the shortest step between their ends, in milliseconds.

    >>> window_gap([0, 60_000, 120_000, 300_000]), window_gap([0])
    (90000.0, inf)
    """
    return 1.5 * min((after - end for end, after in pairwise(ends) if after > end), default=inf)


def _line_series(line: ChartLine) -> dict[str, Any]:
    colour = f"var(--ps-series-{line.colour})"
    return {
        "type": "line",
        "name": line.name,
        "showSymbol": False,
        "connectNulls": False,
        "symbolSize": 5,
        "lineStyle": {"width": 1.75, "color": colour, "cap": "round"},
        "itemStyle": {"color": colour},
        "emphasis": {"disabled": True},
        "areaStyle": {"color": colour, "opacity": 0.1} if line.filled else None,
        "data": [],
    }


@dataclass(frozen=True)
class BarSeries:
    """A part of all bars: its name, the index of its colour, and its value in each category."""

    name: str
    colour: int
    values: Sequence[float]


class StackedBarChart:
    def __init__(self, label: str, *, unit: str = "milliseconds", height: int = 200) -> None:
        self._chart = _create_chart(label, height, unit, xAxis={**_CATEGORY_AXIS, "type": "category"})
        self._chart.options["tooltip"]["axisPointer"]["type"] = "shadow"

    def set(self, categories: Sequence[str], series: Sequence[BarSeries]) -> None:
        """Replace the bars: one bar for each category, with a value of each series."""
        options = self._chart.options
        options["xAxis"]["data"] = list(categories)
        options["series"] = [
            {
                "type": "bar",
                "name": bars.name,
                "stack": "all",
                "barCategoryGap": "25%",
                "itemStyle": {"color": f"var(--ps-series-{bars.colour})"},
                "emphasis": {"disabled": True},
                "data": [round(value, 1) for value in bars.values],
            }
            for bars in series
        ]
        self._chart.update()

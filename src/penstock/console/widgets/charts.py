"""Charts that take their colours from the theme: drawn as SVG, whose colours may be variables of the style."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nicegui import ui

#: How values are written, by functions of reader.js: as ``words.short`` and ``words.duration`` write them here.
FORMATS = {"number": "penstock.number", "seconds": "penstock.seconds", "milliseconds": "penstock.milliseconds"}

#: Named and not inherited: a chart measures its labels before they are in the page.
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif"
_TEXT = {"color": "var(--ps-muted)", "fontSize": 11, "fontFamily": _FONT}


@dataclass(frozen=True)
class Line:
    """A line of a chart: its name, which colour of the theme it has, and whether the space below it is filled."""

    name: str
    colour: int = 1
    filled: bool = False
    #: Goes on over moments without a value: for what need not be there every second.
    joined: bool = False


class Course:
    """How some numbers went over the last minutes."""

    def __init__(
        self, label: str, lines: Sequence[Line], *, unit: str = "number", whole: bool = False, height: int = 190
    ) -> None:
        self._chart = ui.echart(_course(lines, unit, whole), renderer="svg").classes("ps-chart")
        self._chart.style(f"height: {height}px")
        self._chart.props["role"] = "img"
        self._chart.props["aria-label"] = label

    def set(self, series: Sequence[Iterable[tuple[int, float | None]]], span: tuple[int, int]) -> None:
        """Show these: for each line its moments, in milliseconds since the epoch, and values."""
        options = self._chart.options
        options["xAxis"]["min"], options["xAxis"]["max"] = span
        for line, data in zip(options["series"], series, strict=True):
            line["data"] = [[at, None if value is None else round(value, 4)] for at, value in data]
        self._chart.update()


def _course(lines: Sequence[Line], unit: str, whole: bool) -> dict[str, Any]:
    return {
        **base(unit),
        "legend": _legend() if len(lines) > 1 else {"show": False},
        "grid": {**base(unit)["grid"], "top": 28 if len(lines) > 1 else 10},
        "xAxis": {
            "type": "time",
            "axisLine": {"lineStyle": {"color": "var(--ps-line)"}},
            "axisTick": {"show": False},
            "axisLabel": {**_TEXT, "hideOverlap": True, ":formatter": "penstock.clock"},
            "splitLine": {"show": False},
            "splitNumber": 4,
        },
        "yAxis": {**value_axis(unit), "minInterval": 1 if whole else 0},
        "series": [_line(each) for each in lines],
    }


def base(unit: str) -> dict[str, Any]:
    """What all charts have in common."""
    return {
        "animation": False,
        "textStyle": {"fontFamily": _FONT},
        "grid": {"left": 4, "right": 26, "top": 28, "bottom": 4, "containLabel": True},
        "tooltip": {
            "trigger": "axis",
            "confine": True,
            "backgroundColor": "var(--ps-surface)",
            "borderColor": "var(--ps-line)",
            "textStyle": {"color": "var(--ps-text)", "fontSize": 12, "fontFamily": _FONT},
            "axisPointer": {"lineStyle": {"color": "var(--ps-muted)"}, "shadowStyle": {"opacity": 0.08}},
            ":valueFormatter": FORMATS[unit],
        },
    }


def value_axis(unit: str) -> dict[str, Any]:
    """The axis of the values, from 0."""
    return {
        "type": "value",
        "min": 0,
        # Without a value there would be no axis, and no room for the first time below it.
        ":max": "(found) => found.max > 0 ? null : 3",
        "splitNumber": 3,
        "axisLabel": {**_TEXT, ":formatter": FORMATS[unit]},
        "splitLine": {"lineStyle": {"color": "var(--ps-grid)"}},
    }


def _legend() -> dict[str, Any]:
    return {
        # In one line that can be paged through: on a phone, a second one would lie over the axis.
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


def _line(line: Line) -> dict[str, Any]:
    colour = f"var(--ps-series-{line.colour})"
    return {
        "type": "line",
        "name": line.name,
        "showSymbol": False,
        "connectNulls": line.joined,
        "symbolSize": 5,
        "lineStyle": {"width": 1.75, "color": colour},
        "itemStyle": {"color": colour},
        "emphasis": {"disabled": True},
        "areaStyle": {"color": colour, "opacity": 0.1} if line.filled else None,
        "data": [],
    }


class Stacks:
    """Bars made of parts, one for each of a run of things: where the time of each cycle went."""

    def __init__(self, label: str, *, unit: str = "milliseconds", height: int = 200) -> None:
        options = {
            **base(unit),
            "legend": _legend(),
            "xAxis": {
                "type": "category",
                "data": [],
                "axisTick": {"show": False},
                "axisLine": {"lineStyle": {"color": "var(--ps-line)"}},
                "axisLabel": {**_TEXT, "hideOverlap": True},
            },
            "yAxis": value_axis(unit),
            "series": [],
        }
        options["grid"]["right"] = 28
        options["tooltip"]["axisPointer"] = {
            "type": "shadow",
            "shadowStyle": {"color": "var(--ps-muted)", "opacity": 0.1},
        }
        self._chart = ui.echart(options, renderer="svg").classes("ps-chart").style(f"height: {height}px")
        self._chart.props["role"] = "img"
        self._chart.props["aria-label"] = label

    def set(self, names: Sequence[str], parts: Sequence[tuple[str, int, Sequence[float]]]) -> None:
        """Show a bar for each name, of these parts: what each is called, its colour and its values."""
        options = self._chart.options
        options["xAxis"]["data"] = list(names)
        options["series"] = [
            {
                "type": "bar",
                "name": part,
                "stack": "all",
                "barCategoryGap": "25%",
                "itemStyle": {"color": f"var(--ps-series-{colour})"},
                "emphasis": {"disabled": True},
                "data": [round(value, 1) for value in values],
            }
            for part, colour, values in parts
        ]
        self._chart.update()

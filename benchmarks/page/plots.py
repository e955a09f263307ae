"""Renders plots as deterministic SVG, on a white background for dark pages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.page import flame_graph
from benchmarks.page.parts import Flame, Panel, Plot

#: Colour-blind-safe palette (Okabe and Ito).
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#999999", "#000000", "#b8a800")
_STYLE: Any = {
    # Deterministic ids.
    "svg.hashsalt": "penstock",
    # Text stays text and does not become paths.
    "svg.fonttype": "none",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.0,
}
_WIDTH, _HEIGHT = 4.6, 3.1


def draw(plots: list[Plot | Flame], directory: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with matplotlib.rc_context(_STYLE):
        for plot in plots:
            if isinstance(plot, Flame):
                flame_graph.draw(plot.stacks, plot.title, plot.unit, directory / f"{plot.name}.svg")
                continue
            columns = len(plot.panels)
            figure, axes = pyplot.subplots(1, columns, figsize=(_WIDTH * columns, _HEIGHT), squeeze=False)
            for panel, panel_axes in zip(plot.panels, axes[0], strict=True):
                _draw(panel, panel_axes)
            # The panels of a plot have the same series, so one legend is enough.
            handles, labels = axes[0][0].get_legend_handles_labels()
            if len(labels) > 1:
                figure.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=2, frameon=False)
            figure.tight_layout()
            figure.savefig(
                directory / f"{plot.name}.svg",
                bbox_inches="tight",
                facecolor="white",
                metadata={"Date": None, "Creator": None, "Title": plot.title},
            )
            pyplot.close(figure)


def _draw(panel: Panel, axes: Any) -> None:
    axes.set_title(panel.title, loc="left")
    axes.set_xlabel(panel.x)
    axes.grid(axis="y", linewidth=0.4, alpha=0.5)
    axes.set_axisbelow(True)
    if panel.log_x:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:,.0f}")
    if panel.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:,.9g}")
    width = 0.8 / max(len(panel.series), 1)
    for number, (name, values) in enumerate(panel.series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        if isinstance(values, Mapping):
            heights = [value or 0.0 for value in values.values()]
            positions = [i + number * width for i in range(len(values))]
            axes.bar(positions, heights, width * 0.9, label=name, color=colour)
            axes.set_xticks([i + 0.4 - width / 2 for i in range(len(values))], list(values))
            axes.tick_params(axis="x", length=0)
        else:
            xs, ys = [x for x, _ in values], [y for _, y in values]
            axes.plot(xs, ys, label=name, color=colour, marker="o", markersize=3.5, linewidth=1.4)
    if not panel.log_y:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter("{x:,.0f}" if axes.get_ylim()[1] > 10 else "{x:g}")

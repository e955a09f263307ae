"""Plots of the curves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from chaos.soak.samples import Curve

_PICTURES = {
    "memory": ("memory of ",),
    "tables": ("size of ",),
    "freshness": ("age of ",),
    "cost": ("processor time ", "events"),
    "connections": ("connections",),
}
_MOST = 12


def draw(curves: Mapping[str, Curve], directory: Path) -> list[Path]:
    """Write one plot for each kind of curve."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    made = []
    for name, starts in _PICTURES.items():
        some = [curve for curve in curves.values() if curve.name.startswith(starts)]
        # Of many curves, plot the largest.
        some = sorted(some, key=lambda curve: -max(value for _, value in curve.values))[:_MOST]
        if not some:
            continue
        figure, axes = pyplot.subplots(figsize=(9, 4.5))
        for curve in some:
            label = f"{curve.name} ({curve.unit})" if curve.unit else curve.name
            axes.plot(
                [at / 60 for at, _ in curve.values], [value for _, value in curve.values], label=label, linewidth=1
            )
        axes.set_xlabel("minutes")
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
        figure.tight_layout()
        path = directory / f"{name}.svg"
        figure.savefig(path)
        pyplot.close(figure)
        made.append(path)
    return made

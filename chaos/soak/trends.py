"""Tests whether a curve is flat: its trend against its noise."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from chaos.soak.samples import BY_DESIGN, Curve

#: The first samples belong to the warm-up.
_WARM_UP = 0.3
#: A trend counts if its total change exceeds this share of the mean, and the noise.
_PART = 0.15
_NOISE = 2.0
_FEWEST = 8
#: Smaller changes are ignored.
_LEAST = {"MB": 8.0, "ms": 500.0, "": 4.0, "µs": 300.0}


@dataclass(frozen=True)
class Trend:
    """The trend of a curve after the warm-up."""

    name: str
    unit: str
    mean: float
    #: The change of the fitted line from start to end.
    growth: float
    noise: float
    kind: str


def trend(curve: Curve) -> Trend:
    """Fit a line to the samples after the warm-up."""
    last = curve.values[-1][0] if curve.values else 0.0
    values = [(at, value) for at, value in curve.values if at >= last * _WARM_UP]
    if len(values) < _FEWEST:
        return Trend(
            curve.name, curve.unit, fmean(v for _, v in values) if values else 0.0, 0.0, 0.0, "too few samples"
        )
    middle, mean = fmean(at for at, _ in values), fmean(value for _, value in values)
    spread = sum((at - middle) ** 2 for at, _ in values)
    slope = sum((at - middle) * (value - mean) for at, value in values) / spread if spread else 0.0
    left = [value - mean - slope * (at - middle) for at, value in values]
    noise = (sum(each**2 for each in left) / len(left)) ** 0.5
    growth = slope * (values[-1][0] - values[0][0])
    return Trend(curve.name, curve.unit, mean, growth, noise, _classify(curve, mean, growth, noise))


def _classify(curve: Curve, mean: float, growth: float, noise: float) -> str:
    if curve.unit == "per second":
        return "the load"
    for table, why in BY_DESIGN.items():
        if curve.name in (f"size of {table}", f"size of the indexes of {table}"):
            return f"by design: {why}"
    grows = growth > _PART * mean and growth > _NOISE * noise and growth > _LEAST.get(curve.unit, 0.0)
    return "GROWS" if grows else "flat"

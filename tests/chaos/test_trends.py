"""Whether a curve of a soak is flat: a leak is found; noise, warming up and what is too little to care for are none."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from chaos.soak.samples import Curve
from chaos.soak.trends import trend


def curve(
    shape: Callable[[float], float], *, name: str = "memory of server", unit: str = "MB", noise: float = 3
) -> Curve:
    """An hour of it, a sample a minute."""
    chance = random.Random(7)
    return Curve(name, unit, [(at * 60.0, shape(at / 60) + chance.uniform(-noise, noise)) for at in range(61)])


def test_a_leak_is_found_and_how_much_it_was() -> None:
    found = trend(curve(lambda part: 100 + 60 * part))
    assert found.kind == "GROWS"
    assert found.growth == pytest.approx(60 * 0.7, rel=0.1), "of the part that is looked at"


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(lambda part: 100.0, id="level"),
        pytest.param(lambda part: 100 - 60 * part, id="falling"),
        pytest.param(lambda part: 20 + 80 * min(1.0, part / 0.25), id="warming up"),
        pytest.param(lambda part: 100 + 12 * part, id="by less than a part of the mean"),
        pytest.param(lambda part: 4 + 7 * part, id="by less than the least that counts"),
    ],
)
def test_a_curve_without_a_leak_is_flat(shape: Callable[[float], float]) -> None:
    assert trend(curve(shape, noise=0.5)).kind == "flat"


def test_a_trend_smaller_than_the_noise_is_flat() -> None:
    assert trend(curve(lambda part: 100 + 30 * part, noise=60)).kind == "flat"


@pytest.mark.parametrize(("unit", "least"), [("MB", 8), ("ms", 500), ("", 4), ("µs", 300)])
def test_a_leak_counts_from_the_floors_that_the_documentation_names(unit: str, least: float) -> None:
    def grown(by: float) -> str:
        return trend(curve(lambda part: by * part / 0.7, unit=unit, noise=0)).kind

    assert (grown(least * 1.01), grown(least * 0.99)) == ("GROWS", "flat")


def test_data_that_is_kept_longer_than_a_soak_grows_by_design() -> None:
    found = trend(curve(lambda part: 10 + 90 * part, name="size of cycles"))
    assert found.kind.startswith("by design")


def test_a_line_is_not_drawn_through_a_few_samples() -> None:
    assert trend(Curve("connections", "", [(0, 1), (60, 50)])).kind == "too few samples"

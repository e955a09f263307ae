"""Where the lines of a chart end."""

from __future__ import annotations

from math import inf

from penstock.console.widgets.charts import break_at_gaps


def test_a_line_ends_at_a_point_without_a_value() -> None:
    points = [(0, 1.0), (1, 1.0), (2, None), (3, None), (4, 2.0), (5, 2.0)]
    assert break_at_gaps(points, inf) == [(0, 1.0), (1, 1.0), (3, None), (4, 2.0), (5, 2.0)]


def test_a_single_value_between_gaps_is_drawn() -> None:
    assert break_at_gaps([(0, None), (5, 1.0), (6, None)], inf, dot=2) == [(5, 1.0), (7, 1.0)]


def test_a_line_without_values_is_empty() -> None:
    assert break_at_gaps([(0, None), (5, None)], 3) == []

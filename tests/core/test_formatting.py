"""Numbers for people keep their value, up to rounding."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.formatting import number


@given(st.floats(-1e15, 1e15))
def test_a_formatted_number_is_near_its_value(value: float) -> None:
    shown = float(number(value).replace(",", ""))
    assert abs(shown - value) <= max(0.00051, min(0.51, abs(value) * 0.006))

"""Numbers that functions pass on keep the digits of the original event."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from penstock.core import json
from penstock.engine.worker.udf.udf_batch import restore_digits

LINE = b'{"a": 0.12345678901234567891, "b": [1.5, {"c": 12345678901234567.25}], "id": 123456789012345678901234567890}'


def test_unchanged_numbers_keep_their_digits() -> None:
    restored = restore_digits({**json.decode(LINE), "more": 0.1}, LINE)
    assert restored == {
        "a": Decimal("0.12345678901234567891"),
        "b": [1.5, {"c": Decimal("12345678901234567.25")}],
        "id": 123456789012345678901234567890,
        "more": 0.1,
    }
    assert json.encode(restored) == LINE.replace(b" ", b"")[:-1] + b',"more":0.1}'


@pytest.mark.parametrize(
    "value", [{"a": 0.5}, {"a": "0.12345678901234567891"}, {"b": [1.5]}, {"x": 0.12345678901234568}, None, [0.5], 0.5]
)
def test_changed_values_stay_as_they_are(value: Any) -> None:
    assert restore_digits(value, LINE) == value


@pytest.mark.parametrize("text", ["0.1", "1e300", "2475.0", "0.30000000000000004", "-1.7976931348623157e308"])
def test_numbers_that_a_float_holds_stay_floats(text: str) -> None:
    value = json.decode(f'{{"a": {text}}}'.encode())
    restored = restore_digits(value, f'{{"a": {text}}}'.encode())
    assert restored == value
    assert type(restored["a"]) is float

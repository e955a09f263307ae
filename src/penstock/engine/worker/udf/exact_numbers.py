"""Restores the digits of numbers that user-defined functions pass on unchanged.

Functions get numbers as floats, which keep 15 to 17 digits. An event that a filter passes, or that a function copies
and extends, would lose the others, and exact sums would not be exact.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import msgspec

from penstock.core import json

#: A number with fewer digits equals its float, and needs no second look.
_LONG_NUMBER = re.compile(rb"[0-9][0-9.]{15}")
_decoder = msgspec.json.Decoder(float_hook=Decimal)


def restore_digits(value: Any, line: bytes) -> Any:
    """Replace each float that the original event, a line of JSON, has in the same place by the number as written."""
    if _LONG_NUMBER.search(line) is None:
        return value
    try:
        original = _decoder.decode(line)
    except msgspec.ValidationError:
        original = json.decode_decimals(line)
    return _restore(value, original)


def _restore(value: Any, original: Any) -> Any:
    match value, original:
        case float(), Decimal():
            is_rounded = float(original) == value and Decimal(repr(value)) != original
            return original if is_rounded else value
        case dict(), dict():
            return {name: _restore(inner, original.get(name)) for name, inner in value.items()}
        case list(), list() if len(value) == len(original):
            return list(map(_restore, value, original))
    return value

"""Validation of numbers and flags in options and requests."""

from __future__ import annotations

from penstock.core.errors import InvalidOption, short_repr


def check_integer(option: str, value: object, lowest: int, highest: int) -> int:
    """Return the value if it is an integer in the range, or raise InvalidOption."""
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        raise InvalidOption(
            f"{option} must be a whole number from {lowest:,} to {highest:,}, not {short_repr(value)}", option=option
        )
    return value


def check_number(option: str, value: object, lowest: float, highest: float) -> float:
    """Return the value if it is a number in the range, or raise InvalidOption."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not lowest <= value <= highest:
        raise InvalidOption(
            f"{option} must be a number from {lowest:,g} to {highest:,g}, not {short_repr(value)}", option=option
        )
    return value


def check_flag(option: str, value: object, hint: str = "") -> bool:
    """Return the value if it is True or False, or raise InvalidOption."""
    if not isinstance(value, bool):
        raise InvalidOption(f"{option} must be True or False, not {short_repr(value)}{hint}", option=option)
    return value

"""Validation of the names of options, and of numbers and flags in options and requests."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from penstock.core.errors import InvalidOption, short_repr


def check_option_names(given: Iterable[str], known: Collection[str], what: str) -> None:
    """Raise InvalidOption for the first option that a ``what`` (query, sink, ...) does not have."""
    for name in given:
        if name not in known:
            raise InvalidOption(
                f"{name!r} is not an option of a {what}; the options are {', '.join(known)}", option=name
            )


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

"""Validation of the options of sinks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.core.errors import InvalidOption, short_repr
from penstock.core.names import find_text_problem


def read_path(option: str, value: object) -> Path:
    """Return an absolute path."""
    given = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(given, str) or not given or find_text_problem(given) is not None:
        raise InvalidOption(f"{option} must be a path, not {short_repr(value)}", option=option)
    try:
        return Path(given).expanduser().absolute()
    except RuntimeError as error:
        raise InvalidOption(f"{option} {short_repr(given)} cannot be resolved: {error}", option=option) from None


def read_number(option: str, value: object, highest: float) -> float:
    """Return a number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= highest:
        raise InvalidOption(
            f"{option} must be a number above 0 and at most {highest:g}, not {short_repr(value)}", option=option
        )
    return value


def read_texts(option: str, value: object) -> list[str]:
    """Return a list of strings that PostgreSQL can store."""
    given = list(value) if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray) else None
    if given is None or not all(isinstance(text, str) and text and find_text_problem(text) is None for text in given):
        raise InvalidOption(f"{option} must be a list of strings, not {short_repr(value)}", option=option)
    return given


def read_mapping(option: str, value: object) -> dict[str, str]:
    """Return a mapping of strings to strings."""
    if not isinstance(value, Mapping) or any(find_text_problem(text) is not None for text in value.values()):
        raise InvalidOption(f"{option} must be a mapping of strings to strings, not {short_repr(value)}", option=option)
    read_texts(option, list(value))
    return dict(value)

"""Checks of what sinks are given. Each error says which option, and what it takes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.core.errors import InvalidOption, shown
from penstock.core.names import text_problem


def read_path(option: str, value: object) -> Path:
    """A path that can be one, from the root."""
    given = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(given, str) or not given or text_problem(given) is not None:
        raise InvalidOption(f"{option} must be a path, not {shown(value)}", option=option)
    try:
        return Path(given).expanduser().absolute()
    except RuntimeError as error:
        raise InvalidOption(f"{option} {shown(given)} leads nowhere: {error}", option=option) from None


def read_number(option: str, value: object, most: float) -> float:
    """A number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise InvalidOption(f"{option} must be a number above 0 and up to {most:g}, not {shown(value)}", option=option)
    return value


def read_count(option: str, value: object, most: int = 1_000_000) -> int:
    """A whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidOption(f"{option} must be a whole number from 1 to {most}, not {shown(value)}", option=option)
    return value


def read_texts(option: str, value: object) -> list[str]:
    """A list of texts that PostgreSQL can store."""
    given = list(value) if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray) else None
    if given is None or not all(isinstance(each, str) and each and text_problem(each) is None for each in given):
        raise InvalidOption(f"{option} must be a list of texts, not {shown(value)}", option=option)
    return given


def read_mapping(option: str, value: object) -> dict[str, str]:
    """Texts by text."""
    if not isinstance(value, Mapping):
        raise InvalidOption(f"{option} must be a mapping of texts to texts, not {shown(value)}", option=option)
    read_texts(option, list(value))
    if not all(isinstance(each, str) and text_problem(each) is None for each in value.values()):
        raise InvalidOption(f"{option} must be a mapping of texts to texts, not {shown(value)}", option=option)
    return dict(value)

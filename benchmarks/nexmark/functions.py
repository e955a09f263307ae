"""User-defined functions of the queries. Penstock and PyFlink run the same function."""

from __future__ import annotations


def count_char(text: str, character: str) -> int:
    """Count the occurrences of a character."""
    return text.count(character)

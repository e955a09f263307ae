"""What the clients of the plane are told of a body that is wrong, in the words that they know."""

from __future__ import annotations

import re

_MISSING = re.compile(r"missing required field `(\w+)`")
_AT = re.compile(r"^Expected `(\w+)[^`]*`.* - at `\$\.?(?:.*\.)?(\w+)(?:\[\.\.\.\]|\[\d+\])*`$")

_WORDS_FOR_MISSING = {
    "items": "items array is required",
    "operations": "operations array required",
    "acknowledgments": "acknowledgments array is required",
    "partitionId": "partitionId is required to ensure message uniqueness",
}


def in_their_words(problem: str) -> str:
    """What a decoder says, as these clients' own server says it."""
    missing = _MISSING.search(problem)
    if missing is not None:
        return _WORDS_FOR_MISSING.get(missing[1], f"{missing[1]} is required")
    wrong = _AT.match(problem)
    if wrong is None:
        return problem
    expected, name = wrong.groups()
    if expected == "array" and name in _WORDS_FOR_MISSING:
        return _WORDS_FOR_MISSING[name]
    if expected == "str":
        return f"{name[0].upper()}{name[1:]} must be a string"
    return problem

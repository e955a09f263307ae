"""Suggestions for misspelt names: "did you mean ...?"."""

from __future__ import annotations

import difflib
from collections.abc import Collection

#: A message lists up to so many known names.
_MAX_LISTED = 12


def closest_names(name: str, known: Collection[str], cutoff: float = 0.6) -> list[str]:
    """Return up to three of the known names that a misspelt name may stand for, the nearest first."""
    by_lower = {each.lower(): each for each in sorted(known)}
    close = difflib.get_close_matches(name.lower(), list(by_lower), n=3, cutoff=cutoff)
    return [by_lower[each] for each in close]


def describe_known(name: str, known: Collection[str]) -> str:
    """Return the known names that a misspelt name may stand for, for a message; without any, all known names."""
    if close := closest_names(name, known):
        return f"did you mean {' or '.join(map(repr, close))}?"
    listed = sorted(known)[:_MAX_LISTED]
    more = f" and {len(known) - len(listed)} more" if len(known) > len(listed) else ""
    return f"known are {', '.join(map(repr, listed))}{more}" if listed else "none is known"

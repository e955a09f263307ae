"""Search for a part of a text with LIKE."""

from __future__ import annotations


def like_pattern(text: str) -> str:
    """Return the pattern of texts that contain a text.

    >>> like_pattern("50%_")
    '%50\\\\%\\\\_%'
    """
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_").replace("\0", "")
    return f"%{escaped}%"

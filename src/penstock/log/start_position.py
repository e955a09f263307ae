"""Where a group starts to read, or is moved to."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from penstock.core.errors import InvalidRequest, short_repr

#: An end of the log, a time, or (in one partition) an offset.
StartPosition = Literal["beginning", "end", "now"] | datetime | int


def parse_start_position(position: object) -> StartPosition:
    """Return the position in its canonical form, or raise InvalidRequest."""
    if isinstance(position, str):
        if position in ("beginning", "all", "earliest"):
            return "beginning"
        if position in ("end", "latest", "now", "new", "new-only"):
            return "end"
        try:
            position = datetime.fromisoformat(position)
        except ValueError:
            raise InvalidRequest(
                f"{short_repr(position)} is not a start position: use 'beginning', 'now' or a time such as "
                "2026-01-31T12:00:00Z"
            ) from None
    if isinstance(position, datetime):
        if position.utcoffset() is None:
            raise InvalidRequest(f"the time {position} has no time zone; add one, such as a Z at the end")
        return position
    if isinstance(position, int) and not isinstance(position, bool):
        if position < 0:
            raise InvalidRequest(f"an offset is 0 or more, not {short_repr(position)}")
        return position
    raise InvalidRequest(f"{short_repr(position)} is not a start position: use 'beginning', 'now', a time or an offset")

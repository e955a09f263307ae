"""Times and values in the reader's time zone."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from penstock.core.formatting import duration, full_number

#: Numbers of a column are aligned at the point if none of them has more decimals.
_MAX_ALIGNED_DECIMALS = 4
#: Longer numbers have no separators.
_MAX_WHOLE_DIGITS = 400


def exact_number(text: str, decimals: int = 0) -> str:
    """Format a number of PostgreSQL with separators and at least this many decimals, without rounding.

    >>> exact_number("-1234567.5"), exact_number("3", 2), exact_number("0.12345", 2), exact_number("1e+300", 2)
    ('-1,234,567.5', '3.00', '0.12345', '1e+300')
    """
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    whole, _, fraction = digits.partition(".")
    if not (whole + fraction).isdigit() or not text.isascii() or len(whole) > _MAX_WHOLE_DIGITS:
        return text
    fraction = fraction.ljust(decimals, "0")
    return f"{sign}{int(whole):,}{'.' if fraction else ''}{fraction}"


def exact_decimals(texts: Iterable[str | None]) -> int:
    """Return the number of decimals at which the numbers of a column are aligned.

    >>> exact_decimals(["1", "2.25", None]), exact_decimals(["1", "0.123456"]), exact_decimals(["7"])
    (2, 0, 0)
    """
    most = max((len(text.partition(".")[2]) for text in texts if text is not None), default=0)
    return most if most <= _MAX_ALIGNED_DECIMALS else 0


class TimeFormatter:
    """Formats times in a time zone; in UTC if this machine does not know the zone."""

    def __init__(self, zone: str) -> None:
        self.zone: tzinfo
        try:
            self.name, self.zone = zone, ZoneInfo(zone)
        except (KeyError, ValueError, OSError):
            self.name, self.zone = "UTC", UTC

    def full(self, moment: datetime | None) -> str:
        """Format with the date: ``2026-03-01 14:05:09``."""
        return "–" if moment is None else f"{moment.astimezone(self.zone):%Y-%m-%d %H:%M:%S}"

    def clock(self, moment: datetime | None) -> str:
        """Format without the date if it is today."""
        if moment is None:
            return "–"
        here = moment.astimezone(self.zone)
        return f"{here:%H:%M:%S}" if here.date() == datetime.now(self.zone).date() else f"{here:%Y-%m-%d %H:%M:%S}"

    def ago(self, moment: datetime | None) -> str:
        """Format the time since then."""
        if moment is None:
            return "never"
        seconds = (datetime.now(UTC) - moment).total_seconds()
        if seconds < 0.95:
            return "now"
        return f"{duration(round(seconds))} ago" if seconds < 86_400 * 2 else self.full(moment)

    def value(self, value: Any) -> str:
        """Format any value of a result."""
        if isinstance(value, datetime):
            return self.clock(value)
        if isinstance(value, bool) or value is None:
            return "–" if value is None else str(value).lower()
        return full_number(value) if isinstance(value, int | float) else str(value)

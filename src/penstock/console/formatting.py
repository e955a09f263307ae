"""Times and values in the reader's time zone."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from penstock.core.formatting import duration, number


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
        return number(value) if isinstance(value, int | float) else str(value)

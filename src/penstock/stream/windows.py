"""Time windows of a definition, and the durations that describe them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.core.errors import InvalidOption, short_repr
from penstock.core.option_checks import check_integer

_MAX_SECONDS = 366 * 86_400
_MAX_WINDOWS_PER_EVENT = 1000
#: The number of months of the calendar units that are counted in months.
CALENDAR_MONTHS = {"month": 1, "quarter": 3, "year": 12}
CALENDAR_UNITS = ("minute", "hour", "day", "week", *CALENDAR_MONTHS)

_MICROS = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": 10**6,
    "minute": 60 * 10**6,
    "hour": 3600 * 10**6,
    "day": 86_400 * 10**6,
    "week": 7 * 86_400 * 10**6,
}
_DURATION_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TumblingWindow:
    """Windows of one length, one after the other."""

    size_us: int

    def describe(self) -> str:
        return f"tumbling {format_seconds(self.size_us)}"


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Windows of one length that start every ``slide_us``. An event counts in several."""

    size_us: int
    slide_us: int

    def describe(self) -> str:
        return f"sliding {format_seconds(self.size_us)} every {format_seconds(self.slide_us)}"


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """A window that lasts while the events of a key follow one another within ``gap_us``."""

    gap_us: int

    def describe(self) -> str:
        return f"session with gaps of {format_seconds(self.gap_us)}"


@dataclass(frozen=True, slots=True)
class CalendarWindow:
    """A minute, hour, day, week, month, quarter or year on the clock of a time zone. A day may have 23 or 25 hours."""

    every: str
    timezone: str
    #: The first day of a month, quarter or year. In a shorter month, the last day takes its place.
    anchor_day: int = 1
    #: A month in which a quarter or a year begins.
    anchor_month: int = 1

    def describe(self) -> str:
        anchor = "" if self.anchor_day == 1 else f" from day {self.anchor_day}"
        anchor += "" if self.anchor_month == 1 else f" from month {self.anchor_month}"
        return f"each {self.every} in {self.timezone}{anchor}"


Window: TypeAlias = TumblingWindow | SlidingWindow | SessionWindow | CalendarWindow


def parse_seconds(option: str, seconds: object, *, least: float = 0.001) -> int:
    """Return a number of seconds as microseconds."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not least <= seconds <= _MAX_SECONDS:
        raise InvalidOption(
            f"{option} must be a number of seconds from {least:g} to {_MAX_SECONDS}, not {short_repr(seconds)}",
            option=option,
        )
    return round(seconds * 1_000_000)


def parse_duration(text: str) -> int | None:
    """Return a duration such as ``1 minute 30 seconds`` in microseconds; None if the text is none."""
    total, end = 0.0, 0
    text = text.strip().removeprefix("INTERVAL").removeprefix("interval")
    for part in _DURATION_PART.finditer(text):
        unit = _MICROS.get(part[2].lower().removesuffix("s"))
        if part.start() != end or unit is None:
            return None
        total += float(part[1]) * unit
        end = part.end()
    return round(total) if end and not text[end:].strip() else None


def format_seconds(micros: int) -> str:
    """Format microseconds as seconds, to the last digit: texts of two durations differ if the durations do."""
    whole, rest = divmod(micros, 1_000_000)
    return f"{whole}.{rest:06d}".rstrip("0").rstrip(".") + " s"


def tumbling_window(seconds: object) -> TumblingWindow:
    return TumblingWindow(parse_seconds("seconds", seconds))


def sliding_window(size: object, slide: object) -> SlidingWindow:
    window = SlidingWindow(parse_seconds("size", size), parse_seconds("slide", slide))
    if window.slide_us > window.size_us:
        raise InvalidOption(
            f"slide ({short_repr(slide)} s) is longer than size ({short_repr(size)} s), so events between two windows "
            "would count in none: make slide shorter",
            option="slide",
        )
    if window.size_us > _MAX_WINDOWS_PER_EVENT * window.slide_us:
        raise InvalidOption(
            f"an event would count in more than {_MAX_WINDOWS_PER_EVENT:,} windows: make slide longer", option="slide"
        )
    return window


def session_window(gap: object) -> SessionWindow:
    return SessionWindow(parse_seconds("gap", gap))


def calendar_window(
    every: object, timezone: object, anchor_day: object = 1, anchor_month: object = 1
) -> CalendarWindow:
    if not isinstance(every, str) or every not in CALENDAR_UNITS:
        raise InvalidOption(
            f"every must be one of {', '.join(CALENDAR_UNITS)}, not {short_repr(every)}", option="every"
        )
    day, month = check_integer("anchor_day", anchor_day, 1, 31), check_integer("anchor_month", anchor_month, 1, 12)
    if day != 1 and every not in CALENDAR_MONTHS:
        raise InvalidOption(f"anchor_day is for months, quarters and years, not for a {every}", option="anchor_day")
    if month != 1 and every not in ("quarter", "year"):
        raise InvalidOption(f"anchor_month is for quarters and years, not for a {every}", option="anchor_month")
    if every == "quarter":
        month = (month - 1) % 3 + 1
    name = timezone.key if isinstance(timezone, ZoneInfo) else timezone
    try:
        if not isinstance(name, str):
            raise ValueError("not a name")
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidOption(
            f"timezone {short_repr(timezone)} is not known: give a name such as 'UTC' or 'Europe/Rome'",
            option="timezone",
        ) from None
    return CalendarWindow(every, name, day, month)

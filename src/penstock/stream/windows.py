"""Windows: which spans of time an event counts in. A definition only; the engine makes them run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.core.errors import InvalidOption, shown

_LONGEST = 366 * 86_400
CALENDAR_UNITS = ("minute", "hour", "day", "week")


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Spans of one length, one after the other."""

    size_us: int

    def describe(self) -> str:
        """In words, for people and for the fingerprint of a query."""
        return f"tumbling {seconds_text(self.size_us)}"


@dataclass(frozen=True, slots=True)
class Sliding:
    """Spans of one length that begin every ``slide_us``, so that an event counts in several."""

    size_us: int
    slide_us: int

    def describe(self) -> str:
        """In words, for people and for the fingerprint of a query."""
        return f"sliding {seconds_text(self.size_us)} every {seconds_text(self.slide_us)}"


@dataclass(frozen=True, slots=True)
class Session:
    """A span that lasts while the events of a key follow one another within ``gap_us``."""

    gap_us: int

    def describe(self) -> str:
        """In words, for people and for the fingerprint of a query."""
        return f"session with gaps of {seconds_text(self.gap_us)}"


@dataclass(frozen=True, slots=True)
class Calendar:
    """A minute, hour, day or week on the clock of a time zone: a day may have 23 or 25 hours."""

    every: str
    timezone: str

    def describe(self) -> str:
        """In words, for people and for the fingerprint of a query."""
        return f"each {self.every} in {self.timezone}"


Window: TypeAlias = Tumbling | Sliding | Session | Calendar


def micros(option: str, seconds: object, *, least: float = 0.001) -> int:
    """Seconds as microseconds, or an error that names the option."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not least <= seconds <= _LONGEST:
        raise InvalidOption(
            f"{option} must be a number of seconds from {least:g} to {_LONGEST}, not {shown(seconds)}", option=option
        )
    return round(seconds * 1_000_000)


def seconds_text(micros: int) -> str:
    """Microseconds as seconds, to the last digit: two that differ never read the same."""
    whole, rest = divmod(micros, 1_000_000)
    return f"{whole}.{rest:06d}".rstrip("0").rstrip(".") + " s"


def tumbling(seconds: object) -> Tumbling:
    """Check and make a tumbling window."""
    return Tumbling(micros("seconds", seconds))


def sliding(size: object, slide: object) -> Sliding:
    """Check and make a sliding window."""
    made = Sliding(micros("size", size), micros("slide", slide))
    if made.slide_us > made.size_us:
        raise InvalidOption(
            f"slide ({shown(slide)} s) is longer than size ({shown(size)} s), so events between two windows would "
            "count in none: make it shorter",
            option="slide",
        )
    if made.size_us > 1000 * made.slide_us:
        raise InvalidOption("an event would count in more than 1,000 windows: make slide longer", option="slide")
    return made


def session(gap: object) -> Session:
    """Check and make a session window."""
    return Session(micros("gap", gap))


def calendar(every: object, timezone: object) -> Calendar:
    """Check and make a calendar window."""
    if not isinstance(every, str) or every not in CALENDAR_UNITS:
        raise InvalidOption(f"every must be one of {', '.join(CALENDAR_UNITS)}, not {shown(every)}", option="every")
    name = timezone.key if isinstance(timezone, ZoneInfo) else timezone
    try:
        if not isinstance(name, str):
            raise ValueError("not a name")
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidOption(
            f"timezone {shown(timezone)} is not known: give a name such as 'UTC' or 'Europe/Rome'", option="timezone"
        ) from None
    return Calendar(every, name)

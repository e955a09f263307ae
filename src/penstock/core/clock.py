"""The clock of the database, which a test may shift, and times as microseconds since 1970, without floats."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_micros(moment: datetime) -> int:
    """Return the microseconds since 1970 of a timezone-aware datetime."""
    since = moment - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def from_micros(micros: int) -> datetime:
    """Return the UTC datetime of a number of microseconds since 1970."""
    return EPOCH + timedelta(microseconds=micros)


#: The range of datetime: the years 1 to 9999.
MIN_MICROS = to_micros(datetime.min.replace(tzinfo=UTC))
MAX_MICROS = to_micros(datetime.max.replace(tzinfo=UTC))


@dataclass(slots=True)
class Clock:
    """Offset that this process adds to the clock of the database. Zero outside of tests."""

    skew: timedelta = timedelta(0)

    def advance(self, seconds: float) -> None:
        """Move time forward, or back if ``seconds`` is negative."""
        self.skew += timedelta(seconds=seconds)

"""Timestamps as whole microseconds since 1970, converted without floats."""

from __future__ import annotations

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

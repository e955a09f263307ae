"""Moments as whole microseconds since 1970, without a float on the way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_micros(moment: datetime) -> int:
    """The microseconds of a moment, which has a time zone."""
    since = moment - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def from_micros(micros: int) -> datetime:
    """The moment of so many microseconds, in UTC."""
    return EPOCH + timedelta(microseconds=micros)


#: The first and the last that a datetime can be: the years 1 to 9999.
FIRST = to_micros(datetime.min.replace(tzinfo=UTC))
LAST = to_micros(datetime.max.replace(tzinfo=UTC))

"""Microseconds since 1970 and moments are two spellings of the same, to the last digit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core.timestamps import FIRST, LAST, from_micros, to_micros

_ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.integers(FIRST, LAST))
@example(FIRST)
@example(-1)
@example(LAST)
def test_microseconds_come_back_exactly(micros: int) -> None:
    assert to_micros(from_micros(micros)) == micros


@given(st.datetimes(timezones=_ZONES))
def test_microseconds_are_those_since_1970_whatever_the_time_zone(moment: datetime) -> None:
    assert to_micros(moment) == (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def test_the_first_and_the_last_moment_are_those_of_the_calendar() -> None:
    assert from_micros(FIRST).isoformat() == "0001-01-01T00:00:00+00:00"
    assert from_micros(LAST).isoformat() == "9999-12-31T23:59:59.999999+00:00"

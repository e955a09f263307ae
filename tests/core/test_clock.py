from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core.clock import MAX_MICROS, MIN_MICROS, from_micros, to_micros

_ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.integers(MIN_MICROS, MAX_MICROS))
@example(MIN_MICROS)
@example(-1)
@example(MAX_MICROS)
def test_microseconds_convert_to_datetime_and_back_exactly(micros: int) -> None:
    assert to_micros(from_micros(micros)) == micros


@given(st.datetimes(timezones=_ZONES))
def test_microseconds_count_from_1970_in_every_time_zone(moment: datetime) -> None:
    assert to_micros(moment) == (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def test_the_range_is_that_of_datetime() -> None:
    assert from_micros(MIN_MICROS).isoformat() == "0001-01-01T00:00:00+00:00"
    assert from_micros(MAX_MICROS).isoformat() == "9999-12-31T23:59:59.999999+00:00"

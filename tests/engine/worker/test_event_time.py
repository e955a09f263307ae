"""Event times are parsed in many formats, and a column like its single values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.engine.worker import event_time
from tests.engine.oracle import micros

NOON = micros(datetime(2026, 1, 31, 12, tzinfo=UTC))


@pytest.mark.parametrize(
    "value",
    [
        "2026-01-31T12:00:00Z",
        "2026-01-31T12:00Z",
        "2026-01-31 13:00:00.000+01:00",
        "2026-01-31T12:00:00.000000999Z",
        NOON // 10**6,
        NOON // 10**3,
        NOON,
        NOON * 1000,
        NOON / 1e6,
        datetime(2026, 1, 31, 7, tzinfo=timezone(timedelta(hours=-5))),
    ],
)
def test_equal_times_in_different_formats(value: Any) -> None:
    assert event_time.parse_event_time(value) == NOON


@pytest.mark.parametrize("value", [None, "", "noon", "2026-01-31T12:00:00", True, [], {}, float("nan"), 10**30, "Z"])
def test_other_values_are_rejected_with_a_reason(value: Any) -> None:
    with pytest.raises(ValueError, match=r"time|years"):
        event_time.parse_event_time(value)


_times = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)).flatmap(
    lambda t: st.sampled_from([f"{t.isoformat()}{zone}" for zone in ("Z", "+00:00", "-03:30", "")])
)
_odd = st.sampled_from(
    [
        "noon",
        "",
        "Z",
        "2026-01-31Z",
        "2026-01-31T12Z",
        "2026-01-31 12:00Z",
        "2026-01-31T12:00:00.1234567Z",
        "2026-01-31T24:00:00Z",
        "2026-02-30T12:00:00Z",
        "2026-01-31T12:00:60Z",
        "0000-01-01T00:00:00Z",
        "20260131T120000Z",
        "2026-W05-6T12:00:00Z",
        " 2026-01-31T12:00:00Z",
        "2026-01-31t12:00:00Z",
        "2026-01-31T12:00:00z",
        "2026-01-31T12:00:00+0100",
    ]
)


@example(["9999-12-31T23:59:59Z"])
@example(["0001-01-01T00:00:00+14:00"])
@given(st.lists(st.one_of(_times, _odd), min_size=1, max_size=4))
@settings(deadline=None, derandomize=True, max_examples=300)
def test_a_column_of_texts_is_parsed_like_its_values(values: list[str]) -> None:
    _assert_parsed_like_values(values, pa.array(values, pa.string()))


#: Seconds, milliseconds, microseconds and nanoseconds since 1970, and times before 1970.
_SIZES = ((-(10**6), 10**6), (10**9, 2 * 10**9), (10**12, 2 * 10**12), (10**15, 2 * 10**15), (10**17, 2 * 10**18))


@given(st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-(10**12), 10**17), st.none()), min_size=1))
@settings(deadline=None, derandomize=True, max_examples=300)
def test_a_column_of_integers_is_parsed_like_its_values(values: list[int | None]) -> None:
    _assert_parsed_like_values(values, pa.array(values, pa.int64()))


@given(
    st.lists(
        st.one_of(st.none(), *[st.decimals(low, high, places=p) for low, high in _SIZES for p in (0, 4, 18)]),
        min_size=1,
    )
)
@settings(deadline=None, derandomize=True, max_examples=300)
def test_a_column_of_decimals_is_parsed_like_its_values(values: list[Decimal | None]) -> None:
    _assert_parsed_like_values(values, pa.array(values, pa.decimal128(38, 18)))


def _assert_parsed_like_values(values: list[Any], column: pa.Array) -> None:
    times, errors = event_time.parse_event_times(pa.chunked_array([column]))
    for row, value in enumerate(values):
        try:
            expected = event_time.parse_event_time(value)
        except ValueError:
            assert row in errors, f"{value!r} was parsed as {times[row]}"
        else:
            assert row not in errors, f"{value!r} was rejected"
            assert times[row] == expected, value

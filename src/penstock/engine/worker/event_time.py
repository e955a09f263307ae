"""Event times: converts the times that events contain to microseconds since 1970."""

from __future__ import annotations

import decimal
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core import clock

#: Stands for no event time; smaller than every time.
NO_TIME = -(2**62)
# The years 3 to 9997. PostgreSQL and Python can represent them and the bounds of their windows in every time zone.
MIN_TIME_US = clock.to_micros(datetime(3, 1, 1, tzinfo=UTC))
MAX_TIME_US = clock.to_micros(datetime(9998, 1, 1, tzinfo=UTC)) - 1

#: The end of a time with a time zone.
_ZONE = r"(Z|[+-]\d\d:\d\d)$"
#: Enough precision for every number in an event.
_EXACT = decimal.Context(prec=10_000)


#: Microseconds since 1970 for each row; NO_TIME and an error for rows without a valid time.
EventTimes: TypeAlias = tuple[np.ndarray[Any, Any], dict[int, str]]


def to_timestamp(us: int) -> datetime:
    """Convert microseconds to a timestamp, clamped to the range of datetime."""
    return clock.from_micros(min(max(us, clock.MIN_MICROS), clock.MAX_MICROS))


def parse_event_time(value: Any) -> int:
    """Parse ISO 8601 text or a number since 1970, whose magnitude tells the unit. Returns microseconds since 1970."""
    if isinstance(value, datetime):
        timestamp = value
    elif isinstance(value, str):
        try:
            timestamp = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f"{value[:60]!r} is not a time; write it as 2026-01-31T12:00:00Z") from None
    elif isinstance(value, int | float | decimal.Decimal) and not isinstance(value, bool):
        number = value if isinstance(value, decimal.Decimal) else decimal.Decimal(str(value))
        if not number.is_finite():
            raise ValueError(f"{value} is not a time")
        size = number.copy_abs()
        digits = 6 if size < 10**11 else 3 if size < 10**14 else 0 if size < 10**17 else -3
        us = int(_EXACT.scaleb(number, digits).to_integral_value(decimal.ROUND_FLOOR))
        return _check_range(us, value)
    else:
        raise ValueError("the event has no time" if value is None else f"{str(value)[:60]} is not a time")
    if timestamp.utcoffset() is None:
        raise ValueError(f"the time {value} has no time zone; add one, for example a Z at the end")
    return _check_range(clock.to_micros(timestamp), value)


def _check_range(us: int, value: Any) -> int:
    if not MIN_TIME_US <= us <= MAX_TIME_US:
        raise ValueError(f"{value} is outside the years 3 to 9997")
    return us


def check_producer_times(times: np.ndarray[Any, Any]) -> EventTimes:
    """The times that producers gave with their events, which may be outside the supported range."""
    is_outside = (times < MIN_TIME_US) | (times > MAX_TIME_US)
    if not is_outside.any():
        return times, {}
    rows = np.flatnonzero(is_outside).tolist()
    errors = {row: f"{clock.from_micros(int(times[row]))} is outside the years 3 to 9997" for row in rows}
    return np.where(is_outside, NO_TIME, times), errors


def parse_event_times(column: pa.ChunkedArray) -> EventTimes:
    """Parse a column like :func:`parse_event_time` parses its values."""
    times = _parse_column(column)
    if times is not None:
        return times, {}
    times = np.full(len(column), NO_TIME, dtype=np.int64)
    errors: dict[int, str] = {}
    for row, value in enumerate(column.to_pylist()):
        try:
            times[row] = parse_event_time(value)
        except ValueError as error:
            errors[row] = str(error)
    return times, errors


def _parse_column(column: pa.ChunkedArray) -> Any:
    """Parse a column at once; None if its values differ in kind or one is not a time."""
    if column.null_count:
        return None
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_decimal128(kind):
        low, high = (bound.as_py() or 0 for bound in pc.min_max(column).values())
        for lower, upper, digits in ((0, 10**11, 6), (10**11, 10**14, 3), (10**14, 10**17, 0)):
            if lower <= low and high < upper and high * 10**digits <= MAX_TIME_US:
                return _scale(column, digits)
        return None
    if not pa.types.is_timestamp(kind) and not pa.types.is_string(kind):
        return None
    try:
        if pa.types.is_string(kind) and pc.all(pc.match_substring_regex(column, _ZONE)).as_py() is False:
            return None
        times = pc.cast(column, pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        return None
    return times if not len(times) or (times.min() >= MIN_TIME_US and times.max() <= MAX_TIME_US) else None


def _scale(column: pa.ChunkedArray, digits: int) -> Any:
    """Multiply numbers that are not negative by a power of ten and drop the decimals."""
    if pa.types.is_integer(column.type):
        return column.to_numpy().astype(np.int64) * 10**digits
    scaled = pc.cast(column, pa.decimal128(38, digits), safe=False).combine_chunks()
    # A decimal is a 128-bit integer. A valid time fits into its lower half.
    return np.frombuffer(scaled.buffers()[1], dtype="<i8")[2 * scaled.offset :: 2][: len(scaled)]

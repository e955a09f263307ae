"""Event times: from what events say to microseconds since 1970."""

from __future__ import annotations

import decimal
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core import timestamps

#: Before every moment.
NEVER = -(2**62)
# Years 1 to 9998: what PostgreSQL and Python both can show, with room for a window behind it.
FIRST = timestamps.FIRST
LAST = timestamps.LAST - 366 * 86_400_000_000

#: With room for every digit that an event can spell.
_EXACT = decimal.Context(prec=10_000)


def to_moment(us: int) -> datetime:
    """The moment of so many microseconds, or the first or last that there is."""
    return timestamps.from_micros(min(max(us, FIRST), LAST))


def of_value(value: Any) -> int:
    """What an event says of its time: ISO 8601 text, or a number since 1970 whose size tells its unit."""
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f"{value[:60]!r} is no time; write it as 2026-01-31T12:00:00Z") from None
    elif isinstance(value, int | float | decimal.Decimal) and not isinstance(value, bool):
        number = value if isinstance(value, decimal.Decimal) else decimal.Decimal(str(value))
        if not number.is_finite():
            raise ValueError(f"{value} is no time")
        size = number.copy_abs()
        digits = 6 if size < 10**11 else 3 if size < 10**14 else 0 if size < 10**17 else -3
        found = int(_EXACT.scaleb(number, digits).to_integral_value(decimal.ROUND_FLOOR))
        return _checked(found, value)
    else:
        raise ValueError("the event has no time" if value is None else f"{str(value)[:60]} is no time")
    if moment.utcoffset() is None:
        raise ValueError(f"{value} has no time zone; add one, such as a Z at its end")
    return _checked(timestamps.to_micros(moment), value)


def _checked(found: int, value: Any) -> int:
    if not FIRST <= found <= LAST:
        raise ValueError(f"{value} lies outside the years 1 to 9998")
    return found


def of_column(column: pa.ChunkedArray) -> tuple[np.ndarray[Any, Any], dict[int, str]]:
    """The same for a column: microseconds, NEVER where there is none, and why."""
    found = _fast(column)
    if found is not None:
        return found, {}
    times = np.full(len(column), NEVER, dtype=np.int64)
    problems: dict[int, str] = {}
    for place, value in enumerate(column.to_pylist()):
        try:
            times[place] = of_value(value)
        except ValueError as error:
            problems[place] = str(error)
    return times, problems


def _fast(column: pa.ChunkedArray) -> Any:
    """All at once, if nothing about them is odd."""
    if column.null_count:
        return None
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_decimal128(kind):
        low, high = (bound.as_py() or 0 for bound in pc.min_max(column).values())
        for least, most, digits in ((0, 10**11, 6), (10**11, 10**14, 3), (10**14, 10**17, 0)):
            if least <= low and high < most and high * 10**digits <= LAST:
                return _shifted(column, digits)
        return None
    if pa.types.is_timestamp(kind):
        return _within(pc.cast(column, pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy())
    if pa.types.is_string(kind):
        try:
            zoned = pc.all(pc.match_substring_regex(column, r"(Z|[+-]\d\d:\d\d)$")).as_py()
            if zoned is False:
                return None
            return _within(pc.cast(column, pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy())
        except pa.ArrowInvalid:
            return None
    return None


def _shifted(column: pa.ChunkedArray, digits: int) -> Any:
    """Numbers from zero on, with the point so many digits further to the right, and nothing after it."""
    if pa.types.is_integer(column.type):
        return column.to_numpy().astype(np.int64) * 10**digits
    cut = pc.cast(column, pa.decimal128(38, digits), safe=False).combine_chunks()
    # A decimal is a whole number of 16 bytes, of which the lower 8 hold all that is a time.
    return np.frombuffer(cut.buffers()[1], dtype="<i8")[2 * cut.offset :: 2][: len(cut)]


def _within(times: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """The times, if all of them lie in years that can be shown."""
    return times if not len(times) or (times.min() >= FIRST and times.max() <= LAST) else None

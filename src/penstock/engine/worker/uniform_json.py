"""Reads lines of JSON that all have the same layout, a column at a time.

The events of one program usually differ only in their values: names, order and spaces of the fields are the same. If
every line of a batch has the layout of the first, the quotes tell where the values are, and NumPy parses the numbers
with as many steps as the longest has digits, whatever the number of lines. Every byte is checked: a line that differs,
or is not JSON, leaves the batch to Arrow's reader, which takes three times as long.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import accumulate, repeat
from typing import Any, Self

import numpy as np
import pyarrow as pa

#: The digits that every 64-bit integer can hold.
_MAX_DIGITS = 18
#: Integers up to this are exact as doubles, and so are all powers of ten that fit into 64 bits.
_MAX_EXACT_DOUBLE = 1 << 53
_POWERS_OF_TEN = 10 ** np.arange(_MAX_DIGITS + 1, dtype=np.int64)
#: Arrow is as fast for fewer lines.
_MIN_LINES = 64

_Array = np.ndarray[Any, Any]

_MEMBER = re.compile(rb' *"([^"\\]*)" *: *(?:"([^"\\]*)"|(-?\d[\d.]*|true|false|null)) *([,}])')


@dataclass(frozen=True, slots=True)
class _LineLayout:
    """The parts of a line that are the same in all lines."""

    #: The text before, between and after the values.
    separators: tuple[bytes, ...]
    names: tuple[str, ...]
    is_quoted: tuple[bool, ...]

    @classmethod
    def from_line(cls, line: bytes) -> Self | None:
        """The layout of a line; None if it is not an object of scalars."""
        separators: list[bytes] = []
        names: list[str] = []
        is_quoted: list[bool] = []
        position = len(line) - len(line.lstrip(b" "))
        if line[position : position + 1] != b"{":
            return None
        value_end, position = 0, position + 1
        while True:
            member = _MEMBER.match(line, position)
            if member is None:
                return None
            group = 3 if member[2] is None else 2
            separators.append(line[value_end : member.start(group)])
            names.append(member[1].decode(errors="replace"))
            is_quoted.append(group == 2)
            value_end, position = member.end(group), member.end()
            if member[4] == b"}":
                break
        if line[position:].strip(b" ") or len(set(names)) < len(names):
            return None
        return cls((*separators, line[value_end:]), tuple(names), tuple(is_quoted))


class UniformJsonReader:
    def __init__(self, schema: pa.Schema, min_lines: int = _MIN_LINES) -> None:
        self._schema = schema
        self._min_lines = min_lines
        self._layout: _LineLayout | None = None
        self._is_supported = all(_is_scalar(field.type) for field in schema)

    def read(self, data: bytes, count: int) -> pa.Table | None:
        """Read ``count`` lines; None if their layouts differ, or if a value is not supported here."""
        if not self._is_supported or count < self._min_lines or b"\\" in data:
            return None
        if self._layout is not None and (table := self._read(self._layout, data, count)) is not None:
            return table
        layout = _LineLayout.from_line(data[: data.find(b"\n")])
        if layout is None or layout == self._layout:
            return None
        self._layout = layout
        return self._read(layout, data, count)

    def _read(self, layout: _LineLayout, data: bytes, count: int) -> pa.Table | None:
        text = np.frombuffer(data, np.uint8)
        spans = _find_values(layout, text, count)
        if spans is None or not (data.isascii() or _is_utf8(data)):
            return None
        columns: dict[str, pa.Array] = {}
        for name, is_quoted, (start, end) in zip(layout.names, layout.is_quoted, spans, strict=True):
            index = self._schema.get_field_index(name)
            kind = None if index < 0 else self._schema.field(index).type
            if is_quoted and kind is None:
                continue
            column = _read_strings(text, start, end, kind) if is_quoted else _read_bare_values(text, start, end, kind)
            if column is None:
                return None
            if kind is not None:
                columns[name] = column
        arrays = [columns[f.name] if f.name in columns else pa.nulls(count, f.type) for f in self._schema]
        return pa.table(arrays, schema=self._schema)


def _find_values(layout: _LineLayout, text: _Array, count: int) -> list[tuple[_Array, _Array]] | None:
    """Find where the values of each field start and end in every line; None if a line has another layout.

    The separators contain all quotes and all line ends of the text. So if every separator is in its position, counted
    from its first quote, then no value contains one of these, and every byte belongs to a separator or to a value.
    """
    *separators, last = layout.separators
    quotes = [separator.count(b'"') for separator in (*separators, last)]
    is_quote = text == ord('"')
    if np.count_nonzero(is_quote) != count * sum(quotes) or np.count_nonzero(text < ord(" ")) != count - 1:
        return None
    quote_positions = np.flatnonzero(is_quote).reshape(count, sum(quotes))
    first_quotes = accumulate(quotes, initial=0)
    starts = [
        quote_positions[:, first] - separator.find(b'"')
        for first, separator in zip(first_quotes, separators, strict=False)
    ]
    line_ends = np.append(starts[0][1:] - 1, len(text))
    last_starts = line_ends - len(last)
    if starts[0][0] != 0 or last_starts[-1] < 0 or not _all_equal(text, last_starts[:-1], last + b"\n"):
        return None
    if text[last_starts[-1] :].tobytes() != last or not all(map(_all_equal, repeat(text), starts, separators)):
        return None
    value_starts = [start + len(separator) for start, separator in zip(starts, separators, strict=True)]
    return list(zip(value_starts, [*starts[1:], last_starts], strict=True))


def _all_equal(text: _Array, positions: _Array, expected: bytes) -> bool:
    """True if the text has the expected bytes at every position."""
    if positions.min() < 0 or positions.max() + len(expected) > len(text):
        return False
    return _bytes_from(text, positions, len(expected)).tobytes() == expected * len(positions)


def _bytes_from(text: _Array, positions: _Array, size: int) -> _Array:
    """The ``size`` bytes from each position on, as one row each."""
    every = np.ndarray((len(text) - size + 1,), dtype=f"V{size}", buffer=text.data, strides=(1,))
    return every[positions].view(np.uint8).reshape(len(positions), size)


def _bytes_before(text: _Array, ends: _Array, size: int) -> _Array:
    """The ``size`` bytes before each end, as one row each, with zeros in place of what lies before the text."""
    positions = ends - size
    outside = np.flatnonzero(positions < 0)
    if not len(outside):
        return _bytes_from(text, positions, size)
    positions[outside] = 0
    rows = _bytes_from(text, positions, size) if size <= len(text) else np.zeros((len(ends), size), dtype=np.uint8)
    for row in outside:
        rows[row] = np.frombuffer(text[: ends[row]].tobytes().rjust(size, b"\0"), np.uint8)
    return rows


def _is_scalar(kind: pa.DataType) -> bool:
    return pa.types.is_decimal128(kind) or kind in (pa.int64(), pa.float64(), pa.string(), pa.bool_())


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _read_strings(text: _Array, start: _Array, end: _Array, kind: pa.DataType) -> pa.Array | None:
    """Read quoted values; None if the column has another type."""
    if not pa.types.is_string(kind) or len(text) > np.iinfo(np.int32).max:
        return None
    offsets = np.empty(2 * len(start) + 1, dtype=np.int32)
    offsets[0:-1:2], offsets[1::2], offsets[-1] = start, end, end[-1]
    # Every second string is the text between two values.
    strings = pa.StringArray.from_buffers(2 * len(start), pa.py_buffer(offsets), pa.py_buffer(text))
    return strings.take(pa.array(np.arange(0, 2 * len(start), 2)))


def _read_bare_values(text: _Array, start: _Array, end: _Array, kind: pa.DataType | None) -> pa.Array | None:
    """Read values without quotes: numbers, true, false and null. None if one is none of these or of another type."""
    if (end - start).min() < 1:
        return None
    is_keyword = text[start] > ord("9")
    if not is_keyword.any():
        numbers = _Numbers.read(text, start, end)
        return None if numbers is None else numbers.to_column(kind, None)
    rows = np.flatnonzero(is_keyword)
    keywords = _read_keywords(text, start[rows], end[rows])
    if keywords is None:
        return None
    if kind is not None and pa.types.is_boolean(kind):
        return keywords if len(keywords) == len(start) else None
    if len(keywords) == len(start):
        return pa.nulls(len(start), kind or pa.null()) if keywords.null_count == len(start) or kind is None else None
    numbers = _Numbers.read(text, start[~is_keyword], end[~is_keyword])
    if numbers is None or (kind is not None and keywords.null_count < len(keywords)):
        return None
    return numbers.to_column(kind, is_keyword)


def _read_keywords(text: _Array, start: _Array, end: _Array) -> pa.Array | None:
    """Read true, false and null; None if one is another word."""
    size = end - start
    # Bytes before the word are not compared.
    words = _bytes_before(text, end, 5)
    is_false = (size == 5) & (words == np.frombuffer(b"false", np.uint8)).all(axis=1)
    is_true = (size == 4) & (words[:, 1:] == np.frombuffer(b"true", np.uint8)).all(axis=1)
    is_null = (size == 4) & (words[:, 1:] == np.frombuffer(b"null", np.uint8)).all(axis=1)
    return pa.array(is_true, mask=is_null) if (is_false | is_true | is_null).all() else None


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Numbers as integers of all their digits, with the count of decimals and the sign."""

    digits: _Array
    decimals: _Array
    is_negative: _Array
    #: The most digits before the point.
    max_integer_digits: int

    @classmethod
    def read(cls, text: _Array, start: _Array, end: _Array) -> Self | None:
        """Read JSON numbers without an exponent; None if one is not a number or has too many digits."""
        is_negative = text[start] == ord("-")
        start = start + is_negative
        longest, shortest = int((end - start).max()), int((end - start).min())
        if shortest < 1 or longest > _MAX_DIGITS + 1:
            return None
        size = (end - start).astype(np.int8)
        columns = np.ascontiguousarray(_bytes_before(text, end, longest).T)
        for column in range(longest - shortest):
            np.copyto(columns[column], ord("0"), where=size < longest - column)
        is_point = columns == ord(".")
        points = is_point.sum(axis=0, dtype=np.int8)
        decimals = np.zeros(len(start), dtype=np.int8)
        columns -= ord("0")
        if points.any():
            # Shift the digits before a point by one, over the point.
            is_shifted = np.zeros(len(start), dtype=bool)
            for column in range(longest - 1, -1, -1):
                np.copyto(decimals, longest - 1 - column, where=is_point[column])
                is_shifted |= is_point[column]
                columns[column] = np.where(is_shifted, columns[column - 1] if column else 0, columns[column])
        if columns.max() > 9:
            return None
        digits = _join_digits(columns)
        integer_digits = size - decimals - points
        if (
            points.max() > 1
            or (size - points).max() > _MAX_DIGITS
            or integer_digits.min() < 1
            or ((points == 1) & (decimals == 0)).any()
            or ((text[start] == ord("0")) & (integer_digits > 1)).any()
        ):
            return None
        return cls(digits, decimals, is_negative, int(integer_digits.max()))

    def to_column(self, kind: pa.DataType | None, is_missing: _Array | None) -> pa.Array | None:
        """The numbers as a column with nulls where they are missing; None if they do not fit the type."""
        if kind is None:
            return pa.nulls(0)  # the column is only checked
        max_decimals = int(self.decimals.max())
        if pa.types.is_decimal128(kind):
            return self._to_decimals(kind, max_decimals, is_missing)
        values = self.digits
        if pa.types.is_float64(kind) and values.max() <= _MAX_EXACT_DOUBLE:
            # Both operands are exact, so the quotient is the double nearest to the literal.
            values = values.astype(np.float64) / _POWERS_OF_TEN[self.decimals].astype(np.float64)
        elif not pa.types.is_int64(kind) or max_decimals:
            return None
        values = np.where(self.is_negative, -values, values)
        return pa.array(_insert_missing(values, is_missing), mask=is_missing)

    def _to_decimals(self, kind: pa.Decimal128Type, max_decimals: int, is_missing: _Array | None) -> pa.Array | None:
        if max_decimals > kind.scale or self.max_integer_digits + max_decimals > _MAX_DIGITS:
            return None
        values = self.digits
        if self.decimals.min() < max_decimals:
            values = values * _POWERS_OF_TEN[max_decimals - self.decimals]
        values = _insert_missing(np.where(self.is_negative, -values, values), is_missing)
        # A decimal is a 128-bit integer. The upper half of one that fits into the lower half is its sign.
        wide = np.empty((len(values), 2), dtype="<i8")
        wide[:, 0], wide[:, 1] = values, values >> 63
        validity = None if is_missing is None else pa.array(~is_missing).buffers()[1]
        column = pa.Array.from_buffers(pa.decimal128(38, max_decimals), len(values), [validity, pa.py_buffer(wide)])
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            return None


def _join_digits(digits: _Array) -> _Array:
    """Join digits to numbers; the first row has the most significant digits.

    Joins them pairwise, in the smallest integers that hold the result.
    """
    power = 1
    for width in ("u1", "u2", "u4", "i8", "i8"):
        if len(digits) == 1:
            break
        if len(digits) % 2:
            digits = np.concatenate((np.zeros_like(digits[:1]), digits))
        digits = digits[0::2].astype(width) * 10**power + digits[1::2]
        power *= 2
    joined: _Array = digits[0].astype(np.int64)
    return joined


def _insert_missing(values: _Array, is_missing: _Array | None) -> _Array:
    """The values with a zero inserted for each missing one."""
    if is_missing is None:
        return values
    padded = np.zeros(len(is_missing), dtype=values.dtype)
    padded[~is_missing] = values
    return padded

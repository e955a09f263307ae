"""In a Spark worker: lines of JSON that are spelled alike, read a column at a time.

What one program writes differs in its values alone: the names of the fields, their order and the spaces stay. Where
every line of a batch is spelled like the first, its values lie where quotes tell, and numbers are read with as many
steps as the longest has digits, whatever the number of lines. Every byte is looked at: a line that differs, or is no
JSON, leaves the batch to Arrow's reader, which takes three times as long.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import accumulate, repeat
from typing import Any, Self

import numpy as np
import pyarrow as pa

#: Digits that an integer of 64 bits holds, whatever they are.
_DIGITS = 18
#: Whole numbers up to here are doubles, and so is every power of ten that fits into 64 bits.
_DOUBLE = 1 << 53
_TENS = 10 ** np.arange(_DIGITS + 1, dtype=np.int64)
#: Fewer lines are not worth it.
_FEW = 64

_Array = np.ndarray[Any, Any]

_MEMBER = re.compile(rb' *"([^"\\]*)" *: *(?:"([^"\\]*)"|(-?\d[\d.]*|true|false|null)) *([,}])')


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a line is spelled: what stands before, between and after its values."""

    between: tuple[bytes, ...]
    names: tuple[str, ...]
    #: Whether a value is in quotes.
    quoted: tuple[bool, ...]

    @classmethod
    def of(cls, line: bytes) -> Self | None:
        """The shape of a line; None if it is not an object of plain values."""
        between: list[bytes] = []
        names: list[str] = []
        quoted: list[bool] = []
        place = len(line) - len(line.lstrip(b" "))
        if line[place : place + 1] != b"{":
            return None
        done, place = 0, place + 1
        while True:
            member = _MEMBER.match(line, place)
            if member is None:
                return None
            inside = 3 if member[2] is None else 2
            between.append(line[done : member.start(inside)])
            names.append(member[1].decode(errors="replace"))
            quoted.append(inside == 2)
            done, place = member.end(inside), member.end()
            if member[4] == b"}":
                break
        if line[place:].strip(b" ") or len(set(names)) < len(names):
            return None
        return cls((*between, line[done:]), tuple(names), tuple(quoted))


class Alike:
    """Reads batches of lines into the columns of a schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._known: _Shape | None = None
        self._can = all(_is_plain(field.type) for field in schema)

    def read(self, data: bytes, count: int) -> pa.Table | None:
        """The columns of ``count`` lines; None if they are not all spelled alike, or hold what is not read here."""
        if not self._can or count < _FEW or b"\\" in data:
            return None
        if self._known is not None and (table := self._as(self._known, data, count)) is not None:
            return table
        shape = _Shape.of(data[: data.find(b"\n")])
        if shape is None or shape == self._known:
            return None
        self._known = shape
        return self._as(shape, data, count)

    def _as(self, shape: _Shape, data: bytes, count: int) -> pa.Table | None:
        text = np.frombuffer(data, np.uint8)
        spans = _spans(shape, text, count)
        if spans is None or not (data.isascii() or _is_text(data)):
            return None
        found: dict[str, pa.Array] = {}
        for name, quoted, (start, end) in zip(shape.names, shape.quoted, spans, strict=True):
            place = self._schema.get_field_index(name)
            kind = None if place < 0 else self._schema.field(place).type
            if quoted and kind is None:
                continue
            column = _quoted(text, start, end, kind) if quoted else _bare(text, start, end, kind)
            if column is None:
                return None
            if kind is not None:
                found[name] = column
        columns = [found[f.name] if f.name in found else pa.nulls(count, f.type) for f in self._schema]
        return pa.table(columns, schema=self._schema)


def _spans(shape: _Shape, text: _Array, count: int) -> list[tuple[_Array, _Array]] | None:
    """Where each value of every line begins and ends; None if one line is not of the shape.

    The pieces that stand between values hold all quotes and all ends of lines that there are. So where every piece is
    in its place, counted from its first quote, no value holds one of these, and no byte is in neither.
    """
    *pieces, last = shape.between
    quotes = [piece.count(b'"') for piece in (*pieces, last)]
    is_quote = text == ord('"')
    if np.count_nonzero(is_quote) != count * sum(quotes) or np.count_nonzero(text < ord(" ")) != count - 1:
        return None
    found = np.flatnonzero(is_quote).reshape(count, sum(quotes))
    firsts = accumulate(quotes, initial=0)
    places = [found[:, first] - piece.find(b'"') for first, piece in zip(firsts, pieces, strict=False)]
    ends = np.append(places[0][1:] - 1, len(text))
    lasts = ends - len(last)
    if places[0][0] != 0 or lasts[-1] < 0 or not _stand(text, lasts[:-1], last + b"\n"):
        return None
    if text[lasts[-1] :].tobytes() != last or not all(map(_stand, repeat(text), places, pieces)):
        return None
    after = [place + len(piece) for place, piece in zip(places, pieces, strict=True)]
    return list(zip(after, [*places[1:], lasts], strict=True))


def _stand(text: _Array, places: _Array, piece: bytes) -> bool:
    """Whether the piece stands at each of the places."""
    if places.min() < 0 or places.max() + len(piece) > len(text):
        return False
    return _cut(text, places, len(piece)).tobytes() == piece * len(places)


def _cut(text: _Array, places: _Array, size: int) -> _Array:
    """So many bytes from each place on: a row for each."""
    every = np.ndarray((len(text) - size + 1,), dtype=f"V{size}", buffer=text.data, strides=(1,))
    return every[places].view(np.uint8).reshape(len(places), size)


def _cut_before(text: _Array, ends: _Array, size: int) -> _Array:
    """So many bytes before each place, with zeros before the first of all."""
    places = ends - size
    outside = np.flatnonzero(places < 0)
    if not len(outside):
        return _cut(text, places, size)
    places[outside] = 0
    found = _cut(text, places, size) if size <= len(text) else np.zeros((len(ends), size), dtype=np.uint8)
    for row in outside:
        found[row] = np.frombuffer(text[: ends[row]].tobytes().rjust(size, b"\0"), np.uint8)
    return found


def _is_plain(kind: pa.DataType) -> bool:
    return pa.types.is_decimal128(kind) or kind in (pa.int64(), pa.float64(), pa.string(), pa.bool_())


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _quoted(text: _Array, start: _Array, end: _Array, kind: pa.DataType) -> pa.Array | None:
    """Values in quotes; None if they are not of the type."""
    if not pa.types.is_string(kind) or len(text) > np.iinfo(np.int32).max:
        return None
    bounds = np.empty(2 * len(start) + 1, dtype=np.int32)
    bounds[0:-1:2], bounds[1::2], bounds[-1] = start, end, end[-1]
    # Every second one is what lies between two of them.
    pieces = pa.StringArray.from_buffers(2 * len(start), pa.py_buffer(bounds), pa.py_buffer(text))
    return pieces.take(pa.array(np.arange(0, 2 * len(start), 2)))


def _bare(text: _Array, start: _Array, end: _Array, kind: pa.DataType | None) -> pa.Array | None:
    """Values without quotes: numbers, true, false and null. None if one is none of these, or not of the type."""
    if (end - start).min() < 1:
        return None
    initial = text[start]
    is_word = initial > ord("9")
    if not is_word.any():
        numbers = _Numbers.read(text, start, end)
        return None if numbers is None else numbers.column(kind, None)
    which = np.flatnonzero(is_word)
    words = _words(text, start[which], end[which])
    if words is None:
        return None
    if kind is not None and pa.types.is_boolean(kind):
        return words if len(words) == len(start) else None
    if len(words) == len(start):
        return pa.nulls(len(start), kind or pa.null()) if words.null_count == len(start) or kind is None else None
    numbers = _Numbers.read(text, start[~is_word], end[~is_word])
    if numbers is None or (kind is not None and words.null_count < len(words)):
        return None
    return numbers.column(kind, is_word)


def _words(text: _Array, start: _Array, end: _Array) -> pa.Array | None:
    """True, false and null; None if one is another word."""
    size = end - start
    # What stands before the first letter does not matter.
    found = _cut_before(text, end, 5)
    is_false = (size == 5) & (found == np.frombuffer(b"false", np.uint8)).all(axis=1)
    is_true = (size == 4) & (found[:, 1:] == np.frombuffer(b"true", np.uint8)).all(axis=1)
    is_null = (size == 4) & (found[:, 1:] == np.frombuffer(b"null", np.uint8)).all(axis=1)
    return pa.array(is_true, mask=is_null) if (is_false | is_true | is_null).all() else None


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Numbers as their digits, how many of them stand after the point, and their signs."""

    whole: _Array
    decimals: _Array
    negative: _Array
    #: The most digits that one has before the point.
    before_point: int

    @classmethod
    def read(cls, text: _Array, start: _Array, end: _Array) -> Self | None:
        """As JSON spells them, without an exponent; None if one is no number, or has more digits than fit."""
        negative = text[start] == ord("-")
        start = start + negative
        longest, shortest = int((end - start).max()), int((end - start).min())
        if shortest < 1 or longest > _DIGITS + 1:
            return None
        size = (end - start).astype(np.int8)
        columns = np.ascontiguousarray(_cut_before(text, end, longest).T)
        for place in range(longest - shortest):
            np.copyto(columns[place], ord("0"), where=size < longest - place)
        is_point = columns == ord(".")
        points = is_point.sum(axis=0, dtype=np.int8)
        decimals = np.zeros(len(start), dtype=np.int8)
        columns -= ord("0")
        if points.any():
            # What stands before a point moves to where the point is.
            moves = np.zeros(len(start), dtype=bool)
            for place in range(longest - 1, -1, -1):
                np.copyto(decimals, longest - 1 - place, where=is_point[place])
                moves |= is_point[place]
                columns[place] = np.where(moves, columns[place - 1] if place else 0, columns[place])
        if columns.max() > 9:
            return None
        whole = _added_up(columns)
        before = size - decimals - points
        if (
            points.max() > 1
            or (size - points).max() > _DIGITS
            or before.min() < 1
            or ((points == 1) & (decimals == 0)).any()
            or ((text[start] == ord("0")) & (before > 1)).any()
        ):
            return None
        return cls(whole, decimals, negative, int(before.max()))

    def column(self, kind: pa.DataType | None, absent: _Array | None) -> pa.Array | None:
        """As values of a type, with nulls where some are absent; None if they are not of it."""
        values: _Array | None
        if kind is None:
            return pa.nulls(0)  # they are numbers, and nobody wants them
        most = int(self.decimals.max())
        if pa.types.is_decimal128(kind):
            return self._as_decimals(kind, most, absent)
        if pa.types.is_int64(kind):
            values = np.where(self.negative, -self.whole, self.whole) if most == 0 else None
        elif pa.types.is_float64(kind):
            values = self._as_doubles() if self.whole.max() <= _DOUBLE else None
        else:
            values = None
        if values is None:
            return None
        values, mask = _spread(values, absent)
        return pa.array(values, mask=mask)

    def _as_doubles(self) -> _Array:
        # Both are exact, so that their quotient is the double that is nearest to what was spelled.
        values = self.whole.astype(np.float64) / _TENS[self.decimals].astype(np.float64)
        return np.where(self.negative, -values, values)

    def _as_decimals(self, kind: pa.Decimal128Type, most: int, absent: _Array | None) -> pa.Array | None:
        if most > kind.scale or self.before_point + most > _DIGITS:
            return None
        values = self.whole
        if self.decimals.min() < most:
            values = values * _TENS[most - self.decimals]
        values, mask = _spread(np.where(self.negative, -values, values), absent)
        # A decimal is a whole number of 16 bytes; the upper 8 of one that fits into the lower are its sign.
        wide = np.empty((len(values), 2), dtype="<i8")
        wide[:, 0], wide[:, 1] = values, values >> 63
        validity = None if mask is None else pa.array(~mask).buffers()[1]
        given = pa.Array.from_buffers(pa.decimal128(38, most), len(values), [validity, pa.py_buffer(wide)])
        try:
            return given.cast(kind)
        except pa.ArrowInvalid:
            return None


def _added_up(digits: _Array) -> _Array:
    """The numbers that digits make, each row one place further to the right; two by two, in integers just as large."""
    power = 1
    for width in ("u1", "u2", "u4", "i8", "i8"):
        if len(digits) == 1:
            break
        if len(digits) % 2:
            digits = np.concatenate((np.zeros_like(digits[:1]), digits))
        digits = digits[0::2].astype(width) * 10**power + digits[1::2]
        power *= 2
    whole: _Array = digits[0].astype(np.int64)
    return whole


def _spread(values: _Array, absent: _Array | None) -> tuple[_Array, None] | tuple[_Array, _Array]:
    """The values with room for those that are absent, and where these are."""
    if absent is None:
        return values, None
    spread = np.zeros(len(absent), dtype=values.dtype)
    spread[~absent] = values
    return spread, absent

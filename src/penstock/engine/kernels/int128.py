"""Sums of integers and decimals as pairs of 64-bit halves. They are exact, and fail beyond 38 digits."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.engine.kernels.arrays import BoolArray, IntArray, is_valid, one_chunk, values_of

UnsignedArray: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]
#: The high and the low half.
Int128: TypeAlias = tuple[IntArray, UnsignedArray]

_LOW_HALF = np.uint64(2**32 - 1)


class SumOverflow(ArithmeticError):
    """A sum has more digits than its type."""

    def __init__(self, digits: int) -> None:
        super().__init__(
            f"a sum has more than {digits} digits: cast its argument to DOUBLE, or to a decimal with fewer decimals"
        )
        self.digits = digits


def to_int128(column: pa.ChunkedArray | pa.Array) -> Int128:
    """The unscaled values of a column of integers, booleans or decimals. Nulls are zero."""
    array = one_chunk(column)
    if not pa.types.is_decimal(array.type):
        values = values_of(array).astype(np.int64)
        return values >> 63, values.view(np.uint64)
    if not pa.types.is_decimal128(array.type):
        array = array.cast(pa.decimal128(38, array.type.scale))
    if not len(array):
        return np.empty(0, np.int64), np.empty(0, np.uint64)
    words = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset : 2 * (array.offset + len(array))]
    high, low = words[1::2], words[0::2]
    valid = is_valid(array)
    if valid is not None:
        high, low = np.where(valid, high, 0), np.where(valid, low, 0)
    return np.ascontiguousarray(high), np.ascontiguousarray(low).view(np.uint64)


def from_int128(values: Int128, scale: int, valid: BoolArray | None = None) -> pa.Array:
    """A column of decimals with 38 digits."""
    high, low = values
    words = np.empty(2 * len(high), np.int64)
    words[1::2], words[0::2] = high, low.view(np.int64)
    validity = None if valid is None else pa.array(valid).buffers()[1]
    return pa.Array.from_buffers(pa.decimal128(38, scale), len(high), [validity, pa.py_buffer(words)])


def negate(values: Int128) -> Int128:
    high, low = values
    return ~high + (low == 0), ~low + np.uint64(1)


def sum_groups(values: Int128, starts: IntArray) -> Int128:
    """The sums of groups that begin at ``starts``."""
    high, low = values
    if not len(high):
        return high, low
    sizes = np.diff(np.append(starts, len(high)))
    small = low.view(np.int64)
    limit = (2**63 - 1) // int(sizes.max())
    if int(small.max()) < limit and int(small.min()) > -limit and bool(np.all(high == small >> 63)):
        sums = np.add.reduceat(small, starts)
        return sums >> 63, sums.view(np.uint64)
    # Sums of 32-bit quarters do not overflow. The estimate tells whether the result fits into 128 bits.
    estimate = np.add.reduceat(high.astype(np.float64) * 2.0**64 + low.astype(np.float64), starts)
    first = np.add.reduceat((low & _LOW_HALF).astype(np.int64), starts)
    second = np.add.reduceat((low >> np.uint64(32)).astype(np.int64), starts) + (first >> 32)
    sums = np.add.reduceat(high, starts) + (second >> 32)
    result = sums, ((second << 32) | (first & np.int64(2**32 - 1))).view(np.uint64)
    if bool((np.abs(estimate) > 1.6e38).any()):
        raise SumOverflow(38)
    _check_digits(result, 38)
    return result


def with_precision(column: pa.Array, digits: int) -> pa.Array:
    """A column of decimals with 38 digits as one with fewer."""
    _check_digits(to_int128(column), digits)
    kind = pa.decimal128(digits, column.type.scale)
    return pa.Array.from_buffers(kind, len(column), column.buffers(), offset=column.offset)


def _check_digits(values: Int128, digits: int) -> None:
    limit_high, limit_low = np.int64(10**digits >> 64), np.uint64(10**digits & (2**64 - 1))
    for high, low in (values, negate(values)):
        if bool(((high > limit_high) | ((high == limit_high) & (low >= limit_low))).any()):
            raise SumOverflow(digits)

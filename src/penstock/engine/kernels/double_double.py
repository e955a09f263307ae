"""Sums of doubles as pairs of doubles, the sum and its error.

A value that is added and removed later leaves nothing behind, and the sum hardly depends on the order of the values: it
has 106 bits where a double has 53.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from penstock.engine.kernels.arrays import FloatArray, IntArray

DoubleDouble: TypeAlias = tuple[FloatArray, FloatArray]

_SPLIT = 134217729.0  # 2**27 + 1


def two_sum(a: FloatArray, b: FloatArray) -> DoubleDouble:
    """The sum of two doubles, and its error."""
    total = a + b
    rest = total - a
    return total, (a - (total - rest)) + (b - rest)


def square(values: FloatArray) -> DoubleDouble:
    """The square of doubles, and its error."""
    product = values * values
    scaled = values * _SPLIT
    high = scaled - (scaled - values)
    low = values - high
    return product, ((high * high - product) + 2.0 * high * low) + low * low


def add(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble:
    high, error = two_sum(a[0], b[0])
    low, rest = two_sum(a[1], b[1])
    high, error = two_sum(high, error + low)
    return two_sum(high, error + rest)


def multiply(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble:
    product = a[0] * b[0]
    # (a + b)² = a² + 2ab + b², from which the error of the product follows without a fused multiplication.
    a_high, a_low = _split(a[0])
    b_high, b_low = _split(b[0])
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return two_sum(product, error + (a[0] * b[1] + a[1] * b[0]))


def _split(values: FloatArray) -> DoubleDouble:
    scaled = values * _SPLIT
    high = scaled - (scaled - values)
    return high, values - high


def divide(a: DoubleDouble, b: FloatArray) -> DoubleDouble:
    """The quotient of a sum and a double."""
    quotient = a[0] / b
    product = multiply((quotient, np.zeros_like(quotient)), (b, np.zeros_like(b)))
    rest = add(a, (-product[0], -product[1]))
    return two_sum(quotient, rest[0] / b)


def sum_groups(values: DoubleDouble, starts: IntArray) -> DoubleDouble:
    """The sums of groups that begin at ``starts``, added in pairs."""
    high, low = values
    count = len(starts)
    result = np.empty(count, np.float64), np.empty(count, np.float64)
    sizes = np.diff(np.append(starts, len(high)))
    groups = np.arange(count)
    while True:
        done = sizes == 1
        if done.any():
            begins = (np.cumsum(sizes) - sizes)[done]
            result[0][groups[done]], result[1][groups[done]] = high[begins], low[begins]
            kept = np.repeat(~done, sizes)
            high, low, groups, sizes = high[kept], low[kept], groups[~done], sizes[~done]
        if not len(groups):
            return result
        high, low, sizes = _add_pairs(high, low, sizes)


def _add_pairs(high: FloatArray, low: FloatArray, sizes: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Add each second value of a group to the one before."""
    begins = np.cumsum(sizes) - sizes
    number = np.arange(len(high)) - np.repeat(begins, sizes)
    first = np.flatnonzero(number % 2 == 0)
    second = first + 1
    has_second = number[np.minimum(second, len(high) - 1)] == number[first] + 1
    high_second = np.where(has_second, high[np.minimum(second, len(high) - 1)], 0.0)
    low_second = np.where(has_second, low[np.minimum(second, len(high) - 1)], 0.0)
    high, low = add((high[first], low[first]), (high_second, low_second))
    return high, low, (sizes + 1) // 2

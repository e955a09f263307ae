"""Aggregates whose state of a group is a few columns: partial states are merged by adding them up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.kernels import double_double, int128
from penstock.engine.kernels.arrays import FloatArray, IntArray, is_valid, one_chunk, values_of
from penstock.engine.kernels.double_double import DoubleDouble
from penstock.engine.kernels.order_keys import SortColumn, first_of_groups, sort_keys
from penstock.engine.kernels.row_groups import Groups


@dataclass(frozen=True)
class Accumulator(ABC):
    #: The name of the result's column. Those of the state begin with it.
    name: str

    @property
    @abstractmethod
    def state_fields(self) -> list[pa.Field]: ...

    @property
    @abstractmethod
    def output_type(self) -> pa.DataType: ...

    @abstractmethod
    def from_rows(self, rows: pa.Table, weights: IntArray, groups: Groups) -> list[pa.Array]:
        """The columns of the state for the rows of each group."""

    @abstractmethod
    def merge(self, states: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        """The columns of the state for the states of each group, of which older ones come first."""

    @abstractmethod
    def output(self, state: Sequence[pa.Array]) -> pa.Array: ...


@dataclass(frozen=True)
class Count(Accumulator):
    """The number of rows, or of those in which the argument is not null."""

    argument: str | None = None

    @property
    def state_fields(self) -> list[pa.Field]:
        return [pa.field(self.name, pa.int64())]

    @property
    def output_type(self) -> pa.DataType:
        return pa.int64()

    def from_rows(self, rows: pa.Table, weights: IntArray, groups: Groups) -> list[pa.Array]:
        valid = None if self.argument is None else is_valid(rows.column(self.argument))
        counted = weights if valid is None else weights * valid
        return [pa.array(_sum(counted, groups))]

    def merge(self, states: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        return [pa.array(_sum(values_of(states[0]), groups))]

    def output(self, state: Sequence[pa.Array]) -> pa.Array:
        return state[0]


@dataclass(frozen=True)
class ExactSum(Accumulator):
    """The sum of integers or decimals. It is zero if there are none."""

    argument: str
    scale: int
    #: The digits of the result. The state has 38.
    precision: int = 38

    @property
    def state_fields(self) -> list[pa.Field]:
        return [pa.field(self.name, pa.decimal128(38, self.scale))]

    @property
    def output_type(self) -> pa.DataType:
        return pa.decimal128(self.precision, self.scale)

    def from_rows(self, rows: pa.Table, weights: IntArray, groups: Groups) -> list[pa.Array]:
        high, low = int128.to_int128(rows.column(self.argument))
        is_negative = weights < 0
        if is_negative.any():
            negated = int128.negate((high, low))
            high, low = np.where(is_negative, negated[0], high), np.where(is_negative, negated[1], low)
        return self._sum((high, low), groups)

    def merge(self, states: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        return self._sum(int128.to_int128(states[0]), groups)

    def _sum(self, values: int128.Int128, groups: Groups) -> list[pa.Array]:
        ordered = values[0][groups.order], values[1][groups.order]
        return [int128.from_int128(int128.sum_groups(ordered, groups.starts), self.scale)]

    def output(self, state: Sequence[pa.Array]) -> pa.Array:
        return state[0] if self.precision == 38 else int128.with_precision(state[0], self.precision)


#: The columns of a sum of doubles: numbers of values by kind, and the sum of the finite ones with its error.
_FLOAT_COUNTS = ("n", "nan", "inf", "neginf")


def _float_parts(values: FloatArray, weights: IntArray) -> tuple[list[IntArray], FloatArray]:
    """The numbers of values, NaNs, infinities and negative infinities, and the finite values with their signs."""
    is_finite = np.isfinite(values)
    if is_finite.all():
        zeros = np.zeros(len(values), np.int64)
        return [weights, zeros, zeros, zeros], values * weights
    counts = [weights, *(weights * kind for kind in (np.isnan(values), np.isposinf(values), np.isneginf(values)))]
    return counts, np.where(is_finite, values, 0.0) * weights


def _special_sum(counts: Sequence[IntArray], finite: FloatArray) -> FloatArray:
    """The sum of all values from the sum of the finite ones."""
    _, nans, infinities, negative = counts
    if not (nans.any() or infinities.any() or negative.any()):
        return finite
    result = np.where(infinities > 0, np.inf, np.where(negative > 0, -np.inf, finite))
    return np.where((nans > 0) | ((infinities > 0) & (negative > 0)), np.nan, result)


@dataclass(frozen=True)
class DoubleSum(Accumulator):
    """The sum of doubles; null if there are none.

    NaN and infinities are counted, since they could not be subtracted again.
    """

    argument: str
    #: True for the sums that a variance needs: of the values and of their squares.
    has_squares: bool = False

    @property
    def state_fields(self) -> list[pa.Field]:
        sums = ("sum", "error", *(("squares", "squares_error") if self.has_squares else ()))
        return [
            *(pa.field(f"{self.name}.{name}", pa.int64()) for name in _FLOAT_COUNTS),
            *(pa.field(f"{self.name}.{name}", pa.float64()) for name in sums),
        ]

    @property
    def output_type(self) -> pa.DataType:
        return pa.float64()

    def from_rows(self, rows: pa.Table, weights: IntArray, groups: Groups) -> list[pa.Array]:
        column = rows.column(self.argument)
        valid = is_valid(column)
        weights = weights if valid is None else weights * valid
        values = values_of(column, 0.0).astype(np.float64)
        counts, finite = _float_parts(values, weights)
        sums = [(finite, np.zeros(len(finite)))]
        if self.has_squares:
            with np.errstate(all="ignore"):
                squares = double_double.square(finite)
            sums.append((squares[0] * weights, squares[1] * weights))
        return self._merge(counts, sums, groups)

    def merge(self, states: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        values = [values_of(state) for state in states]
        sums = [(values[i], values[i + 1]) for i in range(4, len(values), 2)]
        return self._merge(values[:4], sums, groups)

    def _merge(self, counts: Sequence[IntArray], sums: Sequence[DoubleDouble], groups: Groups) -> list[pa.Array]:
        merged = [_sum(count, groups) if count.any() else np.zeros(groups.count, np.int64) for count in counts]
        arrays = [pa.array(count) for count in merged]
        for high, low in sums:
            with np.errstate(all="ignore"):
                total = double_double.sum_groups((high[groups.order], low[groups.order]), groups.starts)
            # A sum that overflows stays infinite until its group is empty.
            arrays += [pa.array(total[0]), pa.array(np.where(np.isfinite(total[0]), total[1], 0.0))]
        return arrays

    def output(self, state: Sequence[pa.Array]) -> pa.Array:
        counts, (high, *_) = [values_of(each) for each in state[:4]], [values_of(each) for each in state[4:]]
        return pa.array(_special_sum(counts, high), mask=counts[0] == 0)


@dataclass(frozen=True)
class Variance(DoubleSum):
    """The sample variance; null for less than two values."""

    has_squares: bool = True

    def output(self, state: Sequence[pa.Array]) -> pa.Array:
        counts = [values_of(each) for each in state[:4]]
        total, error, squares, squares_error = (values_of(each) for each in state[4:])
        count = counts[0].astype(np.float64)
        with np.errstate(all="ignore"):
            mean_square = double_double.divide(double_double.multiply((total, error), (total, error)), count)
            deviations = double_double.add((squares, squares_error), (-mean_square[0], -mean_square[1]))
            variance = np.maximum(deviations[0], 0.0) / (count - 1)
        is_special = (counts[1] > 0) | (counts[2] > 0) | (counts[3] > 0)
        return pa.array(np.where(is_special, np.nan, variance), mask=counts[0] < 2)


@dataclass(frozen=True)
class Extreme(Accumulator):
    """The value of the row that is the first in an order, for rows that only appear.

    Rows in which the first column of the order is null do not count.
    """

    value: str
    order: tuple[SortColumn, ...]
    #: The types of the value and of the columns of the order.
    types: tuple[pa.DataType, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.value, *(each.name for each in self.order))))

    @property
    def state_fields(self) -> list[pa.Field]:
        return [pa.field(f"{self.name}.{name}", kind) for name, kind in zip(self.columns, self.types, strict=True)]

    @property
    def output_type(self) -> pa.DataType:
        return self.types[0]

    def from_rows(self, rows: pa.Table, weights: IntArray, groups: Groups) -> list[pa.Array]:
        return self._first(rows.select(list(self.columns)), groups)

    def merge(self, states: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        return self._first(pa.table(list(states), names=list(self.columns)), groups)

    def _first(self, rows: pa.Table, groups: Groups) -> list[pa.Array]:
        if not groups.count:
            return [one_chunk(column) for column in rows.columns]
        keys = [key[groups.order] for key in sort_keys(rows, self.order)]
        positions = groups.order[first_of_groups(keys, groups.starts, len(groups.order))]
        taken = [one_chunk(column).take(pa.array(positions)) for column in rows.columns]
        counts = pc.is_valid(taken[self.columns.index(self.order[0].name)])
        return [taken[0] if not counts.false_count else pc.if_else(counts, taken[0], None), *taken[1:]]

    def output(self, state: Sequence[pa.Array]) -> pa.Array:
        return state[0]


def _sum(values: IntArray, groups: Groups) -> IntArray:
    if not groups.count:
        return np.empty(0, np.int64)
    sums: IntArray = np.add.reduceat(values[groups.order], groups.starts, dtype=np.int64)
    return sums

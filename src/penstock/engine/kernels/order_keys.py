"""Columns as integers that have the same order, so that numpy sorts any type. NaN is the greatest number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.kernels.arrays import IntArray, is_valid, one_chunk, values_of
from penstock.engine.kernels.int128 import to_int128
from penstock.engine.kernels.row_groups import stable_argsort

_SIGN = np.int64(-(2**63))


@dataclass(frozen=True)
class SortColumn:
    name: str
    is_descending: bool = False
    nulls_first: bool = False


def sort_keys(rows: pa.Table, columns: Sequence[SortColumn]) -> list[IntArray]:
    """Integers in the order of the columns, the most significant first."""
    return [key for each in columns for key in order_keys(rows.column(each.name), each.is_descending, each.nulls_first)]


def order_keys(
    column: pa.ChunkedArray | pa.Array, is_descending: bool = False, nulls_first: bool = False
) -> list[IntArray]:
    """Integers in the order of a column's values, the most significant first."""
    array = one_chunk(column)
    keys = _ascending_keys(array)
    if is_descending:
        keys = [~key for key in keys]
    valid = is_valid(array)
    if valid is None:
        return keys
    flags = valid if nulls_first else ~valid
    return [flags.astype(np.int64), *(np.where(valid, key, 0) for key in keys)]


def _ascending_keys(array: pa.Array) -> list[IntArray]:
    kind = array.type
    if pa.types.is_floating(kind):
        return [_float_keys(array)]
    if pa.types.is_decimal(kind):
        high, low = to_int128(array)
        return [high, low.view(np.int64) ^ _SIGN]
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_boolean(kind):
        return [values_of(array).astype(np.int64)]
    if pa.types.is_null(kind):
        return [np.zeros(len(array), np.int64)]
    encoded = array.dictionary_encode()
    # Only distinct values are compared as text.
    ranks = pc.rank(encoded.dictionary, "ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    return [ranks[values_of(encoded.indices)] if len(ranks) else np.zeros(len(array), np.int64)]


def _float_keys(array: pa.Array) -> IntArray:
    values = values_of(array).astype(np.float64)
    values = np.where(np.isnan(values), np.nan, values + 0.0)
    bits = values.view(np.int64)
    return bits ^ ((bits >> 63) & np.int64(2**63 - 1))


def first_of_groups(keys: Sequence[IntArray], starts: IntArray, count: int) -> IntArray:
    """The position of the first row of each group in the order of the keys.

    The ``count`` rows are in the order of their groups, which begin at ``starts``. Of equal rows, it is the first one.
    """
    positions = np.arange(count)
    for key in keys:
        if len(positions) == len(starts):
            break
        values = key[positions]
        sizes = np.diff(np.append(starts, len(positions)))
        keep = values == np.repeat(np.minimum.reduceat(values, starts), sizes)
        kept_sizes = np.add.reduceat(keep, starts, dtype=np.int64)
        positions, starts = positions[keep], np.cumsum(kept_sizes) - kept_sizes
    return positions[starts]


def order_in_groups(ids: IntArray, keys: Sequence[IntArray]) -> IntArray:
    """The order of rows by the number of their group, which is below 2**31, and in each group by the keys.

    It sorts by group and first key at once, and then only rows that are equal in both by the next key. numpy's lexsort
    takes five times as long.
    """
    if not keys:
        return stable_argsort(ids)
    combined = (ids << 32) | _small_ranks(keys[0])
    if len(keys) == 1:
        return stable_argsort(combined)
    order = np.argsort(combined)
    ordered = combined[order]
    same = ordered[1:] == ordered[:-1]
    if not same.any():
        return order
    tied = np.zeros(len(ids), np.bool_)
    tied[1:] = same
    tied[:-1] |= same
    begins = np.ones(len(ids), np.bool_)
    begins[1:] = ~same
    positions = np.flatnonzero(tied)
    rows = order[positions]
    numbers = np.cumsum(begins[positions]) - 1
    order[positions] = rows[order_in_groups(numbers, [key[rows] for key in keys[1:]])]
    return order


def _small_ranks(values: IntArray) -> IntArray:
    """Integers below 2**32 in the order of the values."""
    if not len(values):
        return values
    low, high = int(values.min()), int(values.max())
    if high - low < 2**32:
        return values - low
    order = np.argsort(values)
    ordered = values[order]
    ranks = np.zeros(len(values), np.int64)
    ranks[order[1:]] = np.cumsum(ordered[1:] != ordered[:-1])
    return ranks


def compare_rows(left: Sequence[IntArray], right: Sequence[IntArray]) -> IntArray:
    """-1, 0 or 1 for each pair of rows: whether the left one comes first, both are equal, or the right one does."""
    result = np.zeros(len(left[0]), np.int64)
    for ours, theirs in zip(left, right, strict=True):
        result = np.where(result == 0, np.sign((ours > theirs).astype(np.int64) - (ours < theirs)), result)
    return result

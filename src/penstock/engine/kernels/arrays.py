"""Conversions between Arrow columns and numpy arrays."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

IntArray: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
FloatArray: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
BoolArray: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


def one_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column as one array. Callers bound the rows, so that the offsets of strings do not overflow."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def values_of(column: pa.ChunkedArray | pa.Array, null_value: Any = 0) -> np.ndarray[Any, Any]:
    """The values of a column of numbers, booleans or times; times are integers. Nulls become ``null_value``."""
    array = one_chunk(column)
    kind = array.type
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        array = array.view(pa.int32())
    elif pa.types.is_temporal(kind):
        array = array.view(pa.int64())
    if array.null_count:
        array = pc.fill_null(array, bool(null_value) if pa.types.is_boolean(kind) else null_value)
    return np.asarray(array.to_numpy(zero_copy_only=False))


def is_valid(column: pa.ChunkedArray | pa.Array) -> BoolArray | None:
    """Which values are not null; None if all are."""
    if not column.null_count:
        return None
    return np.asarray(one_chunk(pc.is_valid(column)).to_numpy(zero_copy_only=False))


def sorted_unique(values: IntArray) -> IntArray:
    """The distinct values in order. numpy's ``unique`` takes seven times as long, since it builds a hash table."""
    ordered = np.sort(values)
    keep = np.ones(len(ordered), np.bool_)
    keep[1:] = ordered[1:] != ordered[:-1]
    return ordered[keep]


def take(rows: pa.Table, positions: IntArray) -> pa.Table:
    """The rows at some positions."""
    return rows.take(pa.array(positions))


def mask(rows: pa.Table, keep: BoolArray) -> pa.Table:
    """The rows for which ``keep`` is true."""
    return rows if keep.all() else rows.filter(pa.array(keep))


def combine(rows: pa.Table) -> pa.Table:
    """The table with one chunk per column."""
    return rows if all(column.num_chunks == 1 for column in rows.columns) else rows.combine_chunks()

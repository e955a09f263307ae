"""Equality of values at the same position. Nulls are equal, NaNs are equal, and 0.0 equals -0.0."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.kernels.arrays import BoolArray, is_valid, one_chunk, values_of


def equal_rows(left: pa.Table, right: pa.Table, names: Iterable[str]) -> BoolArray:
    """Whether rows at the same position are equal in some columns."""
    equal = np.ones(left.num_rows, np.bool_)
    for name in names:
        equal &= equal_values(left.column(name), right.column(name))
    return equal


def equal_values(left: pa.ChunkedArray | pa.Array, right: pa.ChunkedArray | pa.Array) -> BoolArray:
    left, right = one_chunk(left), one_chunk(right)
    kind = left.type
    if pa.types.is_struct(kind):
        return _equal_structs(left, right)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return _equal_lists(left, right)
    if pa.types.is_floating(kind):
        ours, theirs = values_of(left), values_of(right)
        return _with_nulls((ours == theirs) | (np.isnan(ours) & np.isnan(theirs)), left, right)
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_boolean(kind):
        return _with_nulls(values_of(left) == values_of(right), left, right)
    if pa.types.is_null(kind):
        return np.ones(len(left), np.bool_)
    equal = pc.equal(left, right)
    if equal.null_count:
        equal = pc.fill_null(equal, False)
    return _with_nulls(np.asarray(equal.to_numpy(zero_copy_only=False)), left, right)


def _with_nulls(equal: BoolArray, left: pa.Array, right: pa.Array) -> BoolArray:
    ours, theirs = is_valid(left), is_valid(right)
    if ours is None and theirs is None:
        return equal
    ours = np.ones(len(left), np.bool_) if ours is None else ours
    theirs = np.ones(len(right), np.bool_) if theirs is None else theirs
    return np.where(ours & theirs, equal, ours == theirs)


def _equal_structs(left: pa.Array, right: pa.Array) -> BoolArray:
    equal = np.ones(len(left), np.bool_)
    # flatten() makes the fields of a null struct null.
    for ours, theirs in zip(left.flatten(), right.flatten(), strict=True):
        equal &= equal_values(ours, theirs)
    return _with_nulls(equal, left, right)


def _equal_lists(left: pa.Array, right: pa.Array) -> BoolArray:
    if pa.types.is_map(left.type):
        left, right = _map_to_list(left), _map_to_list(right)
    lengths = values_of(pc.list_value_length(left), -1)
    equal: BoolArray = lengths == values_of(pc.list_value_length(right), -1)
    compared = np.flatnonzero(equal & (lengths > 0))
    if len(compared):
        positions = pa.array(compared)
        elements = equal_values(left.take(positions).flatten(), right.take(positions).flatten())
        sizes = lengths[compared]
        equal[compared] = np.logical_and.reduceat(elements, np.cumsum(sizes) - sizes)
    return equal


def _map_to_list(maps: pa.Array) -> pa.Array:
    entries = pa.struct([maps.type.key_field, maps.type.item_field])
    return maps.cast(pa.list_(pa.field("entries", entries, nullable=False)))

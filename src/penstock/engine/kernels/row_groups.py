"""Groups of rows with equal keys, found by sorting their hashes. Keys are compared too, since hashes may collide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.kernels.arrays import BoolArray, IntArray, one_chunk, take
from penstock.engine.kernels.equality import equal_values

#: Timsort is faster than a quicksort of values that consist of at most so many sorted sequences.
_MAX_SORTED_SEQUENCES = 64


@dataclass(frozen=True)
class Groups:
    """The order in which the rows of a group follow one another, and where each group begins in it."""

    order: IntArray
    starts: IntArray

    @property
    def count(self) -> int:
        return len(self.starts)

    @property
    def sizes(self) -> IntArray:
        return np.diff(np.append(self.starts, len(self.order)))

    @property
    def first(self) -> IntArray:
        """The position of the first row of each group."""
        return self.order[self.starts]

    @property
    def last(self) -> IntArray:
        """The position of the last row of each group."""
        ends: IntArray = np.append(self.starts[1:], len(self.order)) - 1
        return self.order[ends]

    def ids(self) -> IntArray:
        """The number of the group of each row."""
        ids = np.empty(len(self.order), np.int64)
        ids[self.order] = np.repeat(np.arange(self.count), self.sizes)
        return ids


def group_rows(hashes: IntArray, keys: Sequence[pa.ChunkedArray | pa.Array], *, is_stable: bool = False) -> Groups:
    """Group rows by hash and keys, in the order of the hashes. If it is stable, rows of a group keep their order."""
    order = stable_argsort(hashes) if is_stable else np.argsort(hashes)
    ordered = hashes[order]
    same = ordered[1:] == ordered[:-1]
    begins = np.ones(len(hashes), np.bool_)
    begins[1:] = ~same
    if same.any():
        differs = _differs_from_previous(keys, order, np.flatnonzero(same) + 1)
        if differs.any():
            order, begins = _separate_collisions(keys, order, begins, differs)
    return Groups(order, np.flatnonzero(begins))


def stable_argsort(values: IntArray) -> IntArray:
    descents = np.count_nonzero(values[1:] < values[:-1]) if len(values) else 0
    if not descents:
        return np.arange(len(values))
    if descents < _MAX_SORTED_SEQUENCES or len(values) < 1000:
        return np.argsort(values, kind="stable")
    # The quicksort is vectorized: it and a second sort, of positions in groups, take a third of the stable sort's time.
    order = np.argsort(values)
    ordered = values[order]
    ids = np.zeros(len(values), np.int64)
    np.cumsum(ordered[1:] != ordered[:-1], out=ids[1:])
    combined: IntArray = np.sort(ids * len(values) + order) - ids * len(values)
    return combined


def _differs_from_previous(
    keys: Sequence[pa.ChunkedArray | pa.Array], order: IntArray, positions: IntArray
) -> IntArray:
    """The positions in the order, of those given, at which a key differs from the one before."""
    is_equal = np.ones(len(positions), np.bool_)
    after, before = pa.array(order[positions]), pa.array(order[positions - 1])
    takes_all = len(positions) > len(order) // 2
    for key in keys:
        column = one_chunk(key)
        if takes_all:
            ordered = column.take(pa.array(order))
            is_equal &= equal_values(ordered.slice(0, len(order) - 1), ordered.slice(1))[positions - 1]
        else:
            is_equal &= equal_values(column.take(before), column.take(after))
    return positions[~is_equal]


def _separate_collisions(
    keys: Sequence[pa.ChunkedArray | pa.Array], order: IntArray, begins: BoolArray, differs: IntArray
) -> tuple[IntArray, BoolArray]:
    """Separate the keys that have the same hash. This is slow, and rare."""
    groups = np.cumsum(begins) - 1
    collided = np.flatnonzero(np.isin(groups, groups[differs]))
    rows = order[collided]
    ids = exact_ids([one_chunk(key).take(pa.array(rows)) for key in keys])
    resorted = np.lexsort((ids, groups[collided]))
    order, begins = order.copy(), begins.copy()
    order[collided] = rows[resorted]
    hashes, ids = groups[collided], ids[resorted]
    begins[collided[1:]] = (hashes[1:] != hashes[:-1]) | (ids[1:] != ids[:-1])
    return order, begins


def exact_ids(keys: Sequence[pa.Array]) -> IntArray:
    """A number for each row, which is the same for rows with equal keys."""
    ids = np.zeros(len(keys[0]), np.int64)
    for key in keys:
        codes = key.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
        _, ids = np.unique(ids * (codes.max(initial=0) + 1) + codes, return_inverse=True)
    return ids


def match_ranges(ordered: IntArray, low: IntArray, high: IntArray | None = None) -> tuple[IntArray, IntArray]:
    """Where the values from ``low`` to ``high`` begin in a sorted array, and their number, for each pair of both."""
    starts = np.searchsorted(ordered, low, "left")
    if high is None and len(ordered):
        # Values are mostly unique: a second search is needed only where the next value is the same.
        found = ordered[np.minimum(starts, len(ordered) - 1)] == low
        counts = (found & (starts < len(ordered))).astype(np.int64)
        after = np.minimum(starts + 1, len(ordered) - 1)
        several = np.flatnonzero((counts > 0) & (starts + 1 < len(ordered)) & (ordered[after] == low))
        counts[several] = np.searchsorted(ordered, low[several], "right") - starts[several]
        return starts, counts
    return starts, np.searchsorted(ordered, low if high is None else high, "right") - starts


def expand_ranges(starts: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """The positions of all ranges, one after the other, and the number of the range of each."""
    total = int(counts.sum())
    if not total:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    found = np.flatnonzero(counts)
    starts, counts = starts[found], counts[found]
    if total == len(found):
        return starts, found
    offsets = np.cumsum(counts) - counts
    return np.repeat(starts - offsets, counts) + np.arange(total), np.repeat(found, counts)


def match_rows(
    left: pa.Table, right: pa.Table, left_hashes: IntArray, right_hashes: IntArray, keys: Sequence[str]
) -> tuple[IntArray, IntArray]:
    """The positions of all pairs of rows with equal hashes and keys."""
    if not left.num_rows or not right.num_rows:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    order = stable_argsort(right_hashes)
    starts, counts = match_ranges(right_hashes[order], left_hashes)
    others, positions = expand_ranges(starts, counts)
    others = order[others]
    return keep_equal(left, right, positions, others, keys)


def keep_equal(
    left: pa.Table, right: pa.Table, positions: IntArray, others: IntArray, keys: Sequence[str]
) -> tuple[IntArray, IntArray]:
    """Keep the pairs of positions whose rows have equal keys."""
    if not len(positions) or not keys:
        return positions, others
    ours, theirs = take(left.select(list(keys)), positions), take(right.select(list(keys)), others)
    is_equal = np.ones(len(positions), np.bool_)
    for key in keys:
        is_equal &= equal_values(ours.column(key), theirs.column(key))
    return (positions, others) if is_equal.all() else (positions[is_equal], others[is_equal])

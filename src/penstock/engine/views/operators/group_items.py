"""The values or rows of each group, for aggregates that cannot be computed from a sum.

Values are counted, rows are identified by their key. A group's items are read only when an aggregate needs all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.kernels.arrays import IntArray, is_valid, mask, take, values_of
from penstock.engine.kernels.row_groups import Groups, match_rows, stable_argsort
from penstock.engine.state.compaction import Merge
from penstock.engine.state.operator_state import WEIGHT, OperatorState, row_hashes
from penstock.engine.state.runs import HASH
from penstock.engine.views.operators.base import cancel_equal_rows, disappearing_first

#: The number of rows with a value.
COUNT = "__count"
#: The number of an item's group among the groups that a cycle changes.
GROUP = "__group"

_GROUP_BITS = np.int64(-(2**32))


@dataclass(frozen=True)
class GroupItems:
    part: int
    groups: tuple[str, ...]
    #: The columns of an item. Items in which the first one is null do not count.
    columns: tuple[str, ...]
    #: The column of the item's own hash in the operator's input.
    hash: str
    #: The columns that identify an item; None if equal items are counted.
    key: tuple[str, ...] | None

    @property
    def _merge(self) -> Merge:
        if self.key is None:
            return Merge((*self.groups, *self.columns), count=COUNT)
        return Merge((*self.groups, *self.key), alive=COUNT)

    @property
    def _names(self) -> list[str]:
        """The columns of the state."""
        return [HASH, *self.groups, *dict.fromkeys((*self.columns, *(self.key or ()))), COUNT]

    def changes(self, rows: pa.Table, group_ids: IntArray) -> pa.Table:
        """The changes of items with a count: positive for those that appear, negative for those that disappear."""
        names = [name for name in self._names if name not in (HASH, COUNT)]
        hashes = row_hashes(values_of(rows.column(HASH)), values_of(rows.column(self.hash)))
        items = rows.select(names).append_column(HASH, pa.array(hashes))
        items = items.append_column(WEIGHT, rows.column(WEIGHT)).append_column(GROUP, pa.array(group_ids))
        valid = is_valid(rows.column(self.columns[0]))
        items = items if valid is None else mask(items, valid)
        if self.key is not None:
            key = (*self.groups, *self.key)
            items = cancel_equal_rows(disappearing_first(items), key, names)
        items = items.append_column(COUNT, pa.array(values_of(items.column(WEIGHT)).astype(np.int64)))
        items = items.drop_columns([WEIGHT])
        return self._merge.apply(items, is_oldest=False) if self.key is None and items.num_rows else items

    def store(self, changes: pa.Table, state: OperatorState) -> None:
        state.add(self.part, changes.select(self._names), self._merge)

    def load(self, groups: pa.Table, changes: pa.Table, state: OperatorState) -> tuple[pa.Table, IntArray]:
        """All items of some groups after the changes, and the number of each item's group.

        ``groups`` has the columns HASH and those of the group.
        """
        stored = state.find_groups(self.part, values_of(groups.column(HASH)))
        items = changes.select(self._names)
        if stored is not None:
            items = pa.concat_tables([stored.select(self._names), items]).combine_chunks()
        return self._items_of(groups, items, self._merge)

    def stored(self, groups: pa.Table, state: OperatorState, merge: Merge) -> tuple[pa.Table, IntArray]:
        """All items of some groups before the changes, and the number of each item's group."""
        items = state.find_groups(self.part, values_of(groups.column(HASH)))
        if items is None:
            return pa.table({HASH: pa.array([], pa.int64())}), np.empty(0, np.int64)
        return self._items_of(groups, items.select(self._names), merge)

    def delete(self, groups: pa.Table, state: OperatorState) -> None:
        """Delete the counted items of some groups."""
        items, _ = self.stored(groups, state, self._merge)
        if items.num_rows:
            counts = pa.array(-values_of(items.column(COUNT)))
            self.store(items.set_column(items.column_names.index(COUNT), COUNT, counts), state)

    def _items_of(self, groups: pa.Table, items: pa.Table, merge: Merge) -> tuple[pa.Table, IntArray]:
        if items.num_rows:
            items = merge.apply(items, is_oldest=True)
        prefixes = values_of(items.column(HASH)) & _GROUP_BITS
        others = values_of(groups.column(HASH)) & _GROUP_BITS
        positions, ids = match_rows(items, groups, prefixes, others, self.groups)
        items = take(items, positions)
        # A count below zero would be a row that disappears without having appeared.
        is_present = values_of(items.column(COUNT)) > 0
        return mask(items, is_present), ids[is_present]


def groups_of_ids(ids: IntArray) -> tuple[Groups, IntArray]:
    """Groups of rows by the numbers of their groups, and those numbers."""
    order = stable_argsort(ids)
    ordered = ids[order]
    begins = np.ones(len(ids), np.bool_)
    begins[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(begins)
    return Groups(order, starts), ordered[starts]


def spread(columns: Sequence[pa.Array], ids: IntArray, count: int) -> list[pa.Array]:
    """Columns with one row for each of ``count`` groups: null for groups that are not among the ids."""
    index = np.full(count, -1, np.int64)
    index[ids] = np.arange(len(ids))
    positions = pa.array(index, mask=index < 0)
    return [column.take(positions) for column in columns]

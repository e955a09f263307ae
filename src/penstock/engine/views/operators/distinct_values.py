"""The number and the sum of the distinct values of each group. Only values that a cycle changes are looked up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.kernels.arrays import IntArray, mask, values_of
from penstock.engine.state.compaction import Merge
from penstock.engine.state.operator_state import OperatorState
from penstock.engine.state.runs import HASH
from penstock.engine.views.operators.accumulators import Accumulator
from penstock.engine.views.operators.group_items import COUNT, GROUP, GroupItems, groups_of_ids


@dataclass(frozen=True)
class DistinctValues:
    items: GroupItems
    #: The aggregate of the distinct values. Its argument is the value's column.
    accumulators: tuple[Accumulator, ...]
    #: True if rows only appear: a value that is there stays.
    is_append_only: bool

    @property
    def _merge(self) -> Merge:
        return Merge((*self.items.groups, *self.items.columns), alive=COUNT)

    def delete(self, groups: pa.Table, state: OperatorState) -> None:
        """Delete the values of some groups."""
        values, _ = self.items.stored(groups, state, self._merge)
        if not values.num_rows:
            return
        counts = pa.array(np.zeros(values.num_rows, np.int64))
        state.add(self.items.part, values.set_column(values.column_names.index(COUNT), COUNT, counts), self._merge)

    def deltas(self, rows: pa.Table, group_ids: IntArray, count: int, state: OperatorState) -> list[list[pa.Array]]:
        """The partial states of the accumulators for each group: the difference that the changes make."""
        items, keys = self.items, (*self.items.groups, *self.items.columns)
        changes = items.changes(rows, group_ids)
        stored, index = state.find_latest(items.part, changes.select([HASH, *keys]), keys)
        before = np.zeros(changes.num_rows, np.int64)
        if stored is not None:
            before = np.where(index >= 0, values_of(stored.column(COUNT))[index], 0)
        after = before + values_of(changes.column(COUNT))
        if self.is_append_only:
            after = np.ones_like(after)
        position = changes.column_names.index(COUNT)
        changed = mask(changes.set_column(position, COUNT, pa.array(after)), after != before)
        state.add(items.part, changed.select([HASH, *keys, COUNT]), self._merge)
        step = (after > 0).astype(np.int64) - (before > 0)
        return self._partial_states(mask(changes, step != 0), step[step != 0], count)

    def _partial_states(self, values: pa.Table, step: IntArray, count: int) -> list[list[pa.Array]]:
        # Each group gets a row without a value, so that it has a partial state.
        padding = np.arange(count)
        nulls = pa.table([pa.nulls(count, field.type) for field in values.schema], schema=values.schema)
        rows = pa.concat_tables([values, nulls]).combine_chunks()
        groups, _ = groups_of_ids(np.concatenate([values_of(values.column(GROUP)), padding]))
        weights = np.concatenate([step, np.ones(count, np.int64)])
        return [each.from_rows(rows, weights, groups) for each in self.accumulators]

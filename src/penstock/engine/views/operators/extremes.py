"""Minima, maxima and the like over rows that may disappear.

The current extreme of a group is part of the group's state. The rows of the group are stored too, but they are read
only if the extreme disappears and no row that appears is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.kernels.arrays import BoolArray, IntArray, mask, take, values_of
from penstock.engine.kernels.equality import equal_rows
from penstock.engine.kernels.order_keys import compare_rows, sort_keys
from penstock.engine.state.operator_state import OperatorState
from penstock.engine.views.operators.accumulators import Extreme
from penstock.engine.views.operators.group_items import COUNT, GROUP, GroupItems, groups_of_ids, spread


@dataclass(frozen=True)
class RetractableExtreme:
    extreme: Extreme
    items: GroupItems

    def update(
        self, rows: pa.Table, group_ids: IntArray, groups: pa.Table, current: Sequence[pa.Array], state: OperatorState
    ) -> list[pa.Array]:
        """The columns of the extreme's state after the changes, for each group; ``current`` has those before."""
        names, count = list(self.extreme.columns), groups.num_rows
        changes = self.items.changes(rows, group_ids)
        self.items.store(changes, state)
        before = pa.table(list(current), names=names)
        counts = values_of(changes.column(COUNT))
        added = self._best(mask(changes, counts > 0), count)
        removed = mask(changes, counts < 0)
        lost = np.zeros(count, np.bool_)
        ids = values_of(removed.column(GROUP))
        lost[ids[equal_rows(take(before, ids), removed, names)]] = True
        comparison = self._compare(added, before)
        # Without a row that is at least as good as the lost one, any row of the group may be the next.
        is_open = lost & (comparison > 0)
        result = _choose(comparison <= 0, added, before)
        if is_open.any():
            opened = np.flatnonzero(is_open)
            items, numbers = self.items.load(take(groups, opened), changes, state)
            result = _choose(is_open, self._best_of(items, opened[numbers], count), result)
        return [column.combine_chunks() for column in result.columns]

    def _best(self, items: pa.Table, count: int) -> pa.Table:
        return self._best_of(items, values_of(items.column(GROUP)), count)

    def _best_of(self, items: pa.Table, ids: IntArray, count: int) -> pa.Table:
        groups, found = groups_of_ids(ids)
        best = self.extreme.merge([items.column(name) for name in self.extreme.columns], groups)
        return pa.table(spread(best, found, count), names=list(self.extreme.columns))

    def _compare(self, left: pa.Table, right: pa.Table) -> IntArray:
        """Whether the left row comes first (-1) or the right one does (1). A missing row comes last."""
        both = pa.concat_tables([left, right]).combine_chunks()
        keys = sort_keys(both, self.extreme.order)
        count = left.num_rows
        result = compare_rows([key[:count] for key in keys], [key[count:] for key in keys])
        # Two missing rows: nothing was added.
        is_missing = np.asarray(
            pc.is_null(left.column(self.extreme.order[0].name)).combine_chunks().to_numpy(zero_copy_only=False)
        )
        return np.where(is_missing, 1, result)


def _choose(condition: BoolArray, left: pa.Table, right: pa.Table) -> pa.Table:
    """Rows of the left table where the condition is true, and of the right table elsewhere."""
    if not condition.any():
        return right
    count = len(condition)
    return take(
        pa.concat_tables([left, right]).combine_chunks(),
        np.where(condition, np.arange(count), np.arange(count) + count),
    )

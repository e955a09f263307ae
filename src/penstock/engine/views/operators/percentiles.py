"""Discrete percentiles: the first value of a group with at least a share of the rows at or before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.kernels.arrays import IntArray, one_chunk, values_of
from penstock.engine.kernels.order_keys import order_in_groups, order_keys
from penstock.engine.state.operator_state import OperatorState
from penstock.engine.views.operators.group_items import COUNT, GroupItems, groups_of_ids, spread


@dataclass(frozen=True)
class Percentiles:
    """Percentiles of the same values. All values of a changed group are read."""

    items: GroupItems
    #: Names of results and their fractions.
    fractions: tuple[tuple[str, float], ...]
    type: pa.DataType

    def update(self, rows: pa.Table, group_ids: IntArray, groups: pa.Table, state: OperatorState) -> list[pa.Array]:
        """The percentiles of each group after the changes."""
        changes = self.items.changes(rows, group_ids)
        self.items.store(changes, state)
        items, ids = self.items.load(groups, changes, state)
        value = one_chunk(items.column(self.items.columns[0]))
        order = order_in_groups(ids, order_keys(value))
        counts = values_of(items.column(COUNT))[order]
        by_id, found = groups_of_ids(ids[order])
        cumulative = np.cumsum(counts)
        base = cumulative[by_id.starts] - counts[by_id.starts]
        totals = np.append(base[1:], cumulative[-1:]) - base
        picked = []
        for _, fraction in self.fractions:
            wanted = base + np.maximum(1, np.ceil(totals * fraction).astype(np.int64))
            picked.append(value.take(pa.array(order[np.searchsorted(cumulative, wanted, "left")])))
        return spread(picked, found, groups.num_rows)

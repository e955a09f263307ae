"""The rows of changed groups before and after the changes, over which Spark computes window functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.kernels.arrays import mask, take, values_of
from penstock.engine.kernels.row_groups import group_rows, stable_argsort
from penstock.engine.state.operator_state import WEIGHT, OperatorState
from penstock.engine.state.runs import HASH
from penstock.engine.views.operators.base import (
    ArrowFunction,
    StatefulOperator,
    cancel_equal_rows,
    concat,
    disappearing_first,
    with_row_hashes,
    with_weight,
)
from penstock.engine.views.operators.group_times import GroupTimes
from penstock.engine.views.operators.stored_rows import StoredRows

_ROWS = StoredRows(0)
#: The hash of a row's group. The rows of a group before and after the changes are two partitions of a window.
GROUP_HASH = "__group_hash"


@dataclass(frozen=True)
class GroupRowsOperator(StatefulOperator):
    """All rows of the changed groups, before (weight -1) and after (weight 1)."""

    groups: tuple[str, ...]
    #: The columns that identify a row.
    key: tuple[str, ...]

    def apply(self, changes: pa.Table, state: OperatorState) -> pa.Table:
        changes = cancel_equal_rows(disappearing_first(changes), self.key, changes.column_names)
        by_group = group_rows(values_of(changes.column(HASH)), [changes.column(name) for name in self.groups])
        groups = take(changes.select([HASH, *self.groups]), by_group.first)
        hashes, ids = values_of(groups.column(HASH)), by_group.ids()
        changes = with_row_hashes(changes)
        old, old_ids = _ROWS.load(groups, self.groups, self.key, state, changes.schema)
        weights = values_of(changes.column(WEIGHT))
        is_kept = ~StoredRows.contains(mask(changes, weights < 0), old, self.key)
        _ROWS.store(changes, self.key, state)
        new = concat([mask(old, is_kept), mask(changes, weights > 0)])
        new_ids = np.concatenate([old_ids[is_kept], ids[weights > 0]])
        # In the order in which they are loaded in the next cycle, so that sums of doubles are the same to the last bit.
        order = stable_argsort(values_of(new.column(HASH)))
        new, new_ids = take(new, order), new_ids[order]
        return concat(
            [
                with_weight(rows.append_column(GROUP_HASH, pa.array(hashes[numbers])), weight)
                for rows, numbers, weight in ((old, old_ids, -1), (new, new_ids, 1))
            ]
        )

    @property
    def times(self) -> GroupTimes:
        return GroupTimes(self.groups)

    def expire(self, groups: pa.Table, changes: pa.Table, state: OperatorState) -> pa.Table:
        # The input are events, of which a cycle that expires groups has none.
        old, ids = _ROWS.load(groups, self.groups, self.key, state, with_row_hashes(changes).schema)
        removed = with_weight(old, -1)
        _ROWS.store(removed, self.key, state)
        return removed.append_column(GROUP_HASH, pa.array(values_of(groups.column(HASH))[ids]))


@dataclass(frozen=True)
class CancelEqualRows(ArrowFunction):
    """Drops rows that disappear and appear with the same values. It keeps no state."""

    key: tuple[str, ...]

    def compute(self, rows: pa.Table) -> pa.Table:
        names = [name for name in self.output_schema.names if name != WEIGHT]
        return cancel_equal_rows(disappearing_first(rows), self.key, names)

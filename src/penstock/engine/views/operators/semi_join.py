"""The rows of one changing input that have a match in another one, or none.

The other input is stored as the number of its rows for each join key.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.kernels.arrays import BoolArray, IntArray, mask, take, values_of
from penstock.engine.kernels.row_groups import group_rows, match_rows
from penstock.engine.state.compaction import Merge
from penstock.engine.state.operator_state import WEIGHT, OperatorState
from penstock.engine.state.runs import HASH
from penstock.engine.views.operators.base import StatefulOperator, appearing, concat, disappearing, with_weight
from penstock.engine.views.operators.group_times import GroupTimes
from penstock.engine.views.operators.join_side import NULL_KEY, SIDE, UNMATCHED, JoinSide, key_hashes

_COUNTS_PART = 1
_COUNT = "__count"


@dataclass(frozen=True)
class SemiJoinOperator(StatefulOperator):
    #: True for the rows without a match.
    is_anti: bool
    join_keys: tuple[str, ...]
    left: JoinSide
    #: For the last steps of an outer join: all rows of other sides are passed along, and those of the left input get
    #: this mark. Columns that they do not have are null.
    mark: int | None = None
    #: True if the rows of the other input disappear once their join key expires.
    other_expires: bool = False

    def apply(self, changes: pa.Table, state: OperatorState) -> pa.Table:
        return self._apply(changes, None, state)

    @property
    def times(self) -> GroupTimes:
        return GroupTimes(self.join_keys)

    def rows_of_groups(self, changes: pa.Table) -> pa.Table:
        return mask(changes, ~values_of(changes.column(NULL_KEY), False))

    def expire(self, groups: pa.Table, changes: pa.Table, state: OperatorState) -> pa.Table:
        changes = concat([changes, self.left.expiring(groups, changes.schema, state)])
        return self._apply(changes, groups if self.other_expires else None, state)

    def _apply(self, changes: pa.Table, expired: pa.Table | None, state: OperatorState) -> pa.Table:
        """The changes of the result. ``expired`` has the join keys of which the other input has no rows any more."""
        side_number, is_null = values_of(changes.column(SIDE)), values_of(changes.column(NULL_KEY), False)
        is_left = side_number == 0
        rows = self.left.changes(changes, is_left & ~is_null)
        counted = mask(changes, ~is_null & (side_number < 2))
        keys, passed_before, passed_after = self._update_counts(counted, expired, state)
        is_changed = passed_before != passed_after
        changed_keys = mask(keys, is_changed)
        left = self.left.load(rows, values_of(changed_keys.column(HASH)), state)
        kept, ids = self._match(left.kept, changed_keys)
        appears = passed_after[is_changed][ids]
        nulls = mask(changes, is_left & is_null) if self.is_anti else changes.slice(0, 0)
        self.left.store(rows, state)
        parts = [
            (mask(kept, ~appears), -1),
            (mask(kept, appears), 1),
            (self._passing(left.removed, keys, passed_before), -1),
            (self._passing(left.added, keys, passed_after), 1),
            (disappearing(nulls), -1),
            (appearing(nulls), 1),
        ]
        results = [self._to_output(part, weight) for part, weight in parts]
        if self.mark is not None:
            results.append(mask(changes, ~is_left).select(results[0].column_names))
        return concat(results)

    def _to_output(self, rows: pa.Table, weight: int) -> pa.Table:
        fields = [field for field in self.output_schema if field.name != WEIGHT]
        has = set(self.left.columns)
        arrays = [
            rows.column(field.name) if field.name in has else pa.nulls(rows.num_rows, field.type) for field in fields
        ]
        result = pa.table(arrays, names=[field.name for field in fields])
        if self.mark is not None:
            marks = pa.array(np.full(rows.num_rows, self.mark, np.int8))
            result = result.set_column(result.column_names.index(UNMATCHED), UNMATCHED, marks)
        return with_weight(result, weight)

    def _update_counts(
        self, changes: pa.Table, expired: pa.Table | None, state: OperatorState
    ) -> tuple[pa.Table, BoolArray, BoolArray]:
        """The changed join keys, and whether rows of the left input with them pass, before and after."""
        names = [HASH, *self.join_keys]
        rows = changes.select(names)
        weights = values_of(changes.column(WEIGHT)).astype(np.int64) * (values_of(changes.column(SIDE)) == 1)
        if expired is not None:
            rows = concat([rows, expired.select(names)])
            weights = np.concatenate([weights, np.zeros(expired.num_rows, np.int64)])
        groups = group_rows(values_of(rows.column(HASH)), [rows.column(name) for name in self.join_keys])
        keys = take(rows, groups.first)
        delta = np.add.reduceat(weights[groups.order], groups.starts) if groups.count else weights
        stored, index = state.find_latest(_COUNTS_PART, keys, self.join_keys)
        before = np.zeros(groups.count, np.int64)
        if stored is not None:
            before = np.where(index >= 0, values_of(stored.column(_COUNT))[index], 0)
        after = before + delta
        if expired is not None:
            positions, _ = match_rows(
                keys, expired, values_of(keys.column(HASH)), values_of(expired.column(HASH)), self.join_keys
            )
            after[positions] = 0
        counted = mask(keys.append_column(_COUNT, pa.array(after)), after != before)
        state.add(_COUNTS_PART, counted, Merge(self.join_keys, alive=_COUNT))
        return keys, (before > 0) != self.is_anti, (after > 0) != self.is_anti

    def _match(self, rows: pa.Table, keys: pa.Table) -> tuple[pa.Table, IntArray]:
        """The rows with some join keys, and the number of each row's key."""
        positions, ids = match_rows(rows, keys, key_hashes(rows), key_hashes(keys), self.join_keys)
        return take(rows, positions), ids

    def _passing(self, rows: pa.Table, keys: pa.Table, passes: BoolArray) -> pa.Table:
        rows, ids = self._match(rows, keys)
        return mask(rows, passes[ids])

"""Joins of two changing inputs on equal keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine.kernels.arrays import BoolArray, mask, take, values_of
from penstock.engine.kernels.row_groups import group_rows, match_rows
from penstock.engine.state.operator_state import WEIGHT, OperatorState
from penstock.engine.state.runs import HASH
from penstock.engine.views.operators.base import StatefulOperator, appearing, concat, disappearing, with_weight
from penstock.engine.views.operators.group_times import GroupTimes
from penstock.engine.views.operators.join_side import NULL_KEY, SIDE, UNMATCHED, JoinSide, SideChanges, key_hashes
from penstock.stream.views.view_plan import JoinKind


@dataclass(frozen=True)
class JoinOperator(StatefulOperator):
    """Rows of both inputs are one table with the columns of both, in which those of the other side are null.

    A pair disappears if one of its rows does and appears if one of its rows does. So the changes are, with L and R for
    the stored rows that stay::

        - removed L x (R + removed R),  - L x removed R,  + added L x (R + added R),  + L x added R
    """

    kind: JoinKind
    join_keys: tuple[str, ...]
    left: JoinSide
    right: JoinSide
    #: The sides whose changes are passed along, for a following operator that finds the rows without a match.
    passed: tuple[int, ...] = ()

    def apply(self, changes: pa.Table, state: OperatorState) -> pa.Table:
        number, is_null = values_of(changes.column(SIDE)), values_of(changes.column(NULL_KEY), False)
        sides = (self.left, self.right)
        valid = [side.changes(changes, (number == side.part) & ~is_null) for side in sides]
        nulls = [mask(changes.select(valid[side.part].column_names), (number == side.part) & is_null) for side in sides]
        joined = values_of(changes.column(HASH))
        hashes = [joined[(number == side.part) & ~is_null] for side in sides]
        # An inner join needs the stored rows of a side only where the other side changes.
        both = np.concatenate(hashes)
        wanted = [hashes[1], hashes[0]] if self.kind is JoinKind.INNER else [both, both]
        left, right = (side.load(valid[side.part], wanted[side.part], state) for side in sides)
        results = self._pairs(left, right)
        if self.kind in (JoinKind.LEFT, JoinKind.FULL):
            results += self._unmatched(left, right, nulls[0], 1)
        if self.kind in (JoinKind.RIGHT, JoinKind.FULL):
            results += self._unmatched(right, left, nulls[1], 2)
        for part in self.passed:
            rows = concat([valid[part].select(nulls[part].column_names), nulls[part]])
            results += [self._pad(appearing(rows), 1, part + 1), self._pad(disappearing(rows), -1, part + 1)]
        for side in sides:
            side.store(valid[side.part], state)
        return concat(results)

    @property
    def times(self) -> GroupTimes:
        return GroupTimes(self.join_keys)

    def rows_of_groups(self, changes: pa.Table) -> pa.Table:
        return mask(changes, ~values_of(changes.column(NULL_KEY), False))

    def expire(self, groups: pa.Table, changes: pa.Table, state: OperatorState) -> pa.Table:
        expiring = [side.expiring(groups, changes.schema, state) for side in (self.left, self.right)]
        return self.apply(concat([changes, *expiring]), state)

    def _pairs(self, left: SideChanges, right: SideChanges) -> list[pa.Table]:
        return [
            self._join(left.removed, right.old, -1),
            self._join(left.kept, right.removed, -1),
            self._join(left.added, right.new, 1),
            self._join(left.kept, right.added, 1),
        ]

    def _join(self, left: pa.Table, right: pa.Table, weight: int) -> pa.Table:
        positions, others = match_rows(left, right, key_hashes(left), key_hashes(right), self.join_keys)
        left = take(left.select(list(self.left.columns)), positions)
        right = take(right.select(list(self.right.columns)), others)
        columns = dict(zip(left.column_names, left.columns, strict=True))
        columns |= dict(zip(right.column_names, right.columns, strict=True))
        return self._to_output(columns, len(positions), weight, 0)

    def _unmatched(self, rows: SideChanges, others: SideChanges, nulls: pa.Table, mark: int) -> list[pa.Table]:
        """The changes of the rows that have no match. Rows with a null key never have one."""
        kept_old, kept_new = self._has_match(rows.kept, others.old), self._has_match(rows.kept, others.new)
        return [
            self._pad(mask(rows.kept, ~kept_old & kept_new), -1, mark),
            self._pad(mask(rows.kept, kept_old & ~kept_new), 1, mark),
            self._pad(mask(rows.removed, ~self._has_match(rows.removed, others.old)), -1, mark),
            self._pad(mask(rows.added, ~self._has_match(rows.added, others.new)), 1, mark),
            self._pad(disappearing(nulls), -1, mark),
            self._pad(appearing(nulls), 1, mark),
        ]

    def _has_match(self, rows: pa.Table, others: pa.Table) -> BoolArray:
        """Whether each row has a row with equal keys in another table."""
        matched = np.zeros(rows.num_rows, np.bool_)
        if rows.num_rows and others.num_rows:
            groups = group_rows(key_hashes(others), [others.column(name) for name in self.join_keys])
            others = take(others.select([HASH, *self.join_keys]), groups.first)
            positions, _ = match_rows(rows, others, key_hashes(rows), key_hashes(others), self.join_keys)
            matched[positions] = True
        return matched

    def _pad(self, rows: pa.Table, weight: int, mark: int) -> pa.Table:
        """Rows of one side, with nulls for the columns of the other one."""
        names = self.left.columns if mark == 1 else self.right.columns
        return self._to_output({name: rows.column(name) for name in names}, rows.num_rows, weight, mark)

    def _to_output(self, columns: dict[str, Any], count: int, weight: int, mark: int) -> pa.Table:
        """A table of the output's columns; those that are not given are null."""
        given = columns | {UNMATCHED: pa.array(np.full(count, mark, np.int8))}
        fields = [field for field in self.output_schema if field.name != WEIGHT]
        arrays = [given[field.name] if field.name in given else pa.nulls(count, field.type) for field in fields]
        return with_weight(pa.table(arrays, names=[field.name for field in fields]), weight)

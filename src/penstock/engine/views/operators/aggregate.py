"""Aggregates of the rows of each group, kept up to date while rows appear and disappear.

The state of a group is one row: the number of its rows and the columns of its accumulators. It has the values after the
last cycle, not changes to be added up, so that the row that disappears is the one that appeared, to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.kernels.arrays import BoolArray, IntArray, combine, mask, one_chunk, take, values_of
from penstock.engine.kernels.equality import equal_rows
from penstock.engine.kernels.row_groups import Groups, group_rows
from penstock.engine.state.compaction import Merge
from penstock.engine.state.operator_state import WEIGHT, OperatorState
from penstock.engine.state.runs import HASH
from penstock.engine.views.operators.accumulators import Accumulator, Count
from penstock.engine.views.operators.base import ArrowFunction, StatefulOperator, concat, with_weight
from penstock.engine.views.operators.distinct_values import DistinctValues
from penstock.engine.views.operators.extremes import RetractableExtreme
from penstock.engine.views.operators.group_times import TIME, GroupTimes
from penstock.engine.views.operators.percentiles import Percentiles

#: The number of rows of a group.
ROWS = "__rows"
#: The part of the groups. Values of groups are in parts of their own.
GROUPS_PART = 0

_ROW_COUNT = Count(ROWS)


@dataclass(frozen=True)
class AggregateColumns:
    """The computations of each group."""

    groups: tuple[str, ...]
    accumulators: tuple[Accumulator, ...] = ()
    distinct: tuple[DistinctValues, ...] = ()
    extremes: tuple[RetractableExtreme, ...] = ()
    percentiles: tuple[Percentiles, ...] = ()

    @property
    def summed(self) -> list[Accumulator]:
        """The accumulators whose partial states are merged, with the number of rows first."""
        return [_ROW_COUNT, *self.accumulators]

    @property
    def all_accumulators(self) -> list[Accumulator]:
        """Those in the state of a group, in its order."""
        distinct = [accumulator for each in self.distinct for accumulator in each.accumulators]
        return [*self.summed, *distinct, *(each.extreme for each in self.extremes)]

    @property
    def can_preaggregate(self) -> bool:
        return not (self.distinct or self.extremes or self.percentiles)

    @property
    def partial_fields(self) -> list[pa.Field]:
        return [field for each in self.summed for field in each.state_fields]

    @property
    def result_fields(self) -> list[pa.Field]:
        """The columns that the operator can return, beside the groups."""
        fields = [pa.field(each.name, each.output_type) for each in self.all_accumulators]
        return fields + [pa.field(name, each.type) for each in self.percentiles for name, _ in each.fractions]

    def partial_states(self, rows: pa.Table, groups: Groups) -> list[list[pa.Array]]:
        """The states of the summed accumulators for the rows of each group."""
        weights = values_of(rows.column(WEIGHT)).astype(np.int64)
        return [each.from_rows(rows, weights, groups) for each in self.summed]

    def merge_partials(self, rows: pa.Table, groups: Groups) -> list[list[pa.Array]]:
        return [
            each.merge([one_chunk(rows.column(field.name)) for field in each.state_fields], groups)
            for each in self.summed
        ]

    def group(self, rows: pa.Table) -> Groups:
        return group_rows(values_of(rows.column(HASH)), [rows.column(name) for name in self.groups])


@dataclass(frozen=True)
class Preaggregate(ArrowFunction):
    """Partial aggregates before the exchange, so that each task sends one row per group."""

    columns: AggregateColumns

    def compute(self, rows: pa.Table) -> pa.Table:
        groups = self.columns.group(rows)
        keys = take(rows.select([HASH, *self.columns.groups]), groups.first)
        states = [array for arrays in self.columns.partial_states(rows, groups) for array in arrays]
        names = [*keys.column_names, *(field.name for field in self.columns.partial_fields)]
        return pa.table([*keys.columns, *states], names=names)


@dataclass(frozen=True)
class _StoredGroups:
    """The groups of a cycle as they are stored."""

    rows: pa.Table | None
    #: The position of each group in ``rows``; -1 if it is not stored.
    index: IntArray
    #: Whether a group has rows. A group without rows may be stored until runs are merged.
    is_alive: BoolArray

    @classmethod
    def find(cls, groups: pa.Table, keys: Sequence[str], state: OperatorState) -> _StoredGroups:
        rows, index = state.find_latest(GROUPS_PART, groups, keys)
        is_alive = np.zeros(len(index), np.bool_)
        if rows is not None:
            is_alive = (index >= 0) & (values_of(rows.column(ROWS))[index] > 0)
        return cls(rows, index, is_alive)

    def columns(self, accumulator: Accumulator) -> list[pa.Array]:
        """The columns of an accumulator's state for each group; null for groups without rows."""
        if self.rows is None:
            return [pa.nulls(len(self.index), field.type) for field in accumulator.state_fields]
        positions = pa.array(self.index, mask=~self.is_alive)
        return [one_chunk(self.rows.column(field.name)).take(positions) for field in accumulator.state_fields]

    def merge(self, accumulator: Accumulator, partial: Sequence[pa.Array]) -> list[pa.Array]:
        """The states of an accumulator after the changes."""
        alive = np.flatnonzero(self.is_alive)
        if self.rows is None or not len(alive):
            return list(partial)
        count = len(self.index)
        fields, positions = accumulator.state_fields, pa.array(self.index[alive])
        stored = [one_chunk(self.rows.column(field.name)).take(positions) for field in fields]
        sizes = 1 + self.is_alive.astype(np.int64)
        starts = np.cumsum(sizes) - sizes
        order = np.empty(len(alive) + count, np.int64)
        order[starts[alive]] = np.arange(len(alive))
        order[starts + sizes - 1] = np.arange(count) + len(alive)
        both = [pa.concat_arrays([old, new]) for old, new in zip(stored, partial, strict=True)]
        return accumulator.merge(both, Groups(order, starts))


@dataclass(frozen=True)
class AggregateOperator(StatefulOperator):
    columns: AggregateColumns
    #: True if the input has the partial aggregates of :class:`Preaggregate` instead of rows.
    is_preaggregated: bool = False

    def apply(self, changes: pa.Table, state: OperatorState) -> pa.Table:
        columns, by_group = self.columns, self.columns.group(changes)
        groups = take(changes.select([HASH, *columns.groups]), by_group.first)
        stored = _StoredGroups.find(groups, columns.groups, state)
        partials = (
            columns.merge_partials(changes, by_group)
            if self.is_preaggregated
            else columns.partial_states(changes, by_group)
        )
        needs_ids = not columns.can_preaggregate
        ids = by_group.ids() if needs_ids else np.empty(0, np.int64)
        for each in columns.distinct:
            partials += each.deltas(changes, ids, groups.num_rows, state)
        accumulators = columns.all_accumulators
        states = [stored.merge(each, partial) for each, partial in zip(accumulators, partials, strict=False)]
        for retractable in columns.extremes:
            current = stored.columns(retractable.extreme)
            states.append(retractable.update(changes, ids, groups, current, state))
        arrays = [array for each in states for array in each]
        names = [field.name for each in accumulators for field in each.state_fields]
        for percentiles in columns.percentiles:
            arrays += percentiles.update(changes, ids, groups, state)
            names += [name for name, _ in percentiles.fractions]
        after = pa.table([*groups.columns, *arrays], names=[*groups.column_names, *names])
        if self.state.ttl_us:
            after = after.append_column(TIME, pa.array(np.full(groups.num_rows, state.now_us)))
        state.add(GROUPS_PART, after, self._merge)
        return self._changes(stored, after)

    @property
    def times(self) -> GroupTimes:
        return GroupTimes(self.columns.groups, GROUPS_PART)

    def expire(self, groups: pa.Table, changes: pa.Table, state: OperatorState) -> pa.Table:
        # The input are events, of which a cycle that expires groups has none.
        stored = _StoredGroups.find(groups, self.columns.groups, state)
        if stored.rows is None:
            return self.output_schema.empty_table()
        before = take(stored.rows, stored.index)
        after, none = before, pa.array(np.zeros(before.num_rows, np.int64))
        for name in (ROWS, TIME):
            after = after.set_column(after.column_names.index(name), name, none)
        state.add(GROUPS_PART, after, self._merge)
        for distinct in self.columns.distinct:
            distinct.delete(groups, state)
        for percentiles in self.columns.percentiles:
            percentiles.items.delete(groups, state)
        return with_weight(self._results(before), -1)

    @property
    def _drops_empty_groups(self) -> bool:
        """Without groups there is one row, also when it counts nothing, unless it has expired."""
        return bool(self.columns.groups) or self.state.ttl_us > 0

    @property
    def _merge(self) -> Merge:
        return Merge(self.columns.groups, alive=ROWS if self._drops_empty_groups else None)

    def _changes(self, stored: _StoredGroups, after: pa.Table) -> pa.Table:
        """The rows of groups that disappear or change, and of those that appear or have changed."""
        count = after.num_rows
        is_there = values_of(after.column(ROWS)) > 0 if self._drops_empty_groups else np.ones(count, np.bool_)
        was_there = stored.is_alive if self._drops_empty_groups else stored.index >= 0
        new = self._results(after)
        if stored.rows is None or not was_there.any():
            return with_weight(mask(new, is_there), 1)
        positions = np.flatnonzero(was_there)
        old = self._results(take(stored.rows, stored.index[positions]))
        is_equal = equal_rows(old, take(new, positions), old.column_names) & is_there[positions]
        is_changed = np.ones(count, np.bool_)
        is_changed[positions] = ~is_equal
        return concat([with_weight(mask(old, ~is_equal), -1), with_weight(mask(new, is_there & is_changed), 1)])

    def _results(self, rows: pa.Table) -> pa.Table:
        """The columns of the output, without the weight."""
        results = {name: rows.column(name) for name in self.columns.groups}
        wanted = set(self.output_schema.names)
        for each in self.columns.all_accumulators:
            if each.name in wanted:
                results[each.name] = each.output([one_chunk(rows.column(field.name)) for field in each.state_fields])
        for percentiles in self.columns.percentiles:
            results |= {name: rows.column(name) for name, _ in percentiles.fractions if name in wanted}
        names = [name for name in self.output_schema.names if name != WEIGHT]
        # An aggregate without results and groups still is a row.
        return combine(pa.table([results[name] for name in names], names=names))

"""The first rows of each group, kept up to date while rows appear and disappear.

For each group its first rows and some more are stored as candidates: all other rows come after them. All rows of a
group are read only if so many candidates disappear that fewer than needed are left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.kernels.arrays import BoolArray, IntArray, mask, take, values_of
from penstock.engine.kernels.order_keys import SortColumn, first_of_groups, order_in_groups, sort_keys
from penstock.engine.kernels.row_groups import group_rows
from penstock.engine.state.compaction import Merge
from penstock.engine.state.operator_state import WEIGHT, OperatorState
from penstock.engine.state.runs import HASH
from penstock.engine.views.operators.base import (
    StatefulOperator,
    cancel_equal_rows,
    concat,
    disappearing_first,
    with_row_hashes,
    with_weight,
)
from penstock.engine.views.operators.group_times import GroupTimes
from penstock.engine.views.operators.stored_rows import StoredRows

_CANDIDATES = StoredRows(0)
_ALL_ROWS = StoredRows(1)
#: The part with the number of rows of each group that are not candidates.
_OTHERS_PART = 2
_OTHERS = "__others"


@dataclass(frozen=True)
class _Candidates:
    """The candidates of all changed groups before the cycle and the rows that appear, in order."""

    rows: pa.Table
    #: The number of each row's group.
    ids: IntArray
    #: Whether a row is a candidate before the cycle, and after it.
    before: BoolArray
    after: BoolArray


@dataclass(frozen=True)
class TopNOperator(StatefulOperator):
    groups: tuple[str, ...]
    #: The columns that identify a row.
    key: tuple[str, ...]
    #: The order. It ends with the key, so that it is total.
    order: tuple[SortColumn, ...]
    limit: int
    rank: str | None
    #: True if rows only appear. Then no row after the first ones is needed.
    is_append_only: bool

    def apply(self, changes: pa.Table, state: OperatorState) -> pa.Table:
        if not self.is_append_only:
            changes = cancel_equal_rows(disappearing_first(changes), self.key, changes.column_names)
        by_group = group_rows(values_of(changes.column(HASH)), [changes.column(name) for name in self.groups])
        groups = take(changes.select([HASH, *self.groups]), by_group.first)
        if self.is_append_only and self.limit == 1:
            # Rows that others of this cycle push out need no look at the state.
            keys = [key[by_group.order] for key in sort_keys(changes, self.order)]
            first = by_group.order[first_of_groups(keys, by_group.starts, changes.num_rows)]
            changes, ids = take(changes, first), np.arange(len(first))
        else:
            ids = by_group.ids()
        changes = with_row_hashes(changes)
        old, old_ids = _CANDIDATES.load(groups, self.groups, self.key, state, changes.schema)
        candidates = self._sort(old, old_ids, changes, ids)
        if self.is_append_only:
            candidates = self._truncate(candidates, self.limit)[0]
        else:
            candidates = self._replace_candidates(candidates, changes, ids, groups, state)
            _ALL_ROWS.store(changes, self.key, state)
        changed = candidates.before != candidates.after
        moved = mask(candidates.rows, changed)
        weights = np.where(candidates.after[changed], 1, -1).astype(np.int8)
        moved = moved.set_column(moved.column_names.index(WEIGHT), WEIGHT, pa.array(weights))
        _CANDIDATES.store(disappearing_first(moved), self.key, state)
        return self._changes(candidates)

    @property
    def times(self) -> GroupTimes:
        return GroupTimes(self.groups)

    def expire(self, groups: pa.Table, changes: pa.Table, state: OperatorState) -> pa.Table:
        # The input are events, of which a cycle that expires groups has none.
        rows, ids = _CANDIDATES.load(groups, self.groups, self.key, state, with_row_hashes(changes).schema)
        order = order_in_groups(ids, sort_keys(rows, self.order))
        are_there = np.ones(rows.num_rows, np.bool_)
        candidates = _Candidates(take(rows, order), ids[order], are_there, ~are_there)
        _CANDIDATES.store(with_weight(candidates.rows, -1), self.key, state)
        return self._changes(candidates)

    def _sort(self, old: pa.Table, old_ids: IntArray, changes: pa.Table, ids: IntArray) -> _Candidates:
        """The candidates and the rows that appear in one order. Rows that disappear are no candidates afterwards."""
        weights = values_of(changes.column(WEIGHT))
        added = mask(changes, weights > 0)
        rows = concat([old, added])
        all_ids = np.concatenate([old_ids, ids[weights > 0]])
        before = np.zeros(rows.num_rows, np.bool_)
        before[: old.num_rows] = True
        after = np.ones(rows.num_rows, np.bool_)
        after[: old.num_rows] = ~StoredRows.contains(mask(changes, weights < 0), old, self.key)
        order = order_in_groups(all_ids, sort_keys(rows, self.order))
        return _Candidates(take(rows, order), all_ids[order], before[order], after[order])

    def _truncate(self, candidates: _Candidates, limit: int) -> tuple[_Candidates, IntArray]:
        """Keep at most so many candidates per group. Returns the groups of those that are dropped too."""
        dropped = candidates.after & (_ranks(candidates.ids, candidates.after) >= limit)
        kept = _Candidates(candidates.rows, candidates.ids, candidates.before, candidates.after & ~dropped)
        return kept, candidates.ids[dropped]

    def _replace_candidates(
        self, candidates: _Candidates, changes: pa.Table, ids: IntArray, groups: pa.Table, state: OperatorState
    ) -> _Candidates:
        """Keep the first rows of each group as its candidates; load all rows of groups that have too few."""
        count = groups.num_rows
        stored, index = state.find_latest(_OTHERS_PART, groups, self.groups)
        others_before = np.zeros(count, np.int64)
        if stored is not None:
            others_before = np.where(index >= 0, values_of(stored.column(_OTHERS))[index], 0)
        # A row after the last candidate is no candidate if there are other rows.
        last = np.full(count, -1, np.int64)
        np.maximum.at(last, candidates.ids[candidates.before], np.flatnonzero(candidates.before))
        is_other = ~candidates.before & (others_before > 0)[candidates.ids]
        is_other &= np.arange(len(candidates.ids)) > last[candidates.ids]
        kept = _Candidates(candidates.rows, candidates.ids, candidates.before, candidates.after & ~is_other)
        kept, dropped = self._truncate(kept, 2 * self.limit + 16)
        # Rows that disappear and were no candidates were among the others.
        removed = np.bincount(ids[values_of(changes.column(WEIGHT)) < 0], minlength=count)
        removed -= np.bincount(kept.ids[kept.before & ~candidates.after], minlength=count)
        others = others_before - removed
        others += np.bincount(kept.ids[is_other], minlength=count) + np.bincount(dropped, minlength=count)
        sizes = np.bincount(kept.ids[kept.after], minlength=count)
        is_short = (sizes < self.limit) & (others > 0)
        if is_short.any():
            kept, others = self._reload(kept, changes, groups, np.flatnonzero(is_short), others, state)
        is_changed = others != others_before
        counted = mask(groups, is_changed).append_column(_OTHERS, pa.array(others[is_changed]))
        state.add(_OTHERS_PART, counted, Merge(self.groups, alive=_OTHERS))
        return kept

    def _reload(
        self,
        candidates: _Candidates,
        changes: pa.Table,
        groups: pa.Table,
        short: IntArray,
        others: IntArray,
        state: OperatorState,
    ) -> tuple[_Candidates, IntArray]:
        """Choose the candidates of some groups among all of their rows."""
        stored, numbers = _ALL_ROWS.load(take(groups, short), self.groups, self.key, state, changes.schema, changes)
        # Rows that are candidates already are not added a second time.
        is_short = np.isin(candidates.ids, short)
        present = mask(candidates.rows, is_short & (candidates.before | candidates.after))
        is_new = ~StoredRows.contains(present, stored, self.key, candidates.rows.column_names)
        rows = concat([candidates.rows, mask(stored, is_new)])
        ids = np.concatenate([candidates.ids, short[numbers[is_new]]])
        order = order_in_groups(ids, sort_keys(rows, self.order))
        padding = np.zeros(int(is_new.sum()), np.bool_)
        before = np.concatenate([candidates.before, padding])
        after = np.concatenate([candidates.after, ~padding])
        reloaded = _Candidates(take(rows, order), ids[order], before[order], after[order])
        reloaded, _ = self._truncate(reloaded, 2 * self.limit + 16)
        totals = np.bincount(numbers, minlength=len(short))
        others = others.copy()
        others[short] = totals - np.bincount(reloaded.ids[reloaded.after], minlength=len(others))[short]
        return reloaded, others

    def _changes(self, candidates: _Candidates) -> pa.Table:
        results = []
        for flags, weight in ((candidates.before, -1), (candidates.after, 1)):
            ranks = _ranks(candidates.ids, flags)
            is_first = flags & (ranks < self.limit)
            rows = mask(candidates.rows, is_first)
            if self.rank is not None:
                rows = rows.append_column(self.rank, pa.array((ranks[is_first] + 1).astype(np.int32)))
            results.append(with_weight(rows, weight))
        names = [name for name in self.output_schema.names if name != WEIGHT]
        return cancel_equal_rows(concat(results), self.key, names)


def _ranks(ids: IntArray, flags: BoolArray) -> IntArray:
    """The number of flagged rows of the same group before each row. The rows of a group follow one another."""
    if not len(ids):
        return ids
    counts: IntArray = np.cumsum(flags) - flags
    begins = np.ones(len(ids), np.bool_)
    begins[1:] = ids[1:] != ids[:-1]
    starts = np.flatnonzero(begins)
    ranks: IntArray = counts - np.repeat(counts[starts], np.diff(np.append(starts, len(ids))))
    return ranks

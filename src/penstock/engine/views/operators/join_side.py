"""One input of a join: its changes in a cycle, and its rows in the state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.kernels.arrays import BoolArray, IntArray, mask, sorted_unique, take, values_of
from penstock.engine.kernels.row_groups import match_rows
from penstock.engine.state.compaction import Merge
from penstock.engine.state.operator_state import WEIGHT, OperatorState
from penstock.engine.state.runs import HASH
from penstock.engine.views.operators.base import (
    ROW_HASH,
    appearing,
    cancel_equal_rows,
    concat,
    disappearing,
    disappearing_first,
    with_row_hashes,
)

#: 0 for rows of the left input, 1 for those of the right one.
SIDE = "__side"
#: True if a key of the row is null, so that it matches nothing.
NULL_KEY = "__null_key"
#: In the result of an outer join: 0 for a pair, 1 for a left row without a match, 2 for a right row without one.
UNMATCHED = "__unmatched"

_GROUP_BITS = np.int64(-(2**32))


def key_hashes(rows: pa.Table) -> IntArray:
    """The part of the hashes that rows with the same join key have in common."""
    return values_of(rows.column(HASH)) & _GROUP_BITS


@dataclass(frozen=True)
class SideChanges:
    """The rows of one input that have a changed join key."""

    added: pa.Table
    removed: pa.Table
    #: Stored rows that stay.
    kept: pa.Table

    @property
    def old(self) -> pa.Table:
        return concat([self.kept, self.removed])

    @property
    def new(self) -> pa.Table:
        return concat([self.kept, self.added])


@dataclass(frozen=True)
class JoinSide:
    part: int
    join_keys: tuple[str, ...]
    #: The columns of the input.
    columns: tuple[str, ...]
    #: Those that identify a row.
    key: tuple[str, ...]
    is_append_only: bool
    #: True if its rows disappear once their join key expires. Then it is not append-only.
    expires: bool = False

    def changes(self, rows: pa.Table, is_own: BoolArray) -> pa.Table:
        """The changes of this input, with the hashes of the state. Those that disappear come first."""
        names = list(dict.fromkeys((HASH, WEIGHT, *self.join_keys, *self.columns)))
        if self.is_append_only:
            # Rows are never looked up by their own key.
            return mask(rows.select(names), is_own)
        rows = with_row_hashes(mask(rows.select([*names, ROW_HASH]), is_own))
        return cancel_equal_rows(disappearing_first(rows), self.key, (*self.join_keys, *self.columns))

    def load(self, changes: pa.Table, hashes: IntArray, state: OperatorState) -> SideChanges:
        """The changes, and the stored rows with some hashes of join keys. There may be other rows too."""
        names = [name for name in changes.column_names if name != WEIGHT]
        if self.is_append_only:
            kept = state.find_all(self.part, sorted_unique(hashes))
            empty = changes.select(names).slice(0, 0)
            return SideChanges(changes.select(names), empty, empty if kept is None else kept.select(names))
        stored = state.find_groups(self.part, hashes)
        removed = disappearing(changes)
        kept = changes.slice(0, 0)
        if stored is not None:
            both = concat([stored.select(changes.column_names), removed])
            kept = Merge(self.key, alive=WEIGHT).apply(both, is_oldest=True)
        return SideChanges(*(rows.select(names) for rows in (appearing(changes), removed, kept)))

    def expiring(self, groups: pa.Table, schema: pa.Schema, state: OperatorState) -> pa.Table:
        """The stored rows with some join keys as rows of the operator's input that disappear."""
        stored = state.find_groups(self.part, values_of(groups.column(HASH))) if self.expires else None
        if stored is None:
            return schema.empty_table()
        rows = Merge(self.key, alive=WEIGHT).apply(stored, is_oldest=True)
        positions, ids = match_rows(rows, groups, key_hashes(rows), key_hashes(groups), self.join_keys)
        rows = take(rows, positions)
        count = rows.num_rows
        given = {name: rows.column(name) for name in (*self.join_keys, *self.columns)}
        given |= {HASH: take(groups.select([HASH]), ids).column(0), ROW_HASH: rows.column(HASH)}
        given[SIDE] = pa.array(np.full(count, self.part, np.int8))
        given[NULL_KEY] = pa.array(np.zeros(count, np.bool_))
        given[WEIGHT] = pa.array(np.full(count, -1, np.int8))
        arrays = [given[field.name] if field.name in given else pa.nulls(count, field.type) for field in schema]
        return pa.table(arrays, schema=schema)

    def store(self, changes: pa.Table, state: OperatorState) -> None:
        if self.is_append_only:
            state.add(self.part, changes.drop_columns([WEIGHT]), Merge())
        else:
            state.add(self.part, changes, Merge(self.key, alive=WEIGHT))

"""A part of an operator's state with the rows of groups, identified by their keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.kernels.arrays import BoolArray, IntArray, take, values_of
from penstock.engine.kernels.equality import equal_rows
from penstock.engine.kernels.row_groups import match_rows
from penstock.engine.state.compaction import Merge
from penstock.engine.state.operator_state import WEIGHT, OperatorState
from penstock.engine.state.runs import HASH

_GROUP_BITS = np.int64(-(2**32))


@dataclass(frozen=True)
class StoredRows:
    """Rows have the columns HASH, which is their own hash, and WEIGHT, which is negative for deleted ones."""

    part: int

    def load(
        self,
        groups: pa.Table,
        group_keys: Sequence[str],
        key: Sequence[str],
        state: OperatorState,
        schema: pa.Schema,
        changes: pa.Table | None = None,
    ) -> tuple[pa.Table, IntArray]:
        """The rows of some groups, and the number of each row's group; after some changes, if those are given.

        ``groups`` has the columns HASH and those of the group.
        """
        hashes = values_of(groups.column(HASH))
        stored = state.find_groups(self.part, hashes)
        rows = schema.empty_table() if stored is None else stored.select(schema.names)
        if changes is not None:
            rows = pa.concat_tables([rows, changes.select(schema.names)]).combine_chunks()
        if not rows.num_rows:
            return schema.empty_table(), np.empty(0, np.int64)
        rows = Merge(tuple(key), alive=WEIGHT).apply(rows, is_oldest=True)
        prefixes = values_of(rows.column(HASH)) & _GROUP_BITS
        positions, ids = match_rows(rows, groups, prefixes, hashes & _GROUP_BITS, group_keys)
        return take(rows, positions), ids

    def store(self, changes: pa.Table, key: Sequence[str], state: OperatorState) -> None:
        """Store changes, of which those that disappear come first."""
        state.add(self.part, changes, Merge(tuple(key), alive=WEIGHT))

    @staticmethod
    def contains(rows: pa.Table, wanted: pa.Table, key: Sequence[str], names: Sequence[str] | None = None) -> BoolArray:
        """Whether each wanted row's key is among some rows; with ``names``, a row with the same values."""
        found = np.zeros(wanted.num_rows, np.bool_)
        if rows.num_rows and wanted.num_rows:
            hashes = values_of(wanted.column(HASH)), values_of(rows.column(HASH))
            positions, others = match_rows(wanted, rows, *hashes, key)
            if names is not None and len(positions):
                compared = [name for name in names if name not in (*key, HASH, WEIGHT)]
                is_equal = equal_rows(take(wanted, positions), take(rows, others), compared)
                positions = positions[is_equal]
            found[positions] = True
        return found

"""The time of the last change of each group, for operators whose groups expire."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.kernels.arrays import BoolArray, mask, take, values_of
from penstock.engine.kernels.row_groups import group_rows, match_rows
from penstock.engine.state.compaction import Merge
from penstock.engine.state.operator_state import OperatorState
from penstock.engine.state.runs import HASH

#: The time of a group's last change in microseconds; 0 for a group that has expired.
TIME = "__time_us"
#: The part of the times, of operators whose groups have no row of their own.
TIMES_PART = -1


@dataclass(frozen=True)
class GroupTimes:
    """A part of the state that has one row per group, with the column TIME."""

    groups: tuple[str, ...]
    part: int = TIMES_PART

    def store(self, groups: pa.Table, expired: pa.Table, state: OperatorState) -> None:
        """Store the time of the cycle for groups that change, and delete those of groups that expire."""
        times = np.repeat([state.now_us, 0], [groups.num_rows, expired.num_rows])
        rows = pa.concat_tables([groups, expired]).append_column(TIME, pa.array(times))
        state.add(self.part, rows, Merge(self.groups, alive=TIME))

    def find_expired(self, ttl_us: int, changed: pa.Table, state: OperatorState) -> pa.Table:
        """The groups without a change for so long, with their hashes and in their order."""
        limit = state.now_us - ttl_us
        found = state.select(self.part, lambda rows: _has_expired(rows, limit))
        if found is None:
            return changed.slice(0, 0)
        found = found.select(changed.column_names)
        groups = take(found, group_rows(values_of(found.column(HASH)), self._keys(found)).first)
        # A newer row of the group may have another time.
        latest, index = state.find_latest(self.part, groups, self.groups)
        is_expired = np.ones(groups.num_rows, np.bool_) if latest is None else _has_expired(latest, limit)[index]
        hashes, others = values_of(groups.column(HASH)), values_of(changed.column(HASH))
        positions, _ = match_rows(groups, changed, hashes, others, self.groups)
        is_expired[positions] = False
        return mask(groups, is_expired)

    def changed(self, rows: pa.Table) -> pa.Table:
        """The groups of some rows, with their hashes and in their order."""
        by_group = group_rows(values_of(rows.column(HASH)), self._keys(rows))
        return take(rows.select([HASH, *self.groups]), by_group.first)

    def _keys(self, rows: pa.Table) -> list[pa.ChunkedArray]:
        return [rows.column(name) for name in self.groups]


def _has_expired(rows: pa.Table, limit: int) -> BoolArray:
    times = values_of(rows.column(TIME))
    expired: BoolArray = (times > 0) & (times <= limit)
    return expired

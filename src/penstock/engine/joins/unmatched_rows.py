"""The left rows of an outer join that have found no match, in the order in which they expire.

They are a part of the join's state, whose rows are in the order of the times: the number of a left row, where it is in
the state, and whether it is still without a match. A newer row of a number overrides older ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import psycopg
import pyarrow as pa

from penstock.db.statements import Statements
from penstock.engine.cycle_plan import CyclePlan
from penstock.engine.joins.join_state import JOIN_SHARDS, LEFT, ROW_ID, UNMATCHED, JoinState
from penstock.engine.kernels.arrays import BoolArray, IntArray, mask, sorted_unique, take, values_of
from penstock.engine.kernels.row_groups import stable_argsort
from penstock.engine.state.compaction import Merge
from penstock.engine.state.operator_state import OperatorState, shards_of
from penstock.engine.state.run_cache import RunCache
from penstock.engine.state.run_store import RunWriter
from penstock.engine.state.runs import HASH

_sql = Statements("penstock.engine.joins", "join_state.sql")

#: The hash of the row in the state of the join.
_ROW = "__row"
#: 1 while the row has found no match.
_IS_OPEN = "__is_open"
_EARLIEST = -(2**63)
#: The memory for the runs that the planner has read.
_PLANNER_CACHE_BYTES = 64 * 1024 * 1024


class RowPosition(NamedTuple):
    """A position in the order in which unmatched rows are emitted."""

    time_us: int
    row_id: int


def unmatched_rows(times: IntArray, ids: IntArray, rows: IntArray, *, is_open: bool) -> pa.Table:
    """Rows of the state. ``rows`` are the hashes of the left rows in the state of the join."""
    flags = np.full(len(times), is_open, np.int8)
    return pa.table({HASH: pa.array(times), ROW_ID: pa.array(ids), _ROW: pa.array(rows), _IS_OPEN: pa.array(flags)})


def find_unmatched(state: OperatorState, until: tuple[int, int]) -> pa.Table | None:
    """The rows without a match up to a position, in order, with the columns of ``unmatched_rows``."""
    found, _ = state.find_ranges(UNMATCHED, np.array([_EARLIEST]), np.array([until[0]]))
    if found is None:
        return None
    ids = values_of(found.column(ROW_ID))
    order = stable_argsort(ids)
    is_latest = np.ones(len(order), np.bool_)
    is_latest[:-1] = ids[order][1:] != ids[order][:-1]
    found = take(found, order[is_latest])
    times, ids = values_of(found.column(HASH)), values_of(found.column(ROW_ID))
    is_open = values_of(found.column(_IS_OPEN)) > 0
    found = mask(found, is_open & ((times < until[0]) | (ids <= until[1])))
    return take(found, np.lexsort((values_of(found.column(ROW_ID)), values_of(found.column(HASH)))))


def load_rows(found: pa.Table, state: OperatorState) -> pa.Table:
    """The left rows that are without a match, from the state of the join."""
    stored = state.find_all(LEFT, sorted_unique(values_of(found.column(_ROW))))
    ids = values_of(found.column(ROW_ID))
    rows = None if stored is None else mask(stored, np.isin(values_of(stored.column(ROW_ID)), ids))
    if rows is None or rows.num_rows != len(ids):
        raise ValueError(f"the state of a join lacks some of {len(ids)} rows that are to be emitted without a match")
    return rows


def store_unmatched(
    changes: Sequence[pa.Table], emitted: pa.Table | None, plan: CyclePlan, state: OperatorState
) -> None:
    """Store which rows are without a match after a cycle, and that some rows have been emitted."""
    since_us = None if plan.expired_until is None else plan.expired_until[0]
    if emitted is not None:
        times, ids, rows = (values_of(emitted.column(name)) for name in (HASH, ROW_ID, _ROW))
        # The commit deletes all runs of most shards, since all of their rows have expired.
        needed = _is_in(shards_of(rows, JOIN_SHARDS), _shards_with_later_rows(state, since_us))
        changes = [*changes, unmatched_rows(times[needed], ids[needed], rows[needed], is_open=False)]
    rows_to_add = pa.concat_tables(changes)
    if not rows_to_add.num_rows:
        return
    rows_to_add = rows_to_add.combine_chunks()
    merge = Merge((ROW_ID,), alive=_IS_OPEN, time=HASH, since_us=since_us)
    shards = shards_of(values_of(rows_to_add.column(_ROW)), JOIN_SHARDS)
    for shard in sorted_unique(shards).tolist():
        state.add_to_shard(UNMATCHED, shard, mask(rows_to_add, shards == shard), merge)


def _shards_with_later_rows(state: OperatorState, since_us: int | None) -> list[int]:
    """The shards with a run that the commit does not delete."""
    return [
        shard
        for shard in range(JOIN_SHARDS)
        if any(
            run.times is None or since_us is None or run.times.max_us >= since_us
            for run in state.runs(UNMATCHED, shard)
        )
    ]


def _is_in(values: IntArray, wanted: Sequence[int]) -> BoolArray:
    return np.isin(values, np.array(wanted, np.int64))


@dataclass(frozen=True)
class ExpiredRows:
    """The rows that a cycle emits without a match: their number, and the position of the last one."""

    count: int
    until: RowPosition


class UnmatchedRows:
    """The unmatched rows as the planner of a query sees them."""

    def __init__(self, state: JoinState, conn: psycopg.Connection[Any]) -> None:
        self._state = state
        self._conn = conn
        self._cache = RunCache(_PLANNER_CACHE_BYTES)

    def find_expired(self, limit: int) -> ExpiredRows | None:
        """The oldest expired rows, up to a limit; None while there is no watermark."""
        until_us, may_exist = self._ask("expired", {})
        if until_us is None:
            return None
        found = self._find(until_us) if may_exist else None
        if found is None or not found.num_rows:
            return ExpiredRows(0, RowPosition(until_us, -1))
        if found.num_rows <= limit:
            return ExpiredRows(found.num_rows, RowPosition(until_us, -1))
        last = found.slice(limit - 1, 1)
        return ExpiredRows(limit, RowPosition(last.column(HASH)[0].as_py(), last.column(ROW_ID)[0].as_py()))

    def is_due(self, params: dict[str, Any]) -> bool:
        """Tell whether the wall clock lets a row expire, because all partitions are idle."""
        until_us, may_exist = self._ask("due", params)
        found = self._find(until_us) if may_exist and until_us is not None else None
        return found is not None and found.num_rows > 0

    def _find(self, until_us: int) -> pa.Table | None:
        return find_unmatched(self._state.open_on(self._conn, [UNMATCHED], self._cache), (until_us, -1))

    def _ask(self, statement: str, params: dict[str, Any]) -> tuple[int | None, bool]:
        params = {**params, "query": self._state.query, "after": self._state.after_us}
        row = self._conn.execute(_sql[statement], params).fetchone()
        return (None, False) if row is None else (row[0], bool(row[1]))


def take_oldest(state: JoinState, conn: psycopg.Connection[Any], plan: CyclePlan, token: str) -> pa.Table | None:
    """The row that the cycle would emit first. With the state of this token it counts as emitted."""
    opened = state.open_on(conn, [LEFT, UNMATCHED], writer=RunWriter(token))
    found = None if plan.expired_until is None else find_unmatched(opened, plan.expired_until)
    if found is None or not found.num_rows:
        return None
    oldest = found.slice(0, 1)
    store_unmatched([], oldest, plan, opened)
    opened.flush()
    return load_rows(oldest, opened)

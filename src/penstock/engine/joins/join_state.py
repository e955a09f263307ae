"""The state of a stream-stream join: the rows of both inputs that may still find a match, in runs.

The rows of a side are a part of the operator's state. Their hash consists of the hash of the join key and of the lower
bits of the time, so the rows of a key within a range of times follow one another in a run. A run drops the rows whose
time has passed when it is merged; the commit deletes runs without other rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import AsyncConnection

from penstock.db.statements import Statements
from penstock.engine.cycle_plan import CyclePlan
from penstock.engine.kernels.arrays import IntArray, mask, values_of
from penstock.engine.kernels.equality import equal_values
from penstock.engine.kernels.row_groups import expand_ranges, match_ranges
from penstock.engine.state.compaction import Merge
from penstock.engine.state.operator_state import OperatorState, StateConfig
from penstock.engine.state.run_cache import RunCache
from penstock.engine.state.run_store import PostgresRunStore, RunWriter
from penstock.engine.state.runs import HASH
from penstock.engine.worker.event_time import NO_TIME

_sql = Statements("penstock.engine.joins", "join_state.sql")
_runs = Statements("penstock.engine.state", "run_store.sql")

LEFT, RIGHT = 0, 1
#: The parts of the state: the rows of both sides, and in an outer join which left rows have found no match.
UNMATCHED = 2
#: A cycle of a join reads at most so many events and emits at most so many expired rows: its pairs pass the driver.
MAX_JOIN_EVENTS = 200_000
#: The number of shards of a join's state. It never changes.
JOIN_SHARDS = 8
#: The number of the operator under which the runs are stored.
JOIN_OPERATOR = 1
#: The number of a left row of an outer join, which no other row of the query has.
ROW_ID = "__id"
#: The columns that are stored of each side. The empty text stands for no key.
_LEFT_COLUMNS = (HASH, "__k", "__time", "__line", "__key")
_OUTER_LEFT_COLUMNS = (*_LEFT_COLUMNS, "__partition", "__offset", ROW_ID)
_RIGHT_COLUMNS = (HASH, "__k", "__time", "__line")
_RUN_BYTES, _PIECE_BYTES = 64 * 1024 * 1024, 1024 * 1024

_GROUP_BITS = np.int64(-(2**32))
_TIME_BITS = np.int64(2**32 - 1)
#: The range of a join has about so many different values of the time's lower bits.
_RANGE_BITS = 7


class Matches(NamedTuple):
    """Pairs of a new row and another one: the position of the first and the position, or the row, of the second."""

    positions: IntArray
    others: Any


@dataclass(frozen=True)
class JoinState:
    """The state of one query, and the time range of its join."""

    config: StateConfig
    before_us: int
    after_us: int
    #: Whether left rows without a match are emitted when they expire.
    is_outer: bool

    @property
    def query(self) -> int:
        return self.config.query_id

    def open_on(
        self,
        conn: psycopg.Connection[Any],
        parts: Sequence[int],
        cache: RunCache | None = None,
        writer: RunWriter | None = None,
    ) -> OperatorState:
        """Some parts of the state, outside a task."""
        config = self.config
        store = PostgresRunStore(
            config.conninfo, config.query_id, config.operator, writer, cache or RunCache(), conn, tuple(parts)
        )
        return OperatorState(store, range(config.shards), config.shards)

    # Times

    def reach_us(self, side: int) -> int:
        """How much later than a row of a side the last row is that it can be joined with."""
        return self.after_us if side == LEFT else self.before_us

    def _row_hashes(self, keys: IntArray, times: IntArray) -> IntArray:
        """The hashes of rows in the state, from those of their join keys and their times."""
        return (keys & _GROUP_BITS) | ((times >> self._time_shift) & _TIME_BITS)

    @property
    def _time_shift(self) -> int:
        return max(0, (self.before_us + self.after_us).bit_length() - _RANGE_BITS)

    def _partner_times(self, side: int, times: IntArray) -> tuple[IntArray, IntArray]:
        """The first and the last time of the rows that rows of a side can be joined with."""
        return times - self.reach_us(1 - side), times + self.reach_us(side)

    def _partner_hashes(self, keys: IntArray, low_us: IntArray, high_us: IntArray) -> tuple[IntArray, IntArray]:
        """The ranges of the hashes of rows with these keys and times. There may be other rows in them."""
        low, high, groups = low_us >> self._time_shift, high_us >> self._time_shift, keys & _GROUP_BITS
        # The bits of the time start over from zero after a long time: then all rows of the key are looked at.
        starts_over = (low >> 32) != (high >> 32)
        return (
            groups | np.where(starts_over, 0, low & _TIME_BITS),
            groups | np.where(starts_over, _TIME_BITS, high & _TIME_BITS),
        )

    # Matches

    def match_new(self, left: pa.Table, right: pa.Table) -> Matches:
        """The pairs of new rows."""
        low_us, high_us = self._partner_times(LEFT, values_of(left.column("__time")))
        low, high = self._partner_hashes(values_of(left.column(HASH)), low_us, high_us)
        times = values_of(right.column("__time"))
        hashes = self._row_hashes(values_of(right.column(HASH)), times)
        order = np.argsort(hashes, kind="stable")
        others, positions = expand_ranges(*match_ranges(hashes[order], low, high))
        others = order[others]
        times = times[others]
        keep = (times >= low_us[positions]) & (times <= high_us[positions])
        positions, others = positions[keep], others[keep]
        is_equal = equal_values(_keys(left, positions), _keys(right, others))
        return Matches(positions[is_equal], others[is_equal])

    def match_stored(self, side: int, rows: pa.Table, state: OperatorState, closed_us: int | None) -> Matches:
        """The pairs of new rows of a side and the stored rows of the other one that have not expired."""
        low_us, high_us = self._partner_times(side, values_of(rows.column("__time")))
        low, high = self._partner_hashes(values_of(rows.column(HASH)), low_us, high_us)
        order = np.argsort(low)
        stored, numbers = state.find_ranges(1 - side, low[order], high[order])
        if stored is None:
            return Matches(numbers, None)
        positions, times = order[numbers], values_of(stored.column("__time"))
        since_us = NO_TIME if closed_us is None else closed_us - self.reach_us(1 - side)
        keep = (times >= np.maximum(low_us[positions], since_us)) & (times <= high_us[positions])
        keep &= equal_values(_keys(rows, positions), stored.column("__k"))
        return Matches(positions[keep], mask(stored, keep))

    def stored_form(self, rows: pa.Table) -> pa.Table:
        """The rows with the hashes of the state instead of those of their keys, and with lines of any length."""
        hashes = self._row_hashes(values_of(rows.column(HASH)), values_of(rows.column("__time")))
        rows = rows.set_column(rows.column_names.index(HASH), HASH, pa.array(hashes))
        return rows.set_column(
            rows.column_names.index("__line"), "__line", rows.column("__line").cast(pa.large_string())
        )

    def store(self, side: int, rows: pa.Table, state: OperatorState, since_us: int | None) -> None:
        """Add the new rows of a side. Rows before ``since_us`` may leave the state."""
        columns = _RIGHT_COLUMNS if side == RIGHT else _OUTER_LEFT_COLUMNS if self.is_outer else _LEFT_COLUMNS
        merge = Merge(time="__time", since_us=since_us, run_bytes=_RUN_BYTES, piece_bytes=_PIECE_BYTES)
        state.add(side, self.stored_form(rows).select(list(columns)), merge)

    # Expiry

    def since_us(self, side: int, plan: CyclePlan) -> int | None:
        """The time before which the stored rows of a side are of no use after a cycle; None if none has expired.

        In an outer join, left rows stay until they have been emitted or have found a match.
        """
        if side == LEFT and self.is_outer:
            return None if plan.expired_until is None else plan.expired_until[0]
        return None if plan.closed_us is None else plan.closed_us - self.reach_us(side)

    async def apply(
        self, conn: AsyncConnection[Any], plan: CyclePlan, token: str, flush_watermark_us: int | None
    ) -> None:
        """Apply the changes of a cycle, and delete runs of which all rows have expired.

        ``flush_watermark_us`` is the watermark after a flush, which computes nothing.
        """
        limits = {side: self.since_us(side, plan) for side in (LEFT, RIGHT)}
        if self.is_outer and plan.expired_rows and not token:
            limits[LEFT] = None  # nothing was emitted
        if flush_watermark_us is not None:
            limits[RIGHT] = flush_watermark_us - self.before_us
            if not self.is_outer:
                limits[LEFT] = flush_watermark_us - self.after_us
        params = {"query": self.query, "left": limits[LEFT], "right": limits[RIGHT]}
        await conn.execute(_sql["delete_expired_runs"], params)
        await conn.execute(_runs["apply_runs"], {"query": self.query, "token": token})

    async def last_end(self, conn: AsyncConnection[Any]) -> int | None:
        """The watermark at which all rows have expired; None without rows."""
        params = {"query": self.query, "before": self.before_us, "after": self.after_us}
        row = await (await conn.execute(_sql["last_end"], params)).fetchone()
        (end_us,) = row or (None,)
        return end_us


def _keys(rows: pa.Table, positions: IntArray) -> pa.ChunkedArray:
    return rows.column("__k").take(pa.array(positions))

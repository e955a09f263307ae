"""Divides the rows of a windowed job: partial aggregates, late events, and sessions that were extended or merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.compile.windows.exact_sums import add_high_digits
from penstock.engine.worker.task_reports import EventRef


class WatermarkScope(Enum):
    """Which partitions advance the watermark that closes a window."""

    #: Only the partition that the window's key is in.
    PARTITION = "partition"
    #: Like PARTITION, but all partitions for windows of events without a key, which are in all partitions.
    KEYLESS_GLOBAL = "keyless global"
    #: All partitions: the window's key is not the queue's.
    GLOBAL = "global"


#: Stands for all partitions, where they close windows together.
ALL_PARTITIONS = 0

_STAGED_COLUMNS = {
    "__group_key": "key",
    "__window_start": "start_us",
    "__window_end": "end_us",
    "__is_late": "is_late",
    "__window_partition": "partition_id",
}


class SessionMove(NamedTuple):
    """A stored session that became part of another one, or a closed one that is corrected."""

    key: str
    start_us: int
    end_us: int
    partition_id: int
    old_start_us: int
    old_end_us: int
    was_closed: bool

    @property
    def is_extended(self) -> bool:
        return (self.start_us, self.end_us) != (self.old_start_us, self.old_end_us)


_MOVE_COLUMNS = (
    "__group_key",
    "__window_start",
    "__window_end",
    "__window_partition",
    "__old_start",
    "__old_end",
    "__old_is_closed",
)


@dataclass(frozen=True)
class Partials:
    #: Partial aggregates with the columns of the staging table.
    table: pa.Table
    #: Late events that are not counted.
    late: list[EventRef]
    moves: list[SessionMove]


def empty_partials(state_names: Sequence[str]) -> pa.Table:
    return pa.table({name: pa.array([], pa.int64()) for name in (*_STAGED_COLUMNS.values(), *state_names)})


def split_result(table: pa.Table, state_names: Sequence[str], scope: WatermarkScope) -> Partials:
    """Divide the rows of a job. ``state_names`` are the state columns of the aggregates."""
    index = table.column_names.index("__window_partition")
    table = table.set_column(index, "__window_partition", _closing_partitions(table, scope))
    moves: list[SessionMove] = []
    if "__old_start" in table.column_names:
        is_move = pc.is_valid(table.column("__old_start"))
        moved = table.filter(is_move)
        moves = list(map(SessionMove, *(moved.column(name).to_pylist() for name in _MOVE_COLUMNS)))
        table = table.filter(pc.invert(is_move))
    is_rejected = pc.is_valid(table.column("__late_partition"))
    rejected = table.filter(is_rejected)
    late = list(
        map(EventRef, rejected.column("__late_partition").to_pylist(), rejected.column("__late_offset").to_pylist())
    )
    if late:
        table = table.filter(pc.invert(is_rejected))
    columns = [table.column(name) for name in _STAGED_COLUMNS]
    columns += [add_high_digits(table, name) for name in state_names]
    return Partials(pa.table(columns, names=[*_STAGED_COLUMNS.values(), *state_names]), late, moves)


def _closing_partitions(table: pa.Table, scope: WatermarkScope) -> pa.ChunkedArray:
    """The partition whose watermark closes each window."""
    partition = table.column("__window_partition")
    if scope is WatermarkScope.GLOBAL:
        return pa.chunked_array([pa.array([ALL_PARTITIONS] * table.num_rows, pa.int64())])
    if scope is WatermarkScope.KEYLESS_GLOBAL:
        return pc.if_else(pc.equal(table.column("__group_key"), ""), pa.scalar(ALL_PARTITIONS, pa.int64()), partition)
    return partition

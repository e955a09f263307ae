"""What Spark gives for a cycle, sorted: partials to merge, events that came late, sessions that have become others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


class Closing(Enum):
    """Whose time closes a window."""

    #: That of the partition that its key is in.
    BY_PARTITION = "by partition"
    #: The same, but events without a key lie in all partitions, and so does their window.
    KEYLESS_TOGETHER = "keyless together"
    #: That of all partitions together: its key is not the queue's.
    TOGETHER = "together"


@dataclass(frozen=True)
class Partials:
    """The result of a cycle's job."""

    #: With the columns of the temporary table that they are copied to.
    table: pa.Table
    #: Partition and offset of events that are not counted.
    late: list[tuple[int, int]]
    moves: list[dict[str, Any]]


def staged(table: pa.Table, kept: Sequence[str], closing: Closing) -> Partials:
    """Sort a job's rows. Windows that all partitions close together belong to none: 0."""
    table = table.set_column(table.column_names.index("__p"), "__p", _closers(table, closing))
    moves: list[dict[str, Any]] = []
    if "__old_ws" in table.column_names:
        moved = pc.is_valid(table.column("__old_ws"))
        names = ["__k", "__ws", "__we", "__p", "__old_ws", "__old_we", "__old_closed"]
        moves = table.filter(moved).select(names).to_pylist()
        table = table.filter(pc.invert(moved))
    is_late = pc.is_valid(table.column("__ref_p"))
    refs = table.filter(is_late)
    late = list(zip(refs.column("__ref_p").to_pylist(), refs.column("__ref_o").to_pylist(), strict=True))
    if late:
        table = table.filter(pc.invert(is_late))
    columns = [table.column(name) for name in ("__k", "__ws", "__we", "__late", "__p", *kept)]
    return Partials(pa.table(columns, names=["key", "ws", "we", "late", "p", *kept]), late, moves)


def _closers(table: pa.Table, closing: Closing) -> pa.ChunkedArray:
    """The partition by whose time each window closes."""
    partition = table.column("__p")
    if closing is Closing.TOGETHER:
        return pa.chunked_array([pa.array([0] * table.num_rows, pa.int64())])
    if closing is Closing.KEYLESS_TOGETHER:
        return pc.if_else(pc.equal(table.column("__k"), ""), pa.scalar(0, pa.int64()), partition)
    return partition

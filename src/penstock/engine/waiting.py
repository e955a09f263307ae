"""The state of a join: what waits of either side, in a table of the query's own."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.ipc

from penstock.db.arrays import numbers
from penstock.db.statements import Statements
from penstock.engine.staging import as_csv

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.engine.reports import Report

_sql = Statements("penstock.engine", "waiting.sql")

LEFT, RIGHT = 0, 1
#: An event that begins to wait, as it is copied into the table.
FRESH = pa.schema(
    [
        ("side", pa.int16()),
        ("key", pa.string()),
        ("time_us", pa.int64()),
        ("partition_id", pa.int64()),
        ("event_offset", pa.int64()),
        ("event_key", pa.string()),
        ("line", pa.string()),
        ("is_matched", pa.bool_()),
    ]
)


@dataclass(frozen=True)
class Kept:
    """What a cycle changes: events that begin to wait, and those of the left that are in a pair now."""

    fresh: pa.Table
    #: Key, time and id.
    matched: Sequence[tuple[str, int, int]]


@dataclass(frozen=True)
class WaitingTable:
    """The table of one query, and how long its rows wait."""

    query: int
    before_us: int
    after_us: int
    #: Whether events of the left that are in no pair are sent on.
    sends_alone: bool

    def statement(self, name: str) -> str:
        """A statement of waiting.sql for this query."""
        return _sql[name].replace("{id}", str(int(self.query)))

    def params(self, **more: Any) -> dict[str, Any]:
        """What its statements are told."""
        return {"query": self.query, "before": self.before_us, "after": self.after_us, **more}

    async def stage(self, conn: AsyncConnection[Any], kept: Kept | None) -> None:
        """Bring a cycle's events to the database, before anything is locked."""
        if kept is not None and kept.fresh.num_rows:
            async with conn.cursor().copy(self.statement("copy")) as copy:
                await copy.write(as_csv(kept.fresh))

    async def apply(
        self, conn: AsyncConnection[Any], kept: Kept | None, closed_us: int | None, flushed_us: int | None
    ) -> None:
        """What a cycle changes. ``closed_us`` is how far time had come when it began: what it went by.

        A cycle for which nothing was computed has sent nothing on, so what is in no pair is not let go with it.
        """
        if kept is None:
            closed_us = None if self.sends_alone else flushed_us
        if closed_us is not None:
            await conn.execute(self.statement("expire"), self.params(closed=closed_us))
        if kept is None:
            return
        if kept.matched:
            marks = {
                "keys": [key for key, _, _ in kept.matched],
                "times": numbers([time for _, time, _ in kept.matched]),
                "ids": numbers([row for _, _, row in kept.matched]),
            }
            await conn.execute(self.statement("match"), marks)
        if kept.fresh.num_rows:
            await conn.execute(self.statement("keep"))


def pack(table: pa.Table) -> bytes:
    """Events that begin to wait, as a task reports them."""
    buffer = io.BytesIO()
    options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
    with pyarrow.ipc.new_stream(buffer, table.schema, options=options) as writer:
        writer.write_table(table)
    return buffer.getvalue()


def gathered(reports: Iterable[Report]) -> Kept:
    """What all tasks of a cycle said."""
    tables, matched = [], []
    for report in reports:
        if report.fresh:
            tables.append(pyarrow.ipc.open_stream(report.fresh).read_all())
        matched += [(key, time, row) for key, time, row in report.matched]
    return Kept(pa.concat_tables(tables) if tables else FRESH.empty_table(), matched)

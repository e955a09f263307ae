"""The state of a join: what waits of either side, in a table of the query's own."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.ipc

from penstock.db.pg_arrays import numbers
from penstock.db.statements import Statements
from penstock.engine.arrow_csv import as_csv
from penstock.engine.worker.event_time import to_moment
from penstock.log.event import Delivery, Event, StoredChunk
from penstock.log.storage import chunk

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.engine.worker.reports import Report

_sql = Statements("penstock.engine.joins", "state.sql")

LEFT, RIGHT = 0, 1
#: So many events are in one cycle of a join at the most, and so many are sent on by it that are in no pair: what begins
#: to wait, and what goes on, goes over the driver.
MOST_EVENTS = 200_000
#: What has expired and is not sent on leaves in portions: a cycle deletes as many rows of either side as it adds, and
#: so many more. So there are fewer after each, and none takes long because time has come far at once.
PORTION = 20_000
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
    #: How many of the left went on in no pair: those that have expired, the oldest first.
    alone: int = 0


@dataclass(frozen=True)
class Waited:
    """An event of the left that has expired in no pair, as it waited."""

    queue_id: int
    partition_id: int
    offset: int
    key: str | None
    time_us: int
    line: str

    def as_event(self) -> Event:
        """What is left of the event where its queue has it no more."""
        delivery = Delivery("", "", self.partition_id, is_lane=False)
        line = self.line.encode()
        columns = chunk.Columns(line, 1, [self.key])
        return Event(delivery, StoredChunk.of(columns, [line], self.offset, to_moment(self.time_us)), self.offset)


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

    def creation(self) -> list[str]:
        """What makes the table, or makes that of a version before like it."""
        return [self.statement(name) for name in ("create", "index_alone", "index_rest", "drop_times")]

    def params(self, **more: Any) -> dict[str, Any]:
        """What its statements are told."""
        return {"query": self.query, "before": self.before_us, "after": self.after_us, **more}

    async def prepare(self, conn: AsyncConnection[Any]) -> None:
        """Make a connection ready for the commits of cycles."""
        for name in ("stage", "look_up"):
            await conn.execute(self.statement(name))

    async def stage(self, conn: AsyncConnection[Any], kept: Kept | None) -> None:
        """Bring a cycle's events to the database, before anything is locked."""
        if kept is not None and kept.fresh.num_rows:
            async with conn.cursor().copy(self.statement("copy")) as copy:
                await copy.write(as_csv(kept.fresh))

    async def apply(
        self, conn: AsyncConnection[Any], kept: Kept | None, closed_us: int | None, flushed_us: int | None
    ) -> None:
        """What a cycle changes. ``closed_us`` is how far time had come when it began: what it went by.

        What is in no pair is let go as far as it was sent on: not by a cycle for which nothing was computed. Of the
        rest, a flush lets go of all, and any other cycle of a portion.
        """
        if kept is None:
            if flushed_us is not None:
                flushed = self.params(closed=flushed_us, sends_alone=self.sends_alone)
                await conn.execute(self.statement("flush"), flushed)
            return
        if closed_us is not None:
            most = PORTION + kept.fresh.num_rows
            alone = kept.alone if self.sends_alone else most
            await conn.execute(self.statement("expire"), self.params(closed=closed_us, most=most, alone=alone))
        if kept.matched:
            marks = {
                "keys": [key for key, _, _ in kept.matched],
                "times": numbers([time for _, time, _ in kept.matched]),
                "ids": numbers([row for _, _, row in kept.matched]),
            }
            await conn.execute(self.statement("match"), marks)
        if kept.fresh.num_rows:
            await conn.execute(self.statement("keep"))

    async def oldest_alone(self, conn: AsyncConnection[Any]) -> Waited | None:
        """The event that would be the first to be sent on in no pair."""
        row = await (await conn.execute(self.statement("alone"), self.params(limit=1))).fetchone()
        if row is None:
            return None
        of = await (await conn.execute(self.statement("queue_of"), {"partition": row[0]})).fetchone()
        return Waited(0 if of is None else of[0], *row)


def pack(table: pa.Table) -> bytes:
    """Events that begin to wait, as a task reports them."""
    buffer = io.BytesIO()
    options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
    with pyarrow.ipc.new_stream(buffer, table.schema, options=options) as writer:
        writer.write_table(table)
    return buffer.getvalue()


def gathered(reports: Iterable[Report]) -> Kept:
    """What all tasks of a cycle said."""
    tables, matched, alone = [], [], 0
    for report in reports:
        alone += report.alone
        if report.fresh:
            tables.append(pyarrow.ipc.open_stream(report.fresh).read_all())
        matched += [(key, time, row) for key, time, row in report.matched]
    return Kept(pa.concat_tables(tables) if tables else FRESH.empty_table(), matched, alone)

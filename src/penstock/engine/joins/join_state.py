"""The state of a stream-stream join: the rows of both inputs that may still find a match, in a table per query."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.ipc
from psycopg import AsyncConnection

from penstock.db.pg_arrays import int_array
from penstock.db.statements import Statements
from penstock.engine.results.arrow_csv import to_csv
from penstock.engine.worker.event_time import to_timestamp
from penstock.engine.worker.task_reports import TaskReport
from penstock.log.event import Delivery, Event
from penstock.log.storage.chunk import ChunkColumns, StoredChunk

_sql = Statements("penstock.engine.joins", "join_state.sql")

LEFT, RIGHT = 0, 1
#: A cycle of a join reads at most so many events and emits at most so many expired rows, since both pass the driver.
MAX_JOIN_EVENTS = 200_000
#: The columns of a row that is copied into the table.
JOIN_ROW_SCHEMA = pa.schema(
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
class JoinStateChanges:
    #: New rows, with the columns of JOIN_ROW_SCHEMA.
    added_rows: pa.Table
    #: Key, time and id of stored left rows of an outer join that found a match.
    matched_rows: Sequence[tuple[str, int, int]]
    #: How many expired left rows the cycle emits without a match, oldest first.
    expired_rows: int = 0


@dataclass(frozen=True)
class ExpiredEvent:
    """An event of the left input that expired without a match."""

    queue_id: int
    partition_id: int
    offset: int
    key: str | None
    time_us: int
    line: str

    def as_event(self) -> Event:
        """Return the event as a dead letter needs it. Its queue may have deleted it."""
        delivery = Delivery("", "", self.partition_id, is_key_partition=False)
        line = self.line.encode()
        columns = ChunkColumns(line, 1, [self.key])
        stored = StoredChunk.of(columns, [line], self.offset, to_timestamp(self.time_us))
        return Event(delivery, stored, self.offset)


@dataclass(frozen=True)
class JoinState:
    """The table of one query, and the time range of its join."""

    query: int
    before_us: int
    after_us: int
    #: Whether left rows without a match are emitted when they expire.
    is_outer: bool
    #: Each cycle deletes so many more expired rows of each kind than it adds. So the table shrinks, and no cycle takes
    #: long after the watermark has jumped.
    expiry_batch: int = MAX_JOIN_EVENTS // 10

    def statement(self, name: str) -> str:
        """Return a statement of state.sql for this query's table."""
        return _sql[name].replace("{id}", str(int(self.query)))

    def create_statements(self) -> list[str]:
        return [self.statement(name) for name in ("create", "index_unmatched", "index_others")]

    def params(self, **more: Any) -> dict[str, Any]:
        """Return the parameters that the statements have in common, and others."""
        return {"query": self.query, "before": self.before_us, "after": self.after_us, **more}

    async def prepare(self, conn: AsyncConnection[Any]) -> None:
        for name in ("create_staging_table", "prefer_index_scans"):
            await conn.execute(self.statement(name))

    async def stage(self, conn: AsyncConnection[Any], changes: JoinStateChanges | None) -> None:
        """Copy new rows to the staging table, before the commit locks anything."""
        if changes is not None and changes.added_rows.num_rows:
            async with conn.cursor().copy(self.statement("copy_rows")) as copy:
                await copy.write(to_csv(changes.added_rows))

    async def apply(
        self,
        conn: AsyncConnection[Any],
        changes: JoinStateChanges | None,
        watermark_us: int | None,
        flush_watermark_us: int | None,
    ) -> None:
        """Apply the changes of a cycle, and delete expired rows.

        ``watermark_us`` is the watermark at the start of the cycle, by which it has emitted expired rows. A cycle
        deletes unmatched left rows only as far as it has emitted them. Of all others, a flush, which computes nothing,
        deletes all expired rows, and any other cycle deletes a batch.
        """
        if changes is None:
            if flush_watermark_us is not None:
                params = self.params(watermark=flush_watermark_us, is_outer=self.is_outer)
                await conn.execute(self.statement("delete_all_expired"), params)
            return
        if watermark_us is not None:
            limit = self.expiry_batch + changes.added_rows.num_rows
            unmatched = changes.expired_rows if self.is_outer else limit
            params = self.params(watermark=watermark_us, limit=limit, unmatched=unmatched)
            await conn.execute(self.statement("delete_expired"), params)
        if changes.matched_rows:
            keys, times, ids = zip(*changes.matched_rows, strict=True)
            params = {"keys": list(keys), "times": int_array(times), "ids": int_array(ids)}
            await conn.execute(self.statement("mark_matched"), params)
        if changes.added_rows.num_rows:
            await conn.execute(self.statement("insert_staged"))

    async def oldest_expired(self, conn: AsyncConnection[Any]) -> ExpiredEvent | None:
        """Return the event that would be emitted first without a match."""
        row = await (await conn.execute(self.statement("expired_rows"), self.params(limit=1))).fetchone()
        if row is None:
            return None
        partition_id, offset, key, time_us, line = row
        queue = await (await conn.execute(self.statement("find_queue"), {"partition": partition_id})).fetchone()
        return ExpiredEvent(0 if queue is None else queue[0], partition_id, offset, key, time_us, line)


def encode_rows(rows: pa.Table) -> bytes:
    """Encode new rows for the report of a task."""
    buffer = io.BytesIO()
    options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
    with pyarrow.ipc.new_stream(buffer, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return buffer.getvalue()


def collect_changes(reports: Sequence[TaskReport]) -> JoinStateChanges:
    """Combine the changes that the tasks of a cycle report."""
    added = [pyarrow.ipc.open_stream(report.added_rows).read_all() for report in reports if report.added_rows]
    return JoinStateChanges(
        pa.concat_tables([JOIN_ROW_SCHEMA.empty_table(), *added]),
        [row for report in reports for row in report.matched_rows],
        sum(report.expired_rows for report in reports),
    )

"""``df.write`` and ``df.writeStream`` to ``format("penstock")``: tasks stage, one commit makes it visible, once.

A stream is known by the id that its checkpoint holds, and its writes by the number of the batch. So a batch that is
repeated after a crash is recognised, and a stream that begins anew, with a new checkpoint, is not taken for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.connector.database import Conninfo
from penstock.connector.options import Written
from penstock.connector.read.offsets import Places
from penstock.connector.retrying_connection import Line
from penstock.connector.write.rows import Rows
from penstock.connector.write.staging import opened, stage
from penstock.core.errors import InvalidRequest, NotFound, QueueFull
from penstock.log.log import Log
from penstock.log.queue import Queue
from penstock.log.write.staged_writes import Write
from penstock.log.write.upload import Staged

if TYPE_CHECKING:
    import pyarrow as pa

_logger = logging.getLogger("penstock.connector")

#: What Spark tells the tasks of a stream: the id that its checkpoint holds, and the number of the batch.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@dataclass(frozen=True)
class Part(WriterCommitMessage):
    """What a task says to the driver: of which write it is, and what it has staged."""

    write: Write
    staged: Staged | None


@dataclass(frozen=True)
class Sink:
    """Where a write goes."""

    database: Conninfo
    written: Written
    rows: Rows

    def find(self) -> None:
        """In the driver: raise NotFound if there is no such queue, before any task has anything to do."""
        with closing(Line(self.database)) as line:
            line.ask(lambda conn: Places(conn, ()).queue(self.written.queue))

    def stage(self, write: Write, batches: Iterator[pa.RecordBatch]) -> Part:
        """In a task: store its rows, unseen."""
        return Part(write, asyncio.run(stage(self.database, self.written.queue, self.rows, write, batches)))

    def commit(self, write: Write, parts: Sequence[Part | None]) -> None:
        """In the driver: make all of it visible."""
        staged = [part.staged for part in parts if part is not None and part.staged is not None]
        if staged:
            asyncio.run(self._commit(write, staged))

    def give_up(self, write: Write) -> None:
        """In the driver: nothing of it will be seen."""
        asyncio.run(self._give_up(write))

    async def _commit(self, write: Write, staged: list[Staged]) -> None:
        async with opened(self.database) as log:
            queue = await log.queue(self.written.queue)
            if not await log.writes.was_written(queue, write) and not await self._admitted(log, queue, staged):
                staged = []
            if not await log.writes.commit(queue, write, staged) and not write.run:
                # Nobody has said who counts: it may as well be one who has begun to count anew.
                _logger.warning(
                    "version %d of %r to queue %r is taken for a repetition of what it has written before, and is left "
                    "out; if it is something new, as under a new checkpoint, take another txnAppId, or count on",
                    write.version,
                    write.writer,
                    queue.name,
                )

    async def _admitted(self, log: Log, queue: Queue, staged: list[Staged]) -> bool:
        """Wait until the queue has room; False, if it is one that drops what it is too full for."""
        events = sum(part.events for part in staged)
        deadline = time.monotonic() + self.written.full_seconds
        while True:
            try:
                return await log.admit(queue, events)
            except QueueFull as full:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
                await asyncio.sleep(min(full.retry_after, left))

    async def _give_up(self, write: Write) -> None:
        # Without the queue there is nothing left of it, and why the write has failed is for its tasks to say.
        async with opened(self.database) as log:
            with suppress(NotFound):
                await log.writes.give_up(await log.queue(self.written.queue), write)


class QueueWriter(DataSourceArrowWriter):
    """One write of a DataFrame. Without a transaction's name it gets one that nobody else has.

    In a `foreachBatch` it is a stream that counts, as far as its tasks know of it.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        written = sink.written
        if written.writer is None:
            self._write = Write(f"write {uuid.uuid4()}", 0, is_kept=False)
        else:
            self._write = Write(written.writer, written.version or 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Part:
        """In a task."""
        return self._sink.stage(replace(self._write, run=_told(_QUERY_ID) or ""), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """When all tasks are done."""
        parts = _parts(messages)
        if parts:
            self._sink.commit(parts[0].write, parts)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """When one has failed for good."""
        self._sink.give_up(self._write)


class QueueStreamWriter(DataSourceStreamArrowWriter):
    """The batches of a stream, one write each."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Part:
        """In a task: only there is known which stream and which batch it is."""
        query, batch = _told(_QUERY_ID), _told(_BATCH_ID)
        if not query or not batch:
            raise InvalidRequest("this is a task of no stream: Spark has not said of which query and batch it is")
        return self._sink.stage(Write(self._sink.written.writer or query, int(batch), query), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """When all tasks of a batch are done."""
        parts = _parts(messages)
        if parts:
            self._sink.commit(parts[0].write, parts)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """When one has failed for good."""
        parts = _parts(messages)
        if parts:
            self._sink.give_up(parts[0].write)


def _told(name: str) -> str | None:
    """In a task: what Spark says of the stream that it is of."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[Part]:
    return [message for message in messages if isinstance(message, Part)]

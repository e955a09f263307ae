"""``df.write`` and ``df.writeStream`` to ``format("penstock")``: tasks stage rows, and one commit makes them visible.

A stream is identified by the id in its checkpoint, and a write by the number of its batch. So a batch that is repeated
after a crash is recognized, and a stream with a new checkpoint is another stream.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.connector.database_url import Conninfo, RetryingConnection
from penstock.connector.log_session import open_log
from penstock.connector.options import WriteOptions
from penstock.connector.read.offsets import QueueOffsets
from penstock.connector.write.column_mapping import EventRows
from penstock.core.backoff import Backoff, RetryTimer
from penstock.core.errors import InvalidRequest, NotFound, QueueFull
from penstock.core.wait_notice import WaitNotice
from penstock.log.log import Log
from penstock.log.queue import Queue
from penstock.log.write.encode.batch import Batch
from penstock.log.write.staged_writes import WriteVersion
from penstock.log.write.upload import StagedUpload

if TYPE_CHECKING:
    import pyarrow as pa


async def stage_rows(
    database: Conninfo, queue: str, rows: EventRows, write: WriteVersion, batches: Iterable[pa.RecordBatch]
) -> StagedUpload | None:
    """Stage the rows of a task; return None if there are none."""
    pending = (batch for batch in batches if batch.num_rows)
    batch = next(pending, None)
    if batch is None:
        return None
    async with open_log(database) as log:
        target = await log.queue(queue)
        _check_ids(target, rows)
        upload = await log.staged_writes.begin(target, write)
        try:
            while batch is not None:
                await upload.add(await log.encode(Batch(queue, rows.to_events(batch, target.key_field))))
                batch = next(pending, None)
            return await upload.finish_staging()
        except BaseException:
            await upload.abandon()
            raise


def _check_ids(queue: Queue, rows: EventRows) -> None:
    if "id" in rows.columns and queue.dedup_window_seconds > 0:
        raise InvalidRequest(
            f"queue {queue.name!r} deduplicates events by id for {queue.dedup_window_seconds:g} s, which Spark writes "
            "do not support: leave out the column 'id', or set dedup_window_seconds of the queue to 0. "
            "A repeated write is recognized by its transaction"
        )


_logger = logging.getLogger("penstock.connector")

#: Local properties of the tasks of a stream: the id in its checkpoint, and the number of the batch.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """The message of a task to the driver: its write, and the rows that it has staged."""

    write: WriteVersion
    staged: StagedUpload | None


@dataclass(frozen=True)
class WriteTarget:
    """The queue of a write."""

    database: Conninfo
    options: WriteOptions
    rows: EventRows

    def check_queue(self) -> None:
        """Raise NotFound in the driver if the queue does not exist."""
        with closing(RetryingConnection(self.database)) as connection:
            connection.run(lambda conn: QueueOffsets(conn, ()).find_queue(self.options.queue))

    def stage(self, write: WriteVersion, batches: Iterator[pa.RecordBatch]) -> TaskCommit:
        staged = asyncio.run(stage_rows(self.database, self.options.queue, self.rows, write, batches))
        return TaskCommit(write, staged)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        commits = _task_commits(messages)
        staged = [each.staged for each in commits if each.staged is not None]
        if staged:
            asyncio.run(self._commit(commits[0].write, staged))

    def abort(self, write: WriteVersion) -> None:
        asyncio.run(self._abort(write))

    async def _commit(self, write: WriteVersion, staged: list[StagedUpload]) -> None:
        async with open_log(self.database) as log:
            queue = await log.queue(self.options.queue)
            is_committed = await log.staged_writes.is_committed(queue, write)
            if not is_committed and not await self._wait_for_room(log, queue, staged):
                staged = []
            if not await log.staged_writes.commit(queue, write, staged) and not write.run:
                # Without the id of a run, another writer that starts to count again looks the same.
                _logger.warning(
                    "version %d of %r is not newer than its last write to queue %r, so it is skipped as a repetition; "
                    "for a new write, for example with a new checkpoint, use another txnAppId or a higher txnVersion",
                    write.version,
                    write.writer,
                    queue.name,
                )

    async def _wait_for_room(self, log: Log, queue: Queue, staged: list[StagedUpload]) -> bool:
        """Wait until the queue has room. Return False if the queue drops events when it is full."""
        events = sum(upload.events for upload in staged)
        retries = RetryTimer(Backoff(), self.options.full_seconds)
        notice = WaitNotice(_logger.warning)
        while True:
            try:
                return await log.admit(queue, events)
            except QueueFull as full:
                pause = retries.next_pause(full.retry_after)
                if pause is None:
                    raise
                notice.waits(full, pause)
                await asyncio.sleep(pause)

    async def _abort(self, write: WriteVersion) -> None:
        async with open_log(self.database) as log:
            # A deleted queue has no staged rows, and the tasks report why the write failed.
            with suppress(NotFound):
                await log.staged_writes.abort(await log.queue(self.options.queue), write)


class QueueWriter(DataSourceArrowWriter):
    """Writes a DataFrame once. Without ``txnAppId`` and ``txnVersion``, the write has a unique name."""

    def __init__(self, target: WriteTarget) -> None:
        self.target = target
        options = target.options
        if options.writer is None:
            self._write = WriteVersion(f"write {uuid.uuid4()}", 0, is_kept=False)
        else:
            self._write = WriteVersion(options.writer, options.version or 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Stage the rows of a task. In a ``foreachBatch``, the task knows the id of the stream."""
        return self.target.stage(replace(self._write, run=_local_property(_QUERY_ID) or ""), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.target.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.target.abort(self._write)


class QueueStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, target: WriteTarget) -> None:
        self.target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Stage the rows of a task. Only tasks know the stream and the batch."""
        query_id, batch_id = _local_property(_QUERY_ID), _local_property(_BATCH_ID)
        if not query_id or not batch_id:
            raise InvalidRequest("Spark has not set the query and the batch of this task: use df.writeStream")
        write = WriteVersion(self.target.options.writer or query_id, int(batch_id), query_id)
        return self.target.stage(write, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.target.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        commits = _task_commits(messages)
        if commits:
            self.target.abort(commits[0].write)


def _local_property(name: str) -> str | None:
    """Return a property that Spark has set for the current task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def _task_commits(messages: Sequence[WriterCommitMessage | None]) -> list[TaskCommit]:
    return [message for message in messages if isinstance(message, TaskCommit)]

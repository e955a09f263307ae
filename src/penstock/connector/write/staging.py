"""Stages the rows of a task as chunks, in a Spark worker. Readers see them when the write is committed."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from penstock.connector.database import Conninfo
from penstock.connector.log_session import open_log
from penstock.connector.write.rows import EventRows
from penstock.core.errors import InvalidRequest
from penstock.log.queue import Queue
from penstock.log.write.batch import Batch
from penstock.log.write.staged_writes import WriteVersion
from penstock.log.write.upload import StagedUpload


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

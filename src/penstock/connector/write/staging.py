"""In a Spark worker: rows become chunks, staged where nobody sees them until the write is committed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pyarrow as pa

from penstock.connector.database import Conninfo
from penstock.connector.write.rows import Rows
from penstock.core.errors import InvalidRequest
from penstock.core.settings import Settings
from penstock.db.pool import Database
from penstock.log.log import Batch, Log
from penstock.log.queue import Queue
from penstock.log.write.staged_writes import Write
from penstock.log.write.upload import Staged


@asynccontextmanager
async def opened(database: Conninfo) -> AsyncIterator[Log]:
    """The log, with the few connections that one who does one thing at a time needs."""
    settings = Settings.from_env(database_url=database.reveal(), pool_size=2, auto_upgrade=False)
    log = Log(Database(settings), retry_seconds=settings.retry_seconds)
    await log.open()
    try:
        yield log
    finally:
        await log.close()


async def stage(
    database: Conninfo, queue: str, rows: Rows, write: Write, batches: Iterable[pa.RecordBatch]
) -> Staged | None:
    """Store what a task has of a write; None if it has nothing."""
    some = (batch for batch in batches if batch.num_rows)
    first = next(some, None)
    if first is None:
        return None
    async with opened(database) as log:
        found = await log.queue(queue)
        _check(found, rows)
        upload = await log.writes.begin(found, write)
        try:
            batch: pa.RecordBatch | None = first
            while batch is not None:
                await upload.add(await log.prepare(Batch(queue, rows.lines(batch, found.key_field))))
                batch = next(some, None)
            return await upload.set_aside()
        except BaseException:
            await upload.abandon()
            raise


def _check(queue: Queue, rows: Rows) -> None:
    if rows.has_ids and queue.dedup_window_seconds > 0:
        raise InvalidRequest(
            f"queue {queue.name!r} recognises events by their ids for {queue.dedup_window_seconds:g} s, and what Spark "
            "writes is not looked up there: leave out the column 'id', or set dedup_window_seconds of the queue to 0. "
            "A write that is repeated is known by its transaction"
        )

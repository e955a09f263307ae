"""Staged writes: several tasks stage events independently, and one commit makes them visible exactly once.

A writer numbers its writes. A commit locks the row of its writer and finds there whether the version was committed
before. So a write can be repeated from the start if its result is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import AsyncConnection

from penstock.core.errors import Conflict, DatabaseUnavailable
from penstock.db.kill_backend import LostBackends
from penstock.db.pg_arrays import int_array
from penstock.db.retry import CONNECTION_ERRORS, DatabaseRetry, run_with_retry
from penstock.db.statements import Statements
from penstock.log.queue import Queue
from penstock.log.write.abandoned_uploads import discard_uploads
from penstock.log.write.upload import (
    DISCARD_SECONDS,
    QueueLayoutChanged,
    StagedUpload,
    Upload,
    UploadLost,
    Uploads,
    lock_for_publish,
    publish_rows,
)

_sql = Statements("penstock.log.write", "upload.sql")

#: How long the staged events of a task wait for the commit.
_KEEP = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class WriteVersion:
    """One write of a writer."""

    writer: str
    version: int
    #: Identifies the run that counts the versions. Another run with the same writer must not be taken for a repetition.
    run: str = ""
    #: Whether the version is remembered for more than a day.
    is_kept: bool = True


@dataclass(slots=True, eq=False)
class StagedWrites:
    uploads: Uploads

    async def begin(self, queue: Queue, write: WriteVersion) -> Upload:
        return await self.uploads.begin(queue, writer=write.writer, version=write.version, keep=_KEEP)

    async def is_committed(self, queue: Queue, write: WriteVersion) -> bool:
        """Whether the write, or a later one of its writer, was committed."""

        async def check(conn: AsyncConnection[Any]) -> bool:
            async with conn.transaction():
                return await self._claim(conn, queue, write)

        return await run_with_retry(self.uploads.pool, self.uploads.retry_seconds, check)

    async def commit(self, queue: Queue, write: WriteVersion, parts: Sequence[StagedUpload]) -> bool:
        """Make all parts visible, in order, and discard other uploads of the write.

        Return False if the write was committed before.
        """
        retry = DatabaseRetry(self.uploads.retry_seconds)
        lost_backends = LostBackends()
        while True:
            try:
                async with lost_backends.connection(self.uploads.pool) as conn:
                    is_new = await self._commit_on(conn, queue, write, parts)
                if is_new:
                    self.uploads.notifier.notify(queue.id)
                return is_new
            except QueueLayoutChanged:
                queue = await self._follow_layout(queue, parts)
            except CONNECTION_ERRORS as error:
                # The next attempt finds out whether this one was committed.
                await retry.pause(error)

    async def abort(self, queue: Queue, write: WriteVersion) -> None:
        """Delete the staged events of the write. Upkeep does it later if the database is unavailable."""

        async def delete(conn: AsyncConnection[Any]) -> None:
            async with conn.transaction():
                await self._discard_rest(conn, queue, write)

        try:
            await run_with_retry(self.uploads.pool, DISCARD_SECONDS, delete)
        except (psycopg.Error, DatabaseUnavailable):
            return

    async def _commit_on(
        self, conn: AsyncConnection[Any], queue: Queue, write: WriteVersion, parts: Sequence[StagedUpload]
    ) -> bool:
        async with conn.transaction():
            is_committed = await self._claim(conn, queue, write)
            if not is_committed:
                await self._publish(conn, queue, parts)
                events = sum(part.events for part in parts)
                await conn.execute(_sql["record_write"], self._params(queue, write, events=events))
            await self._discard_rest(conn, queue, write)
        return not is_committed

    async def _claim(self, conn: AsyncConnection[Any], queue: Queue, write: WriteVersion) -> bool:
        """Lock the row of the writer. Return whether the version was committed before."""
        params = self._params(queue, write)
        await conn.execute(_sql["claim_write"], params)
        row = await (await conn.execute(_sql["last_write"], params)).fetchone()
        if row is None:
            return False
        version, run = row
        if version < write.version:
            return False
        if run != write.run:
            raise Conflict(
                f"writer {write.writer!r} has committed version {version} to queue {queue.name!r} in another run, so "
                f"version {write.version} of this run would be taken for a repetition and dropped; continue from the "
                "checkpoint of that run, or use another writer name"
            )
        return True

    async def _publish(self, conn: AsyncConnection[Any], queue: Queue, parts: Sequence[StagedUpload]) -> None:
        upload_ids = [part.upload for part in parts]
        taken = await (await conn.execute(_sql["take"], {"uploads": int_array(upload_ids)})).fetchall()
        if len(taken) != len(upload_ids):
            raise UploadLost(
                f"staged events for queue {queue.name!r} are lost, because they waited for the commit for too long or "
                "the database crashed; write them again"
            )
        if any((part.epoch, part.segment) != (queue.epoch, queue.segment) for part in parts):
            raise QueueLayoutChanged
        await lock_for_publish(conn, queue, {target for part in parts for target in part.targets})
        for part in parts:
            await publish_rows(conn, queue, part.upload, part.targets, part.afters, self.uploads.clock)

    async def _discard_rest(self, conn: AsyncConnection[Any], queue: Queue, write: WriteVersion) -> None:
        """Delete the other uploads of the write: of tasks that ran twice, and of tasks that failed."""
        rows = await (await conn.execute(_sql["uploads_of_write"], self._params(queue, write))).fetchall()
        if rows:
            await discard_uploads(conn, queue, [upload_id for (upload_id,) in rows])

    async def _follow_layout(self, queue: Queue, parts: Sequence[StagedUpload]) -> Queue:
        current = await self.uploads.catalog.refresh(queue.name)
        if current.id != queue.id:
            raise UploadLost(
                f"queue {queue.name!r} was deleted meanwhile, and with it the staged events; write them again"
            )
        for part in parts:
            await self.uploads.move(current, part.epoch, part.segment, part.upload)
            part.segment = current.segment
        return current

    def _params(self, queue: Queue, write: WriteVersion, **more: Any) -> dict[str, Any]:
        return {
            "queue": queue.id,
            "writer": write.writer,
            "version": write.version,
            "run": write.run,
            "is_kept": write.is_kept,
            "skew": self.uploads.clock.skew,
            **more,
        }

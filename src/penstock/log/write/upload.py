"""Uploads: events are stored invisibly first, and made visible at the end in one short transaction.

The chunks are stored in the queue's own table, under a partition id that no partition has. At the end the partitions
are locked and the rows get their partition and offset. That takes milliseconds for any size, because the bodies are
stored apart (TOAST) and not rewritten. Upkeep removes what a crash leaves behind.
"""

from __future__ import annotations

import time
import uuid
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import psycopg
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from penstock.core.clock import Clock
from penstock.core.errors import Conflict, DatabaseUnavailable
from penstock.db.kill_backend import LostBackends
from penstock.db.pg_arrays import int_array
from penstock.db.retry import CONNECTION_ERRORS, DatabaseRetry, run_with_retry
from penstock.db.scalar import fetch_scalar
from penstock.db.statements import Statements, fill_placeholders
from penstock.log.catalog import Catalog
from penstock.log.notify import Notifier
from penstock.log.queue import Queue
from penstock.log.write.abandoned_uploads import ACTIVITY_SECONDS
from penstock.log.write.append import Appender
from penstock.log.write.encode.chunk_builder import build_chunks
from penstock.log.write.encode.piece import Piece
from penstock.log.write.flush import AppendRequest
from penstock.log.write.idempotency import IdempotencyKeys
from penstock.log.write.push_result import RejectedInput

_sql = Statements("penstock.log.write", "upload.sql")
_append = Statements("penstock.log.write", "append.sql")

#: Pieces are collected up to this many bytes, so that chunks are not small.
_STAGE_BYTES = 4 << 20
#: How long to try to delete the rows of an upload that is given up. Upkeep deletes them otherwise.
DISCARD_SECONDS = 1.0


class UploadLost(Conflict):
    """The staged events can no longer be made visible. None of them is stored; send them again."""


class QueueLayoutChanged(Exception):
    """The queue has another segment or other partitions than when the upload began."""


class UploadResult(msgspec.Struct, array_like=True):
    """The result of an upload, as it is stored under an idempotency key."""

    accepted: int
    replayed: bool = False
    #: The number of events that were dropped because the queue was full.
    shed: int = 0


class StagedUpload(msgspec.Struct, array_like=True):
    """The staged rows of an upload: all that another process needs to make them visible."""

    upload: int
    epoch: int
    #: The segment whose table holds the rows.
    segment: int
    events: int
    #: The partition of each row, and the number of events of the upload in that partition up to and including the row.
    targets: Sequence[int]
    afters: Sequence[int]


class Upload:
    def __init__(self, uploads: Uploads, queue: Queue, upload_id: int, keep: timedelta) -> None:
        self._uploads = uploads
        self.queue = queue
        self._id = upload_id
        self._keep = keep
        self._flush_id = uuid.uuid4()
        self._buffered: list[Piece] = []
        self._buffered_bytes = 0
        self._active_at = time.monotonic()
        # As in StagedUpload.
        self._targets = array("q")
        self._afters = array("q")
        self._partition_events: dict[int, int] = {}
        self.events = 0

    async def add(self, pieces: Sequence[Piece]) -> None:
        self._buffered += pieces
        self.events += sum([piece.columns.count for piece in pieces])
        self._buffered_bytes += sum([len(piece.columns.data) for piece in pieces])
        if self._buffered_bytes >= _STAGE_BYTES:
            await self._stage()

    async def publish(
        self,
        *,
        idempotency_key: str | None = None,
        fingerprint: bytes = b"",
        rejected: Sequence[RejectedInput] = (),
        is_shed: bool = False,
    ) -> UploadResult:
        """Make all events visible in one transaction, or return the stored result if the key was used before.

        If ``is_shed``, the events are deleted instead.
        """
        await self._stage()
        request = AppendRequest([], idempotency_key, b"upload:" + fingerprint)
        request.rejected = [(self.queue, invalid) for invalid in rejected]
        retry = DatabaseRetry(self._uploads.retry_seconds)
        lost_backends = LostBackends()
        is_unsure = False
        while True:
            try:
                async with lost_backends.connection(self._uploads.pool) as conn:
                    if is_unsure and await self._was_published(conn):
                        result = UploadResult(self.events)
                    else:
                        result = await self._publish_on(conn, request, is_shed=is_shed)
                self._uploads.notifier.notify(self.queue.id)
                return result
            except QueueLayoutChanged:
                await self._follow_layout()
            except CONNECTION_ERRORS as error:
                is_unsure = True
                await retry.pause(error)

    async def finish_staging(self) -> StagedUpload:
        """Store all events invisibly, for another process to make them visible."""
        await self._stage()
        return StagedUpload(
            self._id, self.queue.epoch, self.queue.segment, self.events, list(self._targets), list(self._afters)
        )

    async def abandon(self) -> None:
        """Delete the staged rows. Upkeep does it later if the database is unavailable."""

        async def delete(conn: AsyncConnection[Any]) -> None:
            async with conn.transaction():
                await conn.execute(self._statement("discard"), {"upload": self._id})
                await conn.execute(_sql["take"], {"uploads": int_array([self._id])})

        try:
            await run_with_retry(self._uploads.pool, DISCARD_SECONDS, delete)
        except (psycopg.Error, DatabaseUnavailable):
            return

    def _statement(self, name: str) -> str:
        return _sql.table(name, self.queue.id, self.queue.segment)

    async def _stage(self) -> None:
        if not self._buffered:
            return
        pieces, self._buffered, self._buffered_bytes = self._buffered, [], 0
        partition_ids = await self._uploads.appender.partition_ids([AppendRequest([list(pieces)])])
        by_partition: dict[int, list[Piece]] = {}
        for piece in pieces:
            by_partition.setdefault(partition_ids[self.queue.id, piece.partition], []).append(piece)
        queue = self.queue
        for chunks in build_chunks(
            list(by_partition.items()), encrypted=queue.encrypted, readable=queue.readable_from_sql
        ):
            first_row = len(self._targets)
            for partition_id, count in zip(chunks.partitions, chunks.counts, strict=True):
                self._partition_events[partition_id] = self._partition_events.get(partition_id, 0) + count
                self._targets.append(partition_id)
                self._afters.append(self._partition_events[partition_id])
            params: dict[str, Any] = chunks.params()
            row_numbers = int_array(range(first_row, len(self._targets)))
            params.update(upload=self._id, flush=self._flush_id, numbers=row_numbers)
            await run_with_retry(self._uploads.pool, self._uploads.retry_seconds, partial(self._stage_on, params))

    async def _stage_on(self, params: dict[str, Any], conn: AsyncConnection[Any]) -> None:
        try:
            async with conn.transaction():
                # The commit that publishes the rows makes them durable, too: it comes later in the same WAL.
                await conn.execute("SET LOCAL synchronous_commit = off")
                staged = await conn.execute(self._statement("stage"), params)
                if staged.rowcount == 0:
                    raise _upload_lost(self.queue)
                if time.monotonic() - self._active_at > ACTIVITY_SECONDS:
                    skew = self._uploads.clock.skew + self._keep
                    await conn.execute(_sql["record_activity"], {"upload": self._id, "skew": skew})
                    self._active_at = time.monotonic()
        except psycopg.errors.UniqueViolation:
            return  # an earlier attempt was committed before the connection was lost
        except psycopg.errors.UndefinedTable:
            raise _upload_lost(self.queue) from None

    async def _publish_on(self, conn: AsyncConnection[Any], request: AppendRequest, *, is_shed: bool) -> UploadResult:
        result = UploadResult(0, shed=self.events) if is_shed else UploadResult(self.events)
        async with conn.transaction():
            taken = await conn.execute(_sql["take"], {"uploads": int_array([self._id])})
            if taken.rowcount == 0:
                raise _upload_lost(self.queue)
            stored_result = await self._uploads.idempotency_keys.claim(conn, request)
            if stored_result is not None:
                await conn.execute(self._statement("discard"), {"upload": self._id})
                stored: UploadResult = msgspec.msgpack.decode(stored_result, type=UploadResult)
                return UploadResult(stored.accepted, replayed=True, shed=stored.shed)
            await self._uploads.appender.reject(conn, [request])
            if is_shed:
                await conn.execute(self._statement("discard"), {"upload": self._id})
            else:
                await lock_for_publish(conn, self.queue, self._partition_events)
                await publish_rows(conn, self.queue, self._id, self._targets, self._afters, self._uploads.clock)
            if idempotency_key := request.idempotency_key:
                await self._uploads.idempotency_keys.store(conn, {idempotency_key: msgspec.msgpack.encode(result)})
        return result

    async def _follow_layout(self) -> None:
        """Move the staged rows to the segment that the queue has opened meanwhile."""
        current = await self._uploads.catalog.refresh(self.queue.name)
        if current.id != self.queue.id:
            raise _upload_lost(self.queue)
        await self._uploads.move(current, self.queue.epoch, self.queue.segment, self._id)
        self.queue = current

    async def _was_published(self, conn: AsyncConnection[Any]) -> bool:
        params = {"partitions": int_array(sorted(self._partition_events)), "flush": self._flush_id}
        statement = _append.table("was_flushed", self.queue.id, self.queue.segment)
        return await (await conn.execute(statement, params)).fetchone() is not None


@dataclass(slots=True, eq=False)
class Uploads:
    pool: AsyncConnectionPool[Any]
    catalog: Catalog
    appender: Appender
    idempotency_keys: IdempotencyKeys
    notifier: Notifier
    clock: Clock
    retry_seconds: float

    async def begin(
        self, queue: Queue, *, writer: str | None = None, version: int | None = None, keep: timedelta = timedelta()
    ) -> Upload:
        """Start an upload.

        In a staged write it belongs to a ``version`` of a ``writer``, and its rows are kept for so long until another
        process publishes them.
        """

        async def insert(conn: AsyncConnection[Any]) -> int:
            params = {"queue": queue.id, "skew": self.clock.skew + keep, "writer": writer, "version": version}
            return int(await fetch_scalar(conn, _sql["begin"], params))

        return Upload(self, queue, await run_with_retry(self.pool, self.retry_seconds, insert), keep)

    async def move(self, queue: Queue, epoch: int, segment: int, upload_id: int) -> None:
        """Move the staged rows of an upload to the open segment of the queue."""
        if queue.epoch != epoch:
            raise UploadLost(
                f"queue {queue.name!r} was repartitioned during the upload, so none of its events were stored; send "
                "them again"
            )
        if queue.segment == segment:
            return
        statement = fill_placeholders(_sql.table("move", queue.id, queue.segment), from_segment=int(segment))

        async def move_rows(conn: AsyncConnection[Any]) -> None:
            await conn.execute(statement, {"upload": upload_id})

        try:
            await run_with_retry(self.pool, self.retry_seconds, move_rows)
        except psycopg.errors.UndefinedTable:
            raise _upload_lost(queue) from None


async def lock_for_publish(conn: AsyncConnection[Any], queue: Queue, partition_ids: Iterable[int]) -> None:
    """Lock partitions and wake their parked cursors. Raise QueueLayoutChanged if the queue has a new layout."""
    params = {"partitions": int_array(sorted(partition_ids))}
    await conn.execute(_append["lock_partitions"], params)
    statement = _sql.table("is_current", queue.id, queue.segment)
    if not await fetch_scalar(conn, statement, {"epoch": queue.epoch}):
        raise QueueLayoutChanged
    await conn.execute(_sql["wake_cursors"], params)


async def publish_rows(
    conn: AsyncConnection[Any],
    queue: Queue,
    upload_id: int,
    targets: Sequence[int],
    afters: Sequence[int],
    clock: Clock,
) -> None:
    """Append the staged rows of an upload to their partitions, which are locked."""
    params = {
        "upload": upload_id,
        "partitions": int_array(sorted(set(targets))),
        "numbers": int_array(range(len(targets))),
        "targets": int_array(targets),
        "afters": int_array(afters),
        "skew": clock.skew,
    }
    published = (await conn.execute(_sql.table("publish", queue.id, queue.segment), params)).rowcount
    if published != len(targets):
        raise _upload_lost(queue)


def _upload_lost(queue: Queue) -> UploadLost:
    return UploadLost(
        f"the staged events of an upload to queue {queue.name!r} were deleted, because it was inactive for too long; "
        "send them again"
    )

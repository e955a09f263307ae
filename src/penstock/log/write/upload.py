"""Uploads: written first, unseen, and made visible at the end in one short transaction.

What arrives is stored in the queue's own table, in chunks as they will be, but under a partition that is none. At the
end the partitions are locked and the rows get their places, which takes milliseconds however much it is, because what
they hold lies apart from them (TOAST) and is not touched. All of it happens or nothing; what a crash leaves behind is
removed by upkeep.
"""

from __future__ import annotations

import time
import uuid
from array import array
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import psycopg

from penstock.core.errors import Conflict, DatabaseUnavailable
from penstock.db.kill_backend import Orphans
from penstock.db.pg_arrays import numbers
from penstock.db.retry import LOST, Patience, patiently
from penstock.db.statements import Statements
from penstock.log.write.chunk_builder import encode_chunks
from penstock.log.write.flush import Request
from penstock.log.write.result import Rejected

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool

    from penstock.core.clock import Clock
    from penstock.log.catalog import Catalog
    from penstock.log.notify import Signals
    from penstock.log.queue import Queue
    from penstock.log.write.append import Appender
    from penstock.log.write.encode import Piece

_sql = Statements("penstock.log.write", "upload.sql")
_append = Statements("penstock.log.write", "append.sql")

#: Pieces are gathered up to this many bytes, so that chunks are not small.
_STAGE_BYTES = 4 << 20
#: How often an upload says that it goes on, and after how long without a word it is over.
_SEEN_SECONDS = 10.0
FORGOTTEN_SECONDS = 600.0


class Uploaded(msgspec.Struct, array_like=True):
    """What became of an upload, as it is kept for who asks again."""

    accepted: int
    replayed: bool = False
    #: Events of it that were dropped, because the queue was full and sheds.
    shed: int = 0


class Staged(msgspec.Struct, array_like=True):
    """What an upload has staged: all that another process needs to make it visible."""

    upload: int
    epoch: int
    #: The segment whose table holds it.
    segment: int
    events: int
    #: Of each row, its partition and the events of the upload in that up to and with it.
    targets: Sequence[int]
    afters: Sequence[int]


class Upload:
    """Events that are on their way into one queue."""

    def __init__(self, parts: Uploads, queue: Queue, number: int, keep: timedelta) -> None:
        self._parts = parts
        self.queue = queue
        self._id = number
        self._keep = keep
        self._flush = uuid.uuid4()
        self._waiting: list[Piece] = []
        self._bytes = 0
        self._seen = time.monotonic()
        # Of each row that was staged, its partition and the events of the upload in that up to and with it.
        self._targets = array("q")
        self._after = array("q")
        self._ends: dict[int, int] = {}
        self.events = 0

    async def add(self, pieces: Sequence[Piece]) -> None:
        """Take more events."""
        self._waiting += pieces
        self.events += sum([piece.columns.count for piece in pieces])
        self._bytes += sum([len(piece.columns.data) for piece in pieces])
        if self._bytes >= _STAGE_BYTES:
            await self._stage()

    async def publish(
        self,
        *,
        idempotency_key: str | None = None,
        fingerprint: bytes = b"",
        rejected: Sequence[Rejected] = (),
        is_shed: bool = False,
    ) -> Uploaded:
        """Make all of it visible, or what was answered before under the key; nothing of it if that fails.

        What is shed is removed instead, and the key remembers that it was.
        """
        await self._stage()
        request = Request([], idempotency_key, b"upload:" + fingerprint)
        request.rejected = [(self.queue.id, each) for each in rejected]
        patience = Patience(self._parts.retry_seconds)
        orphans = Orphans()
        unsure = False
        while True:
            try:
                async with self._parts.pool.connection() as conn:
                    await orphans.end(conn)
                    if unsure and await self._was_published(conn):
                        self._parts.signals.pushed(self.queue.id)
                        return Uploaded(self.events)
                    with orphans.watching(conn):
                        done = await self._publish_on(conn, request, is_shed=is_shed)
                self._parts.signals.pushed(self.queue.id)
                return done
            except MovedOnError:
                await self._follow()
            except LOST as error:
                unsure = True
                await patience.pause(error)

    async def set_aside(self) -> Staged:
        """Store what is left, for somebody else to make it visible."""
        await self._stage()
        return Staged(
            self._id, self.queue.epoch, self.queue.segment, self.events, list(self._targets), list(self._after)
        )

    async def abandon(self) -> None:
        """Remove what was stored; upkeep does it later if the database cannot be reached."""

        async def act(conn: AsyncConnection[Any]) -> None:
            async with conn.transaction():
                await conn.execute(self._statement("discard"), {"upload": self._id})
                await conn.execute(_sql["take"], {"upload": self._id})

        try:
            await patiently(self._parts.pool, 1.0, act)
        except (psycopg.Error, DatabaseUnavailable):
            return

    def _statement(self, name: str) -> str:
        return _sql.table(name, self.queue.id, self.queue.segment)

    async def _stage(self) -> None:
        """Store what is waiting, unseen."""
        if not self._waiting:
            return
        pieces, self._waiting, self._bytes = self._waiting, [], 0
        lanes = await self._parts.appender.lanes([Request([list(pieces)])])
        by_lane: dict[int, list[Piece]] = {}
        for piece in pieces:
            by_lane.setdefault(lanes[self.queue.id, piece.partition], []).append(piece)
        for chunks in encode_chunks(list(by_lane.items())):
            first = len(self._targets)
            for partition_id, count in zip(chunks.partitions, chunks.counts, strict=True):
                self._ends[partition_id] = self._ends.get(partition_id, 0) + count
                self._targets.append(partition_id)
                self._after.append(self._ends[partition_id])
            params: dict[str, Any] = chunks.params()
            params.update(upload=self._id, flush=self._flush, numbers=numbers(range(first, len(self._targets))))
            await patiently(self._parts.pool, self._parts.retry_seconds, partial(self._stage_on, params))

    async def _stage_on(self, params: dict[str, Any], conn: AsyncConnection[Any]) -> None:
        try:
            async with conn.transaction():
                # Durable with the commit that publishes, which comes after it in the same log.
                await conn.execute("SET LOCAL synchronous_commit = off")
                staged = await conn.execute(self._statement("stage"), params)
                if staged.rowcount == 0:
                    raise _gone(self.queue)
                if time.monotonic() - self._seen > _SEEN_SECONDS:
                    ahead = self._parts.clock.skew + self._keep
                    await conn.execute(_sql["see"], {"upload": self._id, "skew": ahead})
                    self._seen = time.monotonic()
        except psycopg.errors.UniqueViolation:
            return  # the connection was lost after it was done
        except psycopg.errors.UndefinedTable:
            raise _gone(self.queue) from None

    async def _publish_on(self, conn: AsyncConnection[Any], request: Request, *, is_shed: bool) -> Uploaded:
        done = Uploaded(0, shed=self.events) if is_shed else Uploaded(self.events)
        async with conn.transaction():
            if await (await conn.execute(_sql["take"], {"upload": self._id})).fetchone() is None:
                raise _gone(self.queue)
            before = await self._parts.appender.claim(conn, request)
            if before is not None:
                await conn.execute(self._statement("discard"), {"upload": self._id})
                stored: Uploaded = msgspec.msgpack.decode(before, type=Uploaded)
                return Uploaded(stored.accepted, replayed=True, shed=stored.shed)
            await self._parts.appender.reject(conn, [request])
            if is_shed:
                await conn.execute(self._statement("discard"), {"upload": self._id})
            else:
                await self._place(conn)
            if idempotency_key := request.idempotency_key:
                await self._parts.appender.store(conn, idempotency_key, msgspec.msgpack.encode(done))
        return done

    async def _place(self, conn: AsyncConnection[Any]) -> None:
        await lock_for(conn, self.queue, self._ends)
        await place(conn, self.queue, self._id, self._targets, self._after, self._parts.clock)

    async def _follow(self) -> None:
        """The queue has opened another segment: bring what was staged there."""
        now = await self._parts.catalog.refresh(self.queue.name)
        if now.id != self.queue.id:
            raise _gone(self.queue)
        await self._parts.bring(now, self.queue.epoch, self.queue.segment, self._id)
        self.queue = now

    async def _was_published(self, conn: AsyncConnection[Any]) -> bool:
        params = {"partitions": numbers(sorted(self._ends)), "flush": self._flush}
        row = await (await conn.execute(self._statement("was_published"), params)).fetchone()
        return row is not None and bool(row[0])


class UploadLost(Conflict):
    """What was staged can no longer be made visible; nothing of it is stored, and it is worth to send it again."""


class MovedOnError(Exception):
    """The queue has another segment or other partitions than when the upload began."""


async def lock_for(conn: AsyncConnection[Any], queue: Queue, partitions: Iterable[int]) -> None:
    """Lock partitions to place what was staged, if the queue is still as it was when that was done."""
    params = {"partitions": numbers(sorted(partitions))}
    await conn.execute(_append["lock_partitions"], params)
    statement = _sql.table("is_current", queue.id, queue.segment)
    row = await (await conn.execute(statement, {"epoch": queue.epoch})).fetchone()
    if row is None or not row[0]:
        raise MovedOnError
    await conn.execute(_sql["wake_cursors"], params)


async def place(
    conn: AsyncConnection[Any], queue: Queue, upload: int, targets: Sequence[int], afters: Sequence[int], clock: Clock
) -> None:
    """Give what an upload has staged its place, behind all that is in the partitions; they are locked."""
    params = {
        "upload": upload,
        "partitions": numbers(sorted(set(targets))),
        "numbers": numbers(range(len(targets))),
        "targets": numbers(targets),
        "afters": numbers(afters),
        "skew": clock.skew,
    }
    placed = (await conn.execute(_sql.table("publish", queue.id, queue.segment), params)).rowcount
    if placed != len(targets):
        raise _gone(queue)


def _gone(queue: Queue) -> UploadLost:
    return UploadLost(
        f"what was uploaded to queue {queue.name!r} so far is gone: it stood still for too long; send it again"
    )


class Uploads:
    """Begins uploads, with what they need of the log."""

    def __init__(
        self,
        pool: AsyncConnectionPool[Any],
        catalog: Catalog,
        appender: Appender,
        signals: Signals,
        clock: Clock,
        retry_seconds: float,
    ) -> None:
        self.pool = pool
        self.catalog = catalog
        self.appender = appender
        self.signals = signals
        self.clock = clock
        self.retry_seconds = retry_seconds

    async def begin(
        self, queue: Queue, *, writer: str | None = None, version: int | None = None, keep: timedelta = timedelta()
    ) -> Upload:
        """A new one, with nothing in it; ``keep`` says how long it may wait for somebody to make it visible."""
        params = {"queue": queue.id, "skew": self.clock.skew + keep, "writer": writer, "version": version}

        async def act(conn: AsyncConnection[Any]) -> int:
            row = await (await conn.execute(_sql["begin"], params)).fetchone()
            return int(row[0]) if row is not None else 0

        return Upload(self, queue, await patiently(self.pool, self.retry_seconds, act), keep)

    async def bring(self, queue: Queue, epoch: int, segment: int, upload: int) -> None:
        """Bring what was staged to the segment that the queue has open now."""
        if queue.epoch != epoch:
            raise UploadLost(
                f"queue {queue.name!r} was partitioned differently during the upload; nothing of it was stored, "
                "send it again"
            )
        if queue.segment == segment:
            return
        statement = _sql.table("move", queue.id, queue.segment).replace("%(from_segment)s", str(int(segment)))

        async def act(conn: AsyncConnection[Any]) -> None:
            await conn.execute(statement, {"upload": upload})

        try:
            await patiently(self.pool, self.retry_seconds, act)
        except psycopg.errors.UndefinedTable:
            raise _gone(queue) from None


async def discard(conn: AsyncConnection[Any], queue: Queue, uploads: Sequence[int]) -> None:
    """Remove what uploads have staged, whichever segment it is in; their rows are locked."""
    segments = await (await conn.execute(_sql["segments"], {"queue": queue.id})).fetchall()
    for number in uploads:
        for (segment,) in segments:
            await conn.execute(_sql.table("discard", queue.id, segment), {"upload": number})
    await conn.execute(_sql["take_all"], {"uploads": numbers(uploads)})


async def sweep(conn: AsyncConnection[Any], queue: Queue, clock: Clock) -> int:
    """Remove what uploads left behind that nobody goes on with; answers how many."""
    params = {"queue": queue.id, "skew": clock.skew, "seconds": FORGOTTEN_SECONDS}
    async with conn.transaction():
        forgotten = [number for (number,) in await (await conn.execute(_sql["forgotten"], params)).fetchall()]
        if forgotten:
            await discard(conn, queue, forgotten)
    return len(forgotten)

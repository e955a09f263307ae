"""Writes of many hands: tasks that stage events apart from each other, made visible by one commit, once.

A writer numbers its writes. Under the lock of its row a number that was written before is known, so that a write may
be repeated from the beginning by whoever does not know whether it got through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.core.errors import Conflict, DatabaseUnavailable
from penstock.db.kill_backend import Orphans
from penstock.db.pg_arrays import numbers
from penstock.db.retry import LOST, Patience, patiently
from penstock.db.statements import Statements
from penstock.log.write.upload import MovedOnError, Staged, Upload, UploadLost, Uploads, discard, lock_for, place

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.log.queue import Queue

_sql = Statements("penstock.log.write", "upload.sql")

#: How long what a task has staged waits for the commit.
_KEEP = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Write:
    """One write of a writer."""

    writer: str
    version: int
    #: Who counts the versions; a writer that counts anew under the same name would be taken for one that repeats.
    run: str = ""
    #: Whether it may be repeated after days.
    is_kept: bool = True


class Writes:
    """Stages, commits and gives up writes to one queue after the other."""

    def __init__(self, uploads: Uploads) -> None:
        self._uploads = uploads

    async def begin(self, queue: Queue, write: Write) -> Upload:
        """What a task puts its part of a write into."""
        return await self._uploads.begin(queue, writer=write.writer, version=write.version, keep=_KEEP)

    async def was_written(self, queue: Queue, write: Write) -> bool:
        """Whether the write, or a later one of its writer, is there already."""

        async def act(conn: AsyncConnection[Any]) -> bool:
            async with conn.transaction():
                return await self._is_repeated(conn, queue, write)

        return await patiently(self._uploads.pool, self._uploads.retry_seconds, act)

    async def commit(self, queue: Queue, write: Write, parts: Sequence[Staged]) -> bool:
        """Make all parts visible, in their order, and nothing else of the write; False if it was written before."""
        patience = Patience(self._uploads.retry_seconds)
        orphans = Orphans()
        while True:
            try:
                async with self._uploads.pool.connection() as conn:
                    await orphans.end(conn)
                    with orphans.watching(conn):
                        done = await self._commit_on(conn, queue, write, parts)
                if done:
                    self._uploads.signals.pushed(queue.id)
                return done
            except MovedOnError:
                queue = await self._follow(queue, parts)
            except LOST as error:
                # Asked again, it says whether it got through.
                await patience.pause(error)

    async def give_up(self, queue: Queue, write: Write) -> None:
        """Remove what was staged for the write; upkeep does it later if the database cannot be reached."""

        async def act(conn: AsyncConnection[Any]) -> None:
            async with conn.transaction():
                await self._tidy(conn, queue, write)

        try:
            await patiently(self._uploads.pool, 1.0, act)
        except (psycopg.Error, DatabaseUnavailable):
            return

    async def _commit_on(self, conn: AsyncConnection[Any], queue: Queue, write: Write, parts: Sequence[Staged]) -> bool:
        async with conn.transaction():
            repeated = await self._is_repeated(conn, queue, write)
            if not repeated:
                await self._place(conn, queue, parts)
                events = sum(part.events for part in parts)
                await conn.execute(_sql["note_write"], self._params(queue, write, events=events))
            await self._tidy(conn, queue, write)
        return not repeated

    async def _is_repeated(self, conn: AsyncConnection[Any], queue: Queue, write: Write) -> bool:
        params = self._params(queue, write)
        await conn.execute(_sql["claim_write"], params)
        row = await (await conn.execute(_sql["last_write"], params)).fetchone()
        if row is None or row[0] < write.version:
            return False
        if row[1] != write.run:
            raise Conflict(
                f"{write.writer!r} has written version {row[0]} to queue {queue.name!r} before, and somebody else who "
                f"uses that name comes with version {write.version}: it would be taken for a repetition and dropped. "
                "Go on from the checkpoint that counted so far, or take another name for what begins anew"
            )
        return True

    async def _place(self, conn: AsyncConnection[Any], queue: Queue, parts: Sequence[Staged]) -> None:
        uploads = [part.upload for part in parts]
        taken = await (await conn.execute(_sql["take_all"], {"uploads": numbers(uploads)})).fetchall()
        if len(taken) != len(uploads):
            raise UploadLost(
                f"what was staged for queue {queue.name!r} is gone: nobody made it visible for too long, or the "
                "database crashed; write it again"
            )
        if any((part.epoch, part.segment) != (queue.epoch, queue.segment) for part in parts):
            raise MovedOnError
        await lock_for(conn, queue, {target for part in parts for target in part.targets})
        for part in parts:
            await place(conn, queue, part.upload, part.targets, part.afters, self._uploads.clock)

    async def _tidy(self, conn: AsyncConnection[Any], queue: Queue, write: Write) -> None:
        """Remove what is left of the write: of tasks that ran twice, and of those that failed."""
        rows = await (await conn.execute(_sql["left_by"], self._params(queue, write))).fetchall()
        if rows:
            await discard(conn, queue, [number for (number,) in rows])

    async def _follow(self, queue: Queue, parts: Sequence[Staged]) -> Queue:
        """Bring what was staged to the segment that is open now."""
        now = await self._uploads.catalog.refresh(queue.name)
        if now.id != queue.id:
            raise UploadLost(f"queue {queue.name!r} was deleted meanwhile, and with it what was staged; write it again")
        for part in parts:
            await self._uploads.bring(now, part.epoch, part.segment, part.upload)
            part.segment = now.segment
        return now

    def _params(self, queue: Queue, write: Write, **more: Any) -> dict[str, Any]:
        return {
            "queue": queue.id,
            "writer": write.writer,
            "version": write.version,
            "run": write.run,
            "is_kept": write.is_kept,
            "skew": self._uploads.clock.skew,
            **more,
        }

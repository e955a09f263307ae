"""Brings what a source has into a queue, each event once: what was pushed and how far was read are one transaction."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.core import json
from penstock.core.errors import Conflict, DatabaseError, InvalidEvent, InvalidRequest, QueueFull
from penstock.core.names import check_name
from penstock.db.retry import LOST, Patience
from penstock.db.statements import Statements
from penstock.log.log import Batch
from penstock.log.options import check_whole
from penstock.log.write.batch import MOST_REJECTED
from penstock.log.write.flush import Request
from penstock.log.write.result import Rejected

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.log.log import Log
    from penstock.sources.base import Position, Read, Source

_logger = logging.getLogger("penstock.sources")
_sql = Statements("penstock.sources", "runner.sql")

#: A source that does not say when there is more is asked this often.
_LOOK_SECONDS = 1.0
_RETRY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """How far a source has been read."""

    name: str
    kind: str
    queue: str
    position: Position
    events: int
    rejected: int
    updated_at: datetime


class Feed:
    """Reads one source into one queue."""

    def __init__(
        self,
        log: Log,
        source: Source,
        queue: str,
        *,
        name: str | None = None,
        key: str | None = None,
        key_field: str | None = None,
        id_field: str | None = None,
        time_field: str | None = None,
        batch: int = 5_000,
    ) -> None:
        self.pushed = 0
        self.rejected = 0
        self._log = log
        self._source = source
        self._queue = check_name(queue, "queue")
        self._name = check_name(source.name if name is None else name, "source")
        self._shape = {"key": key, "key_field": key_field, "id_field": id_field, "time_field": time_field}
        self._batch = check_whole("batch", batch, 1, 100_000)
        self._stopping = asyncio.Event()
        self._conn: AsyncConnection[Any] | None = None

    def stop(self) -> None:
        """End after what is being pushed."""
        self._stopping.set()

    async def run(self, idle_seconds: float | None = None) -> None:
        """Read until the source ends, there has been nothing for so long, or :meth:`stop`."""
        clock = asyncio.get_running_loop().time
        try:
            await self._source.open()
            position = await self._first_position()
            quiet_since = clock()
            while not self._stopping.is_set():
                read = await self._source.read(position, self._batch)
                if read.lines or read.rejected or read.position != position:
                    position = await self._store(position, read)
                    quiet_since = clock()
                if read.ended:
                    return
                if not read.lines and not read.rejected:
                    if idle_seconds is not None and clock() - quiet_since >= idle_seconds:
                        return
                    await self._source.wait(_LOOK_SECONDS if idle_seconds is None else min(_LOOK_SECONDS, idle_seconds))
        finally:
            await self._source.close()
            if self._conn is not None:
                await self._conn.close()

    async def _connection(self) -> AsyncConnection[Any]:
        if self._conn is None or self._conn.closed or self._conn.broken:
            self._conn = await self._log.database.connect()
        return self._conn

    async def _first_position(self) -> Position:
        patience = Patience(_RETRY_SECONDS)
        while True:
            try:
                return await self._position()
            except LOST as error:
                await patience.pause(error)

    async def _position(self) -> Position:
        conn = await self._connection()
        await conn.execute(_sql["begin"], {"name": self._name, "kind": self._source.kind, "queue": self._queue})
        row = await (await conn.execute(_sql["look"], {"name": self._name})).fetchone()
        queue, position = row or (self._queue, None)
        if queue != self._queue:
            raise Conflict(f"the source {self._name!r} goes to queue {queue!r} already: give this one another name")
        found: Position = position
        return found

    async def _store(self, before: Position, read: Read) -> Position:
        """Push what was read and move on, together; answers where that is."""
        lines, bad = [line for line in read.lines if line.strip(b" \t\r\n")], list(read.rejected)
        patience = Patience(_RETRY_SECONDS)
        is_unsure = is_refused = False
        while True:
            try:
                # Whether it was stored is told by where we are.
                if is_unsure and await self._position() == read.position:
                    break
                if is_refused:
                    lines, bad = await self._sift(lines, bad)
                if len(bad) > MOST_REJECTED:
                    raise self._hopeless(bad[0].reason)
                await self._commit(before, read.position, lines, bad)
                break
            except InvalidEvent:
                if is_refused:
                    raise
                is_refused = True
            except QueueFull as error:
                _logger.info("%s: %s", self._name, error)
                await asyncio.sleep(error.retry_after)
                patience = Patience(_RETRY_SECONDS)
            except (*LOST, DatabaseError) as error:
                is_unsure = True
                _logger.warning("%s: %s; tried again", self._name, str(error).strip())
                await patience.pause(error)
        self.pushed += len(lines)
        self.rejected += len(bad)
        return read.position

    async def _sift(self, lines: Sequence[bytes], bad: Sequence[Rejected]) -> tuple[list[bytes], list[Rejected]]:
        """Tell what can be events from what cannot."""
        try:
            _, found = await self._log.prepare_partly(self._batch_of(lines))
        except InvalidEvent as error:
            raise self._hopeless(error.reason) from None
        wrong = {each.index for each in found}
        return [line for i, line in enumerate(lines) if i not in wrong], [*bad, *found]

    def _hopeless(self, reason: str) -> InvalidRequest:
        return InvalidRequest(
            f"{self._name}: more than {MOST_REJECTED:,} of what comes next can be no events, so it is hardly "
            f"{self._source.kind}, and nothing of it was stored ({reason}). If they are to become dead letters all the "
            f"same, read {MOST_REJECTED:,} at a time: --batch {MOST_REJECTED}"
        )

    def _batch_of(self, lines: Sequence[bytes]) -> Batch:
        return Batch(self._queue, b"\n".join(lines), **self._shape)

    async def _commit(self, before: Position, after: Position, lines: Sequence[bytes], bad: Sequence[Rejected]) -> None:
        conn = await self._connection()
        queue = await self._log.catalog.get(self._queue)
        async with conn.transaction():
            row = await (await conn.execute(_sql["lock"], {"name": self._name})).fetchone()
            if row is None or row[0] != before:
                raise Conflict(f"somebody else reads the source {self._name!r} too, or has forgotten it: one is enough")
            moved = {
                "name": self._name,
                "position": json.encode(after).decode(),
                "events": len(lines),
                "rejected": len(bad),
            }
            await conn.execute(_sql["move"], moved)
            if bad:
                request = Request([])
                request.rejected = [(queue.id, each) for each in bad]
                await self._log.appender.reject(conn, [request])
            if lines:
                await self._log.transact([], [self._batch_of(lines)], connection=conn)


async def sources(log: Log) -> list[SourceInfo]:
    """All sources that have been read, and how far."""
    async with log.database.connection() as conn:
        rows = await (await conn.execute(_sql["list"])).fetchall()
    return [SourceInfo(*row) for row in rows]


async def forget(log: Log, name: str) -> bool:
    """Forget how far a source was read, so that it begins anew; False if there is none of that name."""
    async with log.database.connection() as conn:
        return (await conn.execute(_sql["forget"], {"name": name})).rowcount > 0

"""Runs a source: pushes its events to a queue exactly once, in one transaction with the position."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from penstock.core import json
from penstock.core.errors import Conflict, DatabaseError, InvalidEvent, InvalidRequest, QueueFull
from penstock.core.names import check_name
from penstock.core.option_checks import check_integer
from penstock.core.wait_notice import WaitNotice
from penstock.db.retry import CONNECTION_ERRORS, DatabaseRetry
from penstock.db.statements import Statements
from penstock.log.write.encode.batch import MAX_REJECTED, Batch
from penstock.log.write.flush import AppendRequest
from penstock.log.write.push_result import RejectedInput

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.log.log import Log
    from penstock.sources.base import Position, ReadResult, Source

_logger = logging.getLogger("penstock.sources")
_sql = Statements("penstock.sources", "source_runner.sql")

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


class SourceRunner:
    """Reads a source into a queue.

    Args:
        log: An open log.
        source: The source.
        queue: The queue.
        name: The name under which the position is stored (default: the name of the source).
        key: The key of all events.
        key_field: The field with the key of an event.
        id_field: The field with the id of an event.
        time_field: The field with the time of an event.
        batch: The most events of a push.
        poll_seconds: How long the source waits for more events before the next read.
    """

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
        poll_seconds: float = 1.0,
    ) -> None:
        self.pushed = 0
        self.rejected = 0
        self._log = log
        self._source = source
        self._queue = check_name(queue, "queue")
        self._name = check_name(source.name if name is None else name, "source")
        self._batch_options = {"key": key, "key_field": key_field, "id_field": id_field, "time_field": time_field}
        self._limit = check_integer("batch", batch, 1, 100_000)
        self._poll_seconds = poll_seconds
        self._stopping = asyncio.Event()
        self._conn: AsyncConnection[Any] | None = None

    def stop(self) -> None:
        """End after the push that runs."""
        self._stopping.set()

    async def run(self, idle_seconds: float | None = None) -> None:
        """Read until the source ends, there were no events for ``idle_seconds``, or :meth:`stop`."""
        clock = asyncio.get_running_loop().time
        try:
            await self._source.open()
            position = await self._load_first_position()
            idle_since = clock()
            while not self._stopping.is_set():
                result = await self._source.read(position, self._limit)
                has_input = bool(result.lines or result.rejected)
                if has_input or result.position != position:
                    await self._store(position, result)
                    position = result.position
                    idle_since = clock()
                if result.ended:
                    return
                if not has_input:
                    if idle_seconds is not None and clock() - idle_since >= idle_seconds:
                        return
                    wait = self._poll_seconds if idle_seconds is None else min(self._poll_seconds, idle_seconds)
                    await self._source.wait(wait)
        finally:
            await self._source.close()
            if self._conn is not None:
                await self._conn.close()

    async def _connect(self) -> AsyncConnection[Any]:
        if self._conn is None or self._conn.closed or self._conn.broken:
            self._conn = await self._log.database.connect()
        return self._conn

    async def _load_first_position(self) -> Position:
        retry = DatabaseRetry(_RETRY_SECONDS)
        while True:
            try:
                return await self._load_position()
            except CONNECTION_ERRORS as error:
                await retry.pause(error)

    async def _load_position(self) -> Position:
        conn = await self._connect()
        await conn.execute(_sql["create"], {"name": self._name, "kind": self._source.kind, "queue": self._queue})
        row = await (await conn.execute(_sql["position"], {"name": self._name})).fetchone()
        if row is None:
            return None
        queue, position = row
        if queue != self._queue:
            raise Conflict(f"the source {self._name!r} is read into queue {queue!r}: give this one another name")
        return cast("Position", position)

    async def _store(self, before: Position, result: ReadResult) -> None:
        """Push the events and store the position in one transaction, with retries."""
        lines, rejected = [line for line in result.lines if line.strip(b" \t\r\n")], list(result.rejected)
        retry = DatabaseRetry(_RETRY_SECONDS)
        notice = WaitNotice(lambda text: _logger.warning("%s: %s", self._name, text))
        # A lost connection leaves unknown whether the transaction was committed; the stored position tells.
        is_outcome_unknown = has_invalid_lines = False
        while True:
            try:
                if is_outcome_unknown and await self._load_position() == result.position:
                    break
                if has_invalid_lines:
                    lines, rejected = await self._split_invalid(lines, rejected)
                if len(rejected) > MAX_REJECTED:
                    raise self._too_many_rejected(rejected[0].reason)
                await self._commit(before, result.position, lines, rejected)
                break
            except InvalidEvent:
                if has_invalid_lines:
                    raise
                has_invalid_lines = True
            except QueueFull as error:
                notice.waits(error, error.retry_after)
                await asyncio.sleep(error.retry_after)
                retry = DatabaseRetry(_RETRY_SECONDS)
            except (*CONNECTION_ERRORS, DatabaseError) as error:
                is_outcome_unknown = True
                _logger.warning("%s: %s; the source retries", self._name, str(error).strip())
                await retry.pause(error)
        self.pushed += len(lines)
        self.rejected += len(rejected)

    async def _split_invalid(
        self, lines: Sequence[bytes], rejected: Sequence[RejectedInput]
    ) -> tuple[list[bytes], list[RejectedInput]]:
        """Return the valid lines, and all rejected input."""
        try:
            _, invalid = await self._log.encode_valid(self._build_batch(lines))
        except InvalidEvent as error:
            raise self._too_many_rejected(error.reason) from None
        indices = {found.index for found in invalid}
        return [line for i, line in enumerate(lines) if i not in indices], [*rejected, *invalid]

    def _too_many_rejected(self, reason: str) -> InvalidRequest:
        return InvalidRequest(
            f"{self._name}: more than {MAX_REJECTED:,} of the next lines or rows are not events, so the input is "
            f"probably not {self._source.kind}, and none of them was stored ({reason}). To store them as dead letters, "
            f"read {MAX_REJECTED:,} at a time: --batch {MAX_REJECTED}"
        )

    def _build_batch(self, lines: Sequence[bytes]) -> Batch:
        return Batch(self._queue, b"\n".join(lines), **self._batch_options)

    async def _commit(
        self, before: Position, after: Position, lines: Sequence[bytes], rejected: Sequence[RejectedInput]
    ) -> None:
        conn = await self._connect()
        queue = await self._log.catalog.get(self._queue)
        async with conn.transaction():
            row = await (await conn.execute(_sql["lock"], {"name": self._name})).fetchone()
            if row != (before,):
                raise Conflict(
                    f"another process reads the source {self._name!r}, or its position was deleted: run only one"
                )
            progress = {
                "name": self._name,
                "position": json.encode(after).decode(),
                "events": len(lines),
                "rejected": len(rejected),
            }
            await conn.execute(_sql["advance"], progress)
            if rejected:
                request = AppendRequest([])
                request.rejected = [(queue, item) for item in rejected]
                await self._log.appender.reject(conn, [request])
            if lines:
                await self._log.transact([], [self._build_batch(lines)], connection=conn)


async def list_sources(log: Log) -> list[SourceInfo]:
    """Return all sources that have been read, ordered by name."""
    return await log.database.fetch(SourceInfo, _sql["list"])


async def forget_source(log: Log, name: str) -> bool:
    """Delete the position of a source, so that it is read from the beginning; return False if there is none."""
    async with log.database.connection() as conn:
        return (await conn.execute(_sql["delete"], {"name": name})).rowcount > 0

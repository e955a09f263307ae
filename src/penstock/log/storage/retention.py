"""Retention: drops the segments of a queue whose time is over, and moves groups that have not read them past them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from penstock.core.clock import Clock
from penstock.core.formatting import counted
from penstock.db.statements import Statements
from penstock.log.queue import Queue

_sql = Statements("penstock.log.storage", "retention.sql")
_catalog = Statements("penstock.log", "catalog.sql")
_logger = logging.getLogger("penstock.log")


class RetentionResult(NamedTuple):
    """How many segments were dropped, and how many were kept past their retention because a group has not read them."""

    dropped: int = 0
    waiting: int = 0


@dataclass(slots=True, eq=False)
class Retention:
    clock: Clock

    async def apply(self, conn: AsyncConnection[Any], queue: Queue) -> RetentionResult:
        """Drop the segments and the id tables whose time is over."""
        params = {"queue": queue.id, "skew": self.clock.skew, "seconds": queue.dedup_window_seconds}
        for (segment,) in await (await conn.execute(_sql["expired_ids"], params)).fetchall():
            async with conn.transaction():
                await self._drop_table(conn, "drop_ids_table", queue, segment)
                await conn.execute(_sql["delete_ids"], {"queue": queue.id, "segment": segment})
        if queue.retention_seconds is None:
            return RetentionResult()
        dropped = 0
        params["seconds"] = max(queue.retention_seconds, queue.dedup_window_seconds)
        for segment, has_unread in await (await conn.execute(_sql["expired_segments"], params)).fetchall():
            if has_unread and not queue.retention_drops_unread:
                # Groups read in order, so the later segments are unread, too.
                return RetentionResult(dropped, waiting=1)
            async with conn.transaction():
                await self._drop_segment(conn, queue, segment, has_unread=has_unread)
            dropped += 1
        return RetentionResult(dropped)

    async def _drop_segment(self, conn: AsyncConnection[Any], queue: Queue, segment: int, *, has_unread: bool) -> None:
        params = {"queue": queue.id, "segment": segment, "skew": self.clock.skew}
        if has_unread:
            await self._lock_positions_behind(conn, params)
            for group, count in await (await conn.execute(_sql["skip_dropped"], params)).fetchall():
                dropped = counted(count, "event")
                _logger.warning("queue %r: retention dropped %s that group %r had not read", queue.name, dropped, group)
        await self._drop_table(conn, "drop_chunks_table", queue, segment)
        await self._drop_table(conn, "drop_ids_table", queue, segment)
        await conn.execute(_sql["delete_segment"], params)

    async def _lock_positions_behind(self, conn: AsyncConnection[Any], params: Mapping[str, Any]) -> None:
        """Lock the positions of all groups in the segment's partitions. Acks may move a position meanwhile."""
        while True:
            row = await (await conn.execute(_sql["lock_positions_behind"], params)).fetchone()
            locked, total = row or (0, 0)
            if locked == total:
                return

    async def _drop_table(self, conn: AsyncConnection[Any], statement: str, queue: Queue, segment: int) -> None:
        # Do not wait for readers of the table, because pushes would wait behind. The next round tries again.
        await conn.execute("SET LOCAL lock_timeout = '200ms'")
        await conn.execute(_catalog.table(statement, queue.id, segment), prepare=False)

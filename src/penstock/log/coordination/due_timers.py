"""Pushes the events of timers that are due. The push and the deletion of the timer are one transaction."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from penstock.core.clock import Clock
from penstock.core.errors import NotFound, PenstockError
from penstock.db.scalar import fetch_scalar
from penstock.db.statements import Statements
from penstock.log.coordination.timers import StoredHeaders, decode_data, decode_headers
from penstock.log.database_errors import translate_errors
from penstock.log.transaction import Transactions
from penstock.log.write.encode.batch import Batch
from penstock.log.write.encode.json_events import JsonEvents

_sql = Statements("penstock.log.coordination", "due_timers.sql")
_logger = logging.getLogger("penstock.log")

#: The timers that are read at once, at first and at most. PostgreSQL reads the data of all of them to find how many fit
#: into the bytes, so the number follows from those that did.
_FIRST_TIMERS, _FIRE_TIMERS = 50, 500
_FIRE_BYTES = 16 << 20
_LOCKED_SECONDS = 0.02


class _DueTimer(NamedTuple):
    queue: str
    queue_id: int
    key: str
    version: int
    event_id: str
    event_key: str | None
    data: str
    headers: StoredHeaders


class _TimersChanged(Exception):
    """A timer was fired, replaced or cancelled after it was read."""


@translate_errors
@dataclass(slots=True, eq=False)
class DueTimers:
    pool: AsyncConnectionPool[Any]
    transactions: Transactions
    clock: Clock
    #: Queues whose timers could not be fired, which is logged once.
    _failing: set[int] = field(default_factory=set, init=False)

    async def fire(self) -> float | None:
        """Push the events of all timers that are due. Return the seconds until the next one is due, None if none is.

        Several processes may call it. The deletion decides which of them pushes an event. Pushes ignore the maximum
        depth of their queues, and an event that a queue no longer accepts becomes a dead letter.
        """
        # Queues whose events this process cannot push, for example without the key of an encrypted one.
        skipped: list[int] = []
        params = {"limit": _FIRST_TIMERS, "max_bytes": _FIRE_BYTES, "skew": self.clock.skew, "skipped": skipped}
        while True:
            async with self.pool.connection() as conn:
                rows = await (await conn.execute(_sql["due"], params)).fetchall()
                if not rows:
                    seconds = await fetch_scalar(conn, _sql["seconds_to_next"], params)
                    # A timer that is due but locked is looked at again soon.
                    return None if seconds is None else max(seconds, _LOCKED_SECONDS)
            params["limit"] = min(2 * len(rows), _FIRE_TIMERS)
            by_queue: dict[int, list[_DueTimer]] = {}
            for timer in map(_DueTimer._make, rows):
                by_queue.setdefault(timer.queue_id, []).append(timer)
            for queue_id, timers in by_queue.items():
                try:
                    await self._fire(timers)
                except (_TimersChanged, NotFound):
                    continue
                except (PenstockError, psycopg.Error, ValueError) as error:
                    # Those of other queues do not wait for it. If the database is unavailable, the next read fails.
                    if queue_id not in self._failing:
                        _logger.warning(
                            "the timers of queue %r cannot be fired by this process: %s", timers[0].queue, error
                        )
                    self._failing.add(queue_id)
                    skipped.append(queue_id)
                else:
                    self._failing.discard(queue_id)

    async def _fire(self, timers: Sequence[_DueTimer]) -> None:
        """Push the events of timers of one queue and delete the timers, or raise and do nothing."""

        async def delete(conn: AsyncConnection[Any]) -> None:
            params = {
                "queue": timers[0].queue_id,
                "keys": [timer.key for timer in timers],
                "versions": [timer.version for timer in timers],
            }
            if (await conn.execute(_sql["delete"], params)).rowcount != len(timers):
                raise _TimersChanged

        events = JsonEvents(
            [decode_data(timer.data, timer.headers) for timer in timers],
            [timer.event_key for timer in timers],
            [timer.event_id for timer in timers],
            headers=[decode_headers(timer.headers) for timer in timers],
        )
        await self.transactions.push_valid(Batch(timers[0].queue, events), delete)

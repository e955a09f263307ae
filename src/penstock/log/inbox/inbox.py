"""The inbox: events that were pushed from SQL, until they are appended to their queues as chunks.

The functions that push are in the database (migration 0044), and ``order_inbox`` says how the order is kept.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from penstock.core.errors import NotFound, PenstockError
from penstock.db.pg_arrays import int_array
from penstock.db.statements import Statements
from penstock.log.catalog import Catalog
from penstock.log.transaction import Transactions
from penstock.log.write.backpressure import Backpressure
from penstock.log.write.encode.batch import Batch
from penstock.log.write.encode.json_events import JsonEvents

_sql = Statements("penstock.log.inbox", "inbox.sql")
_logger = logging.getLogger("penstock.log")

#: The class of the advisory locks of the inbox, and their numbers in it. The functions of the database know them, too.
LOCKS = 1885695604
MOVER_LOCK, SLEEP_LOCK = 0, 1
#: The bits of a number that a transaction announces.
_BOUND_BITS = 36

#: The rows and bytes that are read at once. A row holds the events of one call.
_MAX_ROWS = 2_000
_MAX_BYTES = 16 << 20
#: The depth of queues is measured this often while they receive pushes or are full.
_MEASURE_SECONDS = 0.25
#: The floor is raised after this many numbers. Reads walk over the deleted rows above it.
_FLOOR_STEP = 5_000


class _InboxRow(NamedTuple):
    sequence: int
    inbox_id: int
    queue_id: int
    #: None if the queue was deleted.
    queue: str | None
    #: A line of JSON for each event.
    data: str
    keys: list[str | None] | None
    ids: list[str | None] | None
    times: list[datetime | None] | None
    headers: list[dict[str, str] | None] | None


class _Settled(NamedTuple):
    """The numbers up to which no transaction can add a row any more."""

    last: int
    #: Lower ones of queues with commits that are not visible yet, by the last bits of the queue's id.
    bounds: dict[int, int]

    @property
    def lowest(self) -> int:
        return min(self.bounds.values(), default=self.last)


class _RowsMoved(Exception):
    """Another process has moved some of the rows."""


@dataclass(slots=True, eq=False)
class Inbox:
    pool: AsyncConnectionPool[Any]
    catalog: Catalog
    transactions: Transactions
    backpressure: Backpressure
    #: Queues whose rows could not be moved, which is logged once.
    _failing: set[int] = field(default_factory=set, init=False)
    _pushed_queues: set[str] = field(default_factory=set, init=False)
    _measured_at: float = field(default=0.0, init=False)

    async def move(self, *, is_idle: bool = False) -> int:
        """Append the events of all waiting rows to their queues, and return the number of rows.

        Any number of processes may call it: the deletion of a row succeeds once, in the transaction of the append.
        """
        moved = 0
        skipped: list[int] = []
        while True:
            async with self.pool.connection() as conn:
                floor, settled = await _settle(conn)
                params = {
                    "last": settled.last,
                    "queues": int_array(list(settled.bounds)),
                    "bounds": int_array(list(settled.bounds.values())),
                    "skipped": int_array(skipped),
                    "limit": _MAX_ROWS,
                    "max_bytes": _MAX_BYTES,
                }
                cursor = await conn.execute(_sql["waiting"], params, binary=True)
                rows = [_InboxRow._make(row) for row in await cursor.fetchall()]
                if not rows and settled.lowest - floor >= (1 if is_idle else _FLOOR_STEP):
                    await _raise_floor(conn, settled.lowest)
            by_queue: dict[int, list[_InboxRow]] = {}
            for row in rows:
                by_queue.setdefault(row.queue_id, []).append(row)
            for queue_id, queue_rows in by_queue.items():
                if await self._move_queue(queue_rows):
                    moved += len(queue_rows)
                else:
                    skipped.append(queue_id)
            if not rows:
                return moved

    async def has_rows(self) -> bool:
        async with self.pool.connection() as conn:
            return await _value(conn, "has_rows")

    async def measure(self) -> None:
        """Mark the queues that refuse pushes because they are full, and those that have drained."""
        now = time.monotonic()
        if now - self._measured_at < _MEASURE_SECONDS:
            return
        self._measured_at = now
        async with self.pool.connection() as conn:
            full = {name for (name,) in await (await conn.execute(_sql["full_queues"])).fetchall()}
        pushed, self._pushed_queues = self._pushed_queues, set()
        for name in full | pushed:
            try:
                queue = await self.catalog.get(name)
            except NotFound:
                continue
            reason = await self.backpressure.find_reason(queue)
            if reason is None and name not in full:
                continue
            params = {"queue": queue.id, "reason": reason}
            async with self.pool.connection() as conn:
                await conn.execute(_sql["mark_open" if reason is None else "mark_full"], params)

    async def _move_queue(self, rows: Sequence[_InboxRow]) -> bool:
        """Move rows of one queue, and return whether that succeeded or another process has done it."""
        queue_id, name = rows[0].queue_id, rows[0].queue
        try:
            if name is None:
                await self._delete_orphans(rows)
            else:
                await self._append(name, rows)
        except (_RowsMoved, NotFound):
            pass
        except (PenstockError, psycopg.Error, ValueError) as error:
            # Other queues do not wait for it. If the database is unavailable, the next read fails.
            if queue_id not in self._failing:
                _logger.warning(
                    "events that were pushed from SQL cannot be moved to queue %r by this process: %s", name, error
                )
            self._failing.add(queue_id)
            return False
        self._failing.discard(queue_id)
        return True

    async def _append(self, queue: str, rows: Sequence[_InboxRow]) -> None:
        async def delete(conn: AsyncConnection[Any]) -> None:
            await _delete(conn, rows)

        await self.transactions.push_valid(Batch(queue, _to_events(rows)), delete)
        self._pushed_queues.add(queue)

    async def _delete_orphans(self, rows: Sequence[_InboxRow]) -> None:
        async with self.pool.connection() as conn, conn.transaction():
            await _delete(conn, rows)
        _logger.warning("%d pushes from SQL were dropped, because their queue was deleted", len(rows))


async def _delete(conn: AsyncConnection[Any], rows: Sequence[_InboxRow]) -> None:
    params = {
        "sequences": int_array([row.sequence for row in rows]),
        "ids": int_array([row.inbox_id for row in rows]),
    }
    row = await (await conn.execute(_sql["delete"], params)).fetchone()
    if row is None or row[0] != len(rows):
        raise _RowsMoved


async def _value(conn: AsyncConnection[Any], statement: str, params: dict[str, Any] | None = None) -> bool:
    row = await (await conn.execute(_sql[statement], params)).fetchone()
    return row is not None and bool(row[0])


async def _settle(conn: AsyncConnection[Any]) -> tuple[int, _Settled]:
    """Return the floor, and what the next statement can read.

    The order of the statements matters. A transaction that takes its lock after the second one draws numbers after the
    last one that the first has read.
    """
    row = await (await conn.execute(_sql["last_number"])).fetchone()
    last, floor = row if row is not None else (0, 0)
    bounds: dict[int, int] = {}
    for queue, bits in await (await conn.execute(_sql["committing"])).fetchall():
        # The bound itself: the highest number up to the last one with these bits.
        bound = last - ((last - bits) & ((1 << _BOUND_BITS) - 1))
        bounds[queue] = min(bound, bounds.get(queue, bound))
    return floor, _Settled(last, bounds)


async def _raise_floor(conn: AsyncConnection[Any], lowest: int) -> None:
    """Let reads start after the lowest number, unless a row up to it is left."""
    params = {"last": lowest}
    if not await _value(conn, "has_rows_up_to", params):
        await conn.execute(_sql["raise_floor"], params)


def _to_events(rows: Sequence[_InboxRow]) -> JsonEvents:
    counts = [row.data.count("\n") + 1 for row in rows]

    def column(parts: Sequence[Sequence[Any] | None]) -> list[Any] | None:
        if all(part is None for part in parts):
            return None
        values: list[Any] = []
        for part, count in zip(parts, counts, strict=True):
            values += [None] * count if part is None else part
        return values

    return JsonEvents(
        "\n".join([row.data for row in rows]).encode().split(b"\n"),
        column([row.keys for row in rows]),
        column([row.ids for row in rows]),
        column([row.times for row in rows]),
        column([row.headers for row in rows]),
    )

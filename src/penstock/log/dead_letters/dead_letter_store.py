"""Stores, lists and deletes dead letters."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from msgspec import Raw
from psycopg import AsyncConnection
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from penstock.core import json
from penstock.core.clock import Clock
from penstock.core.encryption import decrypt_text, encrypt_text
from penstock.core.errors import CorruptChunk, NotFound
from penstock.db.scalar import fetch_scalar
from penstock.db.statements import Statements, fill_placeholders
from penstock.log.catalog import Catalog
from penstock.log.dead_letters.dead_letter import (
    DAMAGED_STAGE,
    DEAD_LETTER_HEADER,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterKind,
    FailedEvent,
)
from penstock.log.event import Event
from penstock.log.partition_reader import read_events
from penstock.log.queue import DEFAULT_KEY, Queue
from penstock.log.queue_options import MAX_COUNT

_logger = logging.getLogger("penstock.log")
_sql = Statements("penstock.log.dead_letters", "dead_letters.sql")
_CONDITIONS = fill_placeholders(_sql["conditions"], kind=_sql["kind"])
_LIST = fill_placeholders(_sql["list"], conditions=_CONDITIONS)
_QUEUES = fill_placeholders(_sql["queues"], conditions=_CONDITIONS)
_COUNT = fill_placeholders(_sql["count"], conditions=_CONDITIONS)
_IDS = fill_placeholders(_sql["ids"], conditions=_CONDITIONS)
_PURGE = fill_placeholders(_sql["purge"], conditions=_CONDITIONS)
_KINDS = fill_placeholders(_sql["kinds"], kind=_sql["kind"])

#: The number of dead letters of each queue, the newest, that are counted by kind.
KIND_SAMPLE = 10_000
_MAX_KINDS = 200


class DeadLetterPage(NamedTuple):
    """Some dead letters. ``more`` is true if others of the page exceeded the size limit."""

    letters: list[DeadLetter]
    more: bool


@dataclass(frozen=True, slots=True)
class _DamagedChunk:
    problem: CorruptChunk
    failed: list[FailedEvent] = field(default_factory=list)

    def covers(self, offset: int) -> bool:
        return self.problem.start <= offset < self.problem.end


@dataclass(slots=True, eq=False)
class DeadLetters:
    pool: AsyncConnectionPool[Any]
    catalog: Catalog
    clock: Clock
    #: Dead letters whose stored data is damaged, which is logged once.
    _damaged: set[int] = field(default_factory=set, init=False)

    async def add(
        self,
        conn: AsyncConnection[Any],
        queue: Queue,
        group: str,
        partition_id: int,
        failed_events: Sequence[FailedEvent],
        copy: Event | None = None,
    ) -> None:
        """Store events as dead letters, in the transaction that moves the group past them.

        ``copy`` replaces an event that was read long ago and that retention may have dropped since.
        """
        encode: Callable[[bytes], str] = encrypt_text if queue.encrypted else bytes.decode
        event: Event | None = None
        damaged_chunks: list[_DamagedChunk] = []
        for failed in failed_events:
            event = None if event is None else event.sibling(failed.offset)
            if event is None:
                if not (damaged_chunks and damaged_chunks[-1].covers(failed.offset)):
                    damaged: list[CorruptChunk] = []
                    events = await read_events(conn, queue, partition_id, failed.offset, 1, damaged)
                    damaged_chunks += [_DamagedChunk(problem) for problem in damaged]
                    event = events[0] if events else copy
                if damaged_chunks and damaged_chunks[-1].covers(failed.offset):
                    damaged_chunks[-1].failed.append(failed)
                    continue
                if event is None:
                    raise NotFound(
                        f"queue {queue.name!r}: the event at offset {failed.offset} of partition {partition_id} no "
                        "longer exists"
                    )
            params = {
                "queue": queue.id,
                "partition": partition_id,
                "offset": failed.offset,
                "group": group,
                "key": event.key,
                "event_id": event.given_id,
                "event_time": event.event_time,
                "appended_at": event.appended_at,
                "headers": encode(json.encode(event.headers)) if event.headers else None,
                "data": encode(event.raw),
                "stage": _storable(failed.stage),
                "error": _storable(failed.error or "no reason given"),
                "traceback": None if failed.traceback is None else _storable(failed.traceback),
                "attempts": failed.attempts,
                "skew": self.clock.skew,
            }
            earlier_id = event.headers.get(DEAD_LETTER_HEADER, "") if event.is_redriven else ""
            if earlier_id.isdigit():
                params["id"] = int(earlier_id)
                if await (await conn.execute(_sql["add_again"], params)).fetchone() is not None:
                    continue
            await conn.execute(_sql["add"], params)
        for chunk in damaged_chunks:
            # A consumer may have failed on the event before the chunk was damaged: keep both errors.
            errors = {failed.error for failed in chunk.failed if failed.stage != DAMAGED_STAGE}
            error = "; ".join([*sorted(errors), str(chunk.problem)])
            offsets = [failed.offset for failed in chunk.failed]
            await self.add_damaged(conn, group, chunk.problem, offsets, error)

    async def add_damaged(
        self, conn: AsyncConnection[Any], group: str, problem: CorruptChunk, offsets: Sequence[int], error: str
    ) -> None:
        """Store events of a damaged chunk as dead letters without data."""
        params = {
            "partition": problem.partition_id,
            "offsets": list(offsets),
            "group": group,
            "no_key": DEFAULT_KEY,
            "appended_at": problem.appended_at,
            "stage": DAMAGED_STAGE,
            "error": _storable(error),
            "skew": self.clock.skew,
        }
        await conn.execute(_sql["add_damaged"], params)

    async def page(
        self,
        which: DeadLetterFilter,
        limit: int,
        offset: int = 0,
        *,
        max_bytes: int = MAX_COUNT,
        oldest_first: bool = False,
    ) -> DeadLetterPage:
        """Return dead letters up to ``max_bytes``, but at least one. The newest failure comes first by default."""
        params = await self._params(which)
        params.update(limit=limit, offset=offset, oldest_first=oldest_first, max_bytes=max_bytes)
        async with self.pool.connection() as conn, conn.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(_LIST, params)
            rows = await cursor.fetchall()
        total = rows[0]["total"] if rows else 0
        return DeadLetterPage([self._decode(row) for row in rows], len(rows) < total)

    async def get(self, id: int) -> DeadLetter:
        page = await self.page(DeadLetterFilter(ids=[id]), limit=1)
        if not page.letters:
            raise NotFound(f"there is no dead letter {id}; it may have been redriven or purged")
        return page.letters[0]

    async def queues(self, which: DeadLetterFilter) -> set[str]:
        params = await self._params(which)
        async with self.pool.connection() as conn:
            rows = await (await conn.execute(_QUEUES, params)).fetchall()
        return {name for (name,) in rows}

    async def count(self, which: DeadLetterFilter) -> int:
        params = await self._params(which)
        async with self.pool.connection() as conn:
            return int(await fetch_scalar(conn, _COUNT, params))

    async def purge(self, which: DeadLetterFilter) -> int:
        params = await self._params(which)
        async with self.pool.connection() as conn:
            cursor = await conn.execute(_PURGE, params)
        return int(cursor.rowcount)

    async def ids(self, which: DeadLetterFilter, limit: int | None) -> list[int]:
        params = {**await self._params(which), "limit": limit}
        async with self.pool.connection() as conn:
            rows = await (await conn.execute(_IDS, params)).fetchall()
        return [id for (id,) in rows]

    async def kinds(self, queue: str | None = None) -> list[DeadLetterKind]:
        params = {
            "queue": None if queue is None else (await self.catalog.get(queue)).id,
            "sample": KIND_SAMPLE,
            "limit": _MAX_KINDS,
        }
        async with self.pool.connection() as conn:
            rows = await (await conn.execute(_KINDS, params)).fetchall()
        return [DeadLetterKind(*row) for row in rows]

    async def _params(self, which: DeadLetterFilter) -> dict[str, Any]:
        queue_id = None if which.queue is None else (await self.catalog.get(which.queue)).id
        ids = None if which.ids is None else list(which.ids)
        return {**asdict(which), "ids": ids, "queue": queue_id}

    def _decode(self, row: dict[str, Any]) -> DeadLetter:
        """Return the dead letter of a row. One whose encrypted data is damaged has no data and the stage of damage."""
        values = {name: value for name, value in row.items() if name not in ("total", "data")}
        for change in values["history"]:
            if "data" in change:
                change["data"] = _decrypt_earlier_data(change["data"])
        try:
            headers = json.decode(decrypt_text(row["headers"])) if row["headers"] else {}
            text = decrypt_text(row["data"])
        except ValueError as error:
            problem = f"its encrypted data cannot be read: {error}; its event is read again when it is redriven"
            if row["id"] not in self._damaged:
                _logger.error("dead letter %d of queue %r: %s", row["id"], row["queue"], problem)
            self._damaged.add(row["id"])
            headers, text = {}, b"null"
            values.update(stage=DAMAGED_STAGE, error=f"{row['error']}; {problem}")
        return DeadLetter(**{**values, "headers": headers}, text=Raw(text))


def _decrypt_earlier_data(text: str) -> str | None:
    """Return the data that an edit has replaced; None if it is damaged, since the dead letter is usable without it."""
    try:
        return decrypt_text(text).decode()
    except ValueError:
        return None


def _storable(text: str) -> str:
    """Escape U+0000 and lone surrogates, which errors may quote and PostgreSQL's text cannot hold."""
    return text.replace("\x00", "\\u0000").encode("utf-8", "backslashreplace").decode()

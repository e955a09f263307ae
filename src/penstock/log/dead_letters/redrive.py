"""Redrives dead letters: appends them to their queue again, for the group that failed on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from operator import attrgetter
from typing import Any

import psycopg
from msgspec import Raw, structs
from psycopg_pool import AsyncConnectionPool

from penstock.core.clock import Clock
from penstock.core.errors import CorruptChunk, NotFound
from penstock.db.statements import Statements
from penstock.log.catalog import Catalog, is_layout_change
from penstock.log.dead_letters.models import (
    DAMAGED_STAGE,
    DEAD_LETTER_HEADER,
    INGEST_STAGE,
    DeadLetter,
    DeadLetterFilter,
    Redrive,
)
from penstock.log.dead_letters.store import DeadLetters
from penstock.log.event_reader import read_events
from penstock.log.groups import Groups
from penstock.log.queue import Queue
from penstock.log.storage.chunk import ChunkColumns
from penstock.log.write.append import Appender
from penstock.log.write.flush import AppendRequest
from penstock.log.write.piece import Piece
from penstock.log.write.validation import micros_of

_sql = Statements("penstock.log.dead_letters", "dead_letters.sql")

#: The default number of dead letters in a redrive.
REDRIVE_LIMIT = 100
#: The most dead letters, and the most bytes unless one alone has more, that are redriven in one transaction.
_BATCH_SIZE = 100
_BATCH_BYTES = 16 << 20
#: The most dead letters whose problem is reported.
_MAX_PROBLEMS = 1000


@dataclass(slots=True, eq=False)
class Redriver:
    pool: AsyncConnectionPool[Any]
    catalog: Catalog
    groups: Groups
    dead_letters: DeadLetters
    appender: Appender
    clock: Clock
    batch_size: int = _BATCH_SIZE
    batch_bytes: int = _BATCH_BYTES
    max_problems: int = _MAX_PROBLEMS

    async def redrive(
        self, which: DeadLetterFilter, *, limit: int | None = REDRIVE_LIMIT, edited: Mapping[int, bytes] | None = None
    ) -> Redrive:
        """Redrive the oldest dead letters, up to ``limit`` (None: all of them).

        ``edited`` maps ids to the data that replaces that of the dead letter.
        """
        replayed = failed = 0
        problems: dict[int, str] = {}
        # The ids are read first, so that an event that fails again meanwhile is not redriven twice.
        ids = await self.dead_letters.ids(which, limit)
        done = 0
        while done < len(ids):
            batch_ids = ids[done : done + self.batch_size]
            page = await self.dead_letters.page(
                replace(which, ids=batch_ids), len(batch_ids), max_bytes=self.batch_bytes, oldest_first=True
            )
            done += batch_ids.index(page.letters[-1].id) + 1 if page.more else len(batch_ids)
            by_queue = attrgetter("queue")
            for queue, queue_letters in groupby(sorted(page.letters, key=by_queue), key=by_queue):
                letters = list(queue_letters)
                refused = await self._redrive_batch(queue, letters, edited or {})
                replayed += len(letters) - len(refused)
                failed += len(refused)
                problems.update(islice(refused.items(), self.max_problems - len(problems)))
        return Redrive(replayed, failed, problems)

    async def _redrive_batch(
        self, queue_name: str, letters: Sequence[DeadLetter], edited: Mapping[int, bytes]
    ) -> dict[int, str]:
        """Redrive dead letters of one queue in one transaction. Return the problems of those that were not, by id."""
        while True:
            queue = await self.catalog.refresh(queue_name)
            pieces, problems = await self._encode(queue, letters, edited)
            partition_ids = await self.appender.partition_ids([AppendRequest([list(pieces.values())])])
            try:
                async with self.pool.connection() as conn, conn.transaction():
                    groups = {"groups": list({piece.target_group for piece in pieces.values()})}
                    rows = await (await conn.execute(_sql["share_groups"], groups)).fetchall()
                    existing_groups = {group_id for (group_id,) in rows}
                    for letter in letters:
                        # The group came from a cache and may have been deleted since.
                        if letter.id in pieces and pieces[letter.id].target_group not in existing_groups:
                            del pieces[letter.id]
                            self.groups.forget(queue, letter.group)
                            problems[letter.id] = _describe_missing_group(letter)
                    rows = await (await conn.execute(_sql["claim"], {"ids": list(pieces)})).fetchall()
                    claimed = [id for (id,) in rows]
                    request = AppendRequest([[pieces[id] for id in claimed]])
                    await self.appender.append_on(conn, [request], partition_ids)
                    await conn.execute(_sql["mark_redriven"], {"ids": claimed, "skew": self.clock.skew})
                    for id in edited.keys() & set(claimed):
                        change = {"id": id, "data": edited[id].decode(), "skew": self.clock.skew}
                        await conn.execute(_sql["edit"], change)
            except psycopg.ProgrammingError as error:
                if not is_layout_change(error):
                    raise
                continue
            self.appender.announce([request])
            for letter in letters:
                if letter.id in pieces and letter.id not in claimed:
                    problems[letter.id] = (
                        f"it was redriven {letter.redrives} times and the cap of the queue is {queue.max_redrives}, "
                        "or another redrive has claimed it; raise max_redrives, or purge it"
                    )
            return problems

    async def _encode(
        self, queue: Queue, letters: Sequence[DeadLetter], edited: Mapping[int, bytes]
    ) -> tuple[dict[int, Piece], dict[int, str]]:
        """Return the piece of each dead letter by id, and the problems of those that cannot be redriven."""
        pieces: dict[int, Piece] = {}
        problems: dict[int, str] = {}
        for letter in letters:
            group = await self.groups.get(queue, letter.group)
            if group is None:
                problems[letter.id] = _describe_missing_group(letter)
                continue
            try:
                restored = letter
                if letter.id in edited:
                    restored = structs.replace(letter, text=Raw(edited[letter.id]))
                elif letter.stage == DAMAGED_STAGE:
                    restored = await self._restore(queue, letter)
                pieces[letter.id] = _encode_letter(queue, restored, group.id)
            except (CorruptChunk, NotFound) as error:
                problems[letter.id] = str(error)
        return pieces, problems

    async def _restore(self, queue: Queue, letter: DeadLetter) -> DeadLetter:
        """Return the dead letter of a damaged chunk with the event's content, if the chunk has been repaired."""
        async with self.pool.connection() as conn:
            events = await read_events(conn, queue, letter.partition_id, letter.offset, 1)
        if not events:
            raise NotFound(
                f"the event at offset {letter.offset} of partition {letter.partition_id} no longer exists: purge its "
                "dead letter"
            )
        (event,) = events
        return structs.replace(
            letter,
            key=event.key,
            event_id=event.given_id,
            event_time=event.event_time,
            headers=event.headers,
            text=Raw(event.raw),
        )


def _describe_missing_group(letter: DeadLetter) -> str:
    if letter.stage == INGEST_STAGE and not letter.group:
        return "it was never an event: correct it, push it again and purge this dead letter"
    return f"group {letter.group!r} no longer exists, so nobody would read the event"


def _encode_letter(queue: Queue, letter: DeadLetter, group_id: int) -> Piece:
    partition = queue.partition_for_event(letter.key, None)
    columns = ChunkColumns(
        letter.raw,
        1,
        queue.stored_keys(partition, [letter.key]),
        None if letter.event_id is None else [letter.event_id],
        None if letter.event_time is None else [micros_of(letter.event_time, 0)],
        [{**letter.headers, DEAD_LETTER_HEADER: str(letter.id)}],
    )
    return Piece(queue, partition, [0], columns, group_id)

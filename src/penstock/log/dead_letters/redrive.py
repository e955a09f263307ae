"""Redrives dead letters: appends them to their queue again, for the group that failed on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, NamedTuple

import psycopg
from msgspec import Raw, structs
from psycopg_pool import AsyncConnectionPool

from penstock.core.clock import Clock
from penstock.core.encryption import encrypt_text
from penstock.core.errors import CorruptChunk, InvalidEvent, InvalidRequest, NotFound
from penstock.core.formatting import counted
from penstock.db.statements import Statements
from penstock.log.catalog import Catalog, is_layout_change
from penstock.log.dead_letters.dead_letter import (
    DAMAGED_STAGE,
    DEAD_LETTER_HEADER,
    INGEST_STAGE,
    DeadLetter,
    DeadLetterEdit,
    DeadLetterFilter,
    Edit,
    JsonMapping,
    Redrive,
)
from penstock.log.dead_letters.dead_letter_store import DeadLetters
from penstock.log.dead_letters.mapping import apply_mapping
from penstock.log.groups import ConsumerGroups
from penstock.log.partition_reader import read_events
from penstock.log.queue import Queue
from penstock.log.storage.chunk import ChunkColumns
from penstock.log.write.append import Appender
from penstock.log.write.encode.batch import Batch, encode_batch
from penstock.log.write.encode.json_events import JsonEvents
from penstock.log.write.encode.piece import Piece
from penstock.log.write.encode.validation import micros_of
from penstock.log.write.flush import AppendRequest

_sql = Statements("penstock.log.dead_letters", "dead_letters.sql")

#: The default number of dead letters in a redrive.
REDRIVE_LIMIT = 100
#: The most dead letters, and the most bytes unless one alone has more, that are redriven in one transaction.
_BATCH_SIZE = 100
_BATCH_BYTES = 16 << 20
#: The most dead letters whose problem is reported.
_MAX_PROBLEMS = 1000


class _EncodedLetter(NamedTuple):
    piece: Piece
    #: The data, if an edit has changed it.
    edited: bytes | None = None


@dataclass(slots=True, eq=False)
class Redriver:
    pool: AsyncConnectionPool[Any]
    catalog: Catalog
    groups: ConsumerGroups
    dead_letters: DeadLetters
    appender: Appender
    clock: Clock
    #: The size limit of an event, for queues without a limit of their own.
    max_event_bytes: int
    batch_size: int = _BATCH_SIZE
    batch_bytes: int = _BATCH_BYTES
    max_problems: int = _MAX_PROBLEMS

    async def redrive(
        self, which: DeadLetterFilter, *, limit: int | None = REDRIVE_LIMIT, edit: Edit | None = None
    ) -> Redrive:
        """Redrive the oldest dead letters, up to ``limit`` (None: all of them), with the data that ``edit`` returns.

        A dead letter that cannot be edited stays. Rejected input that is edited becomes an event for all groups.
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
                refused = await self._redrive_batch(queue, letters, edit)
                replayed += len(letters) - len(refused)
                failed += len(refused)
                problems.update(islice(refused.items(), self.max_problems - len(problems)))
        return Redrive(replayed, failed, problems)

    async def preview(self, which: DeadLetterFilter, edit: Edit, *, limit: int, max_bytes: int) -> list[DeadLetterEdit]:
        """Return what a redrive of the oldest dead letters would send, up to ``limit`` and ``max_bytes`` of data."""
        page = await self.dead_letters.page(which, limit, max_bytes=max_bytes, oldest_first=True)
        edits = []
        for letter in page.letters:
            queue = await self.catalog.get(letter.queue)
            encoded, problems = await self._encode(queue, [letter], edit)
            problem = problems.get(letter.id)
            if problem is None and letter.redrives >= queue.max_redrives:
                problem = _describe_unclaimed(queue, letter)
            after = encoded[letter.id].piece.columns.data if letter.id in encoded else None
            edits.append(DeadLetterEdit.of(letter, after, problem))
        return edits

    async def _redrive_batch(self, queue_name: str, letters: Sequence[DeadLetter], edit: Edit | None) -> dict[int, str]:
        """Redrive dead letters of one queue in one transaction. Return the problems of those that were not, by id."""
        while True:
            queue = await self.catalog.refresh(queue_name)
            encoded, problems = await self._encode(queue, letters, edit)
            pieces = {id: letter.piece for id, letter in encoded.items()}
            partition_ids = await self.appender.partition_ids([AppendRequest([list(pieces.values())])])
            try:
                async with self.pool.connection() as conn, conn.transaction():
                    groups = {piece.target_group for piece in pieces.values()} - {None}
                    rows = await (await conn.execute(_sql["share_groups"], {"groups": list(groups)})).fetchall()
                    existing_groups = {None, *(group_id for (group_id,) in rows)}
                    for letter in letters:
                        # The group came from a cache and may have been deleted since.
                        if letter.id in pieces and pieces[letter.id].target_group not in existing_groups:
                            del pieces[letter.id]
                            self.groups.forget(queue, letter.group)
                            problems[letter.id] = _describe_missing_group(letter)
                    rows = await (await conn.execute(_sql["claim"], {"ids": list(pieces)})).fetchall()
                    # One that has failed again since it was read may have other data now.
                    redrives = {letter.id: letter.redrives for letter in letters}
                    claimed = [id for id, count in rows if count == redrives[id]]
                    request = AppendRequest([[pieces[id] for id in claimed]])
                    await self.appender.append_on(conn, [request], partition_ids)
                    await conn.execute(_sql["mark_redriven"], {"ids": claimed, "skew": self.clock.skew})
                    edited = {
                        id: encrypt_text(data) if queue.encrypted else data.decode()
                        for id in claimed
                        if (data := encoded[id].edited) is not None
                    }
                    if edited:
                        params = {"ids": list(edited), "data": list(edited.values()), "skew": self.clock.skew}
                        await conn.execute(_sql["edit"], params)
            except psycopg.ProgrammingError as error:
                if not is_layout_change(error):
                    raise
                continue
            self.appender.announce([request])
            for letter in letters:
                if letter.id in pieces and letter.id not in claimed:
                    problems[letter.id] = _describe_unclaimed(queue, letter)
            return problems

    async def _encode(
        self, queue: Queue, letters: Sequence[DeadLetter], edit: Edit | None
    ) -> tuple[dict[int, _EncodedLetter], dict[int, str]]:
        """Return the dead letters as events, by id, and the problems of those that cannot be redriven."""
        encoded: dict[int, _EncodedLetter] = {}
        problems: dict[int, str] = {}
        for letter in letters:
            group = await self.groups.get(queue, letter.group)
            is_rejected_input = letter.stage == INGEST_STAGE and not letter.group
            if group is None and (edit is None or not is_rejected_input):
                problems[letter.id] = _describe_missing_group(letter)
                continue
            try:
                restored = await self._restore(queue, letter, must_exist=edit is None)
                data = restored.raw if edit is None else await self._edited_data(queue, restored, edit)
                if group is None:
                    (piece,) = self._encode_batch(queue, Batch(queue.name, data))
                else:
                    piece = _encode_letter(queue, structs.replace(restored, text=Raw(data)), group.id)
                encoded[letter.id] = _EncodedLetter(piece, None if data == restored.raw else data)
            except InvalidEvent as error:
                problems[letter.id] = f"{error.field}: {error.reason}"
            except (CorruptChunk, NotFound, InvalidRequest) as error:
                problems[letter.id] = str(error)
        return encoded, problems

    async def _edited_data(self, queue: Queue, letter: DeadLetter, edit: Edit) -> bytes:
        """Return the data that an edit makes, on one line, or raise InvalidRequest."""
        data = await apply_mapping(edit, letter.raw, self.pool) if isinstance(edit, JsonMapping) else edit(letter)
        (piece,) = self._encode_batch(queue, Batch(queue.name, JsonEvents([data], [letter.key])))
        return piece.columns.data

    def _encode_batch(self, queue: Queue, batch: Batch) -> list[Piece]:
        return encode_batch(self.catalog.partitioner(queue), queue.max_event_bytes or self.max_event_bytes, batch)

    async def _restore(self, queue: Queue, letter: DeadLetter, *, must_exist: bool) -> DeadLetter:
        """Return the dead letter, and that of a damaged chunk with the event's content if the chunk was repaired."""
        if letter.stage != DAMAGED_STAGE:
            return letter
        try:
            async with self.pool.connection() as conn:
                events = await read_events(conn, queue, letter.partition_id, letter.offset, 1)
        except CorruptChunk:
            if must_exist:
                raise
            return letter
        if not events and not must_exist:
            return letter
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
    if not letter.group:
        # Damaged data cannot be corrected.
        advice = "redrive it with corrected data, or purge it" if letter.stage == INGEST_STAGE else "purge it"
        return f"it was never an event: {advice}"
    return f"group {letter.group!r} no longer exists, so nobody would read the event"


def _describe_unclaimed(queue: Queue, letter: DeadLetter) -> str:
    return (
        f"it was redriven {counted(letter.redrives, 'time')} and the cap of the queue is {queue.max_redrives}, "
        "or another redrive has claimed it; raise max_redrives, or purge it"
    )


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

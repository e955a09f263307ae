"""Appends events: writes the waiting pushes as chunks, in one transaction.

A flush merges the pieces of several requests into one chunk per partition where they fit, locks the partitions in the
order of their ids, and appends. That is a single round trip, unless there are several queues, idempotency keys,
rejected input or duplicate ids.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool

from penstock.core import json
from penstock.core.clock import Clock
from penstock.core.encryption import encrypt_text
from penstock.core.errors import DatabaseUnavailable
from penstock.db.fast.prepared import fetch
from penstock.db.kill_backend import LostBackends
from penstock.db.pg_arrays import int_array
from penstock.db.retry import CONNECTION_ERRORS, DatabaseRetry
from penstock.db.statements import Statements
from penstock.log.catalog import MAX_LAYOUT_RETRIES, Catalog, is_layout_change
from penstock.log.notify import Notifier
from penstock.log.queue import Queue
from penstock.log.write.dedup import EventWithId, find_stored_ids
from penstock.log.write.encode.chunk_builder import CALL_BYTES, build_chunks
from penstock.log.write.flush import (
    AppendRequest,
    Duplicates,
    FlushDuplicate,
    FlushPartition,
    IdHashes,
    PartitionName,
    are_distinct,
    assign_base_offsets,
    deduplicates,
    fill_results,
    group_by_partition,
    group_by_queue,
    hash_ids,
    id_params,
)
from penstock.log.write.idempotency import IdempotencyKeys

_sql = Statements("penstock.log.write", "append.sql")
_dead_letters = Statements("penstock.log.dead_letters", "dead_letters.sql")

#: Greater than any offset.
_NO_OFFSET = 2**62


class _FlushedChunk(NamedTuple):
    partition_id: int
    end_offset: int
    event_count: int


@dataclass(slots=True, eq=False)
class Appender:
    pool: AsyncConnectionPool[Any]
    catalog: Catalog
    idempotency_keys: IdempotencyKeys
    notifier: Notifier
    clock: Clock
    retry_seconds: float
    max_call_bytes: int = CALL_BYTES

    async def append(self, requests: Sequence[AppendRequest]) -> None:
        """Store the requests in one transaction and set their results.

        If the connection is lost, the flush id in the chunks tells after a reconnect whether the flush was committed.
        So the retry stores no event twice.
        """
        flush_id = uuid.uuid4()
        retry = DatabaseRetry(self.retry_seconds)
        lost_backends = LostBackends()
        is_unsure = False
        for attempt in count():
            try:
                partition_ids = await self.partition_ids(requests)
                # A backend that has not read the lost statement yet would append after the check.
                async with lost_backends.connection(self.pool) as conn:
                    if is_unsure:
                        await self._append_unless_stored(conn, requests, partition_ids, flush_id)
                    else:
                        await self.append_on(conn, requests, partition_ids, flush_id)
                self.announce(requests)
                return
            except CONNECTION_ERRORS as error:
                is_unsure = True
                await retry.pause(error)
                continue
            except psycopg.Error as error:
                if not is_layout_change(error) or attempt > MAX_LAYOUT_RETRIES:
                    if is_unsure:
                        # A retry by the caller has another flush id, and could store the events twice.
                        raise DatabaseUnavailable(
                            f"the connection was lost during a push, and its result is unknown: {error}; "
                            "repeat it under the same idempotency key or ids"
                        ) from error
                    raise
            await self.follow_layout(requests)

    def announce(self, requests: Sequence[AppendRequest]) -> None:
        for queue_id in {piece.queue.id for request in requests for piece in request.pieces()}:
            self.notifier.notify(queue_id)

    async def append_on(
        self,
        conn: AsyncConnection[Any],
        requests: Sequence[AppendRequest],
        partition_ids: dict[PartitionName, int] | None = None,
        flush_id: uuid.UUID | None = None,
        at: datetime | None = None,
    ) -> None:
        """Store the requests in the connection's transaction, or in a new one if it has none.

        ``at`` sets the time of the append, which requires a transaction.
        """
        partition_ids = partition_ids if partition_ids is not None else await self.partition_ids(requests)
        flush_id = flush_id or uuid.uuid4()
        if not any(request.idempotency_key is not None or request.rejected for request in requests):
            partitions = group_by_partition(requests, partition_ids)
            queues = group_by_queue(partitions)
            hashes = hash_ids(partitions)
            if not partitions or (
                len(queues) == 1
                and are_distinct(hashes.values())
                and await self._write(conn, queues, flush_id, hashes, at=at)
            ):
                fill_results(requests, partitions, {})
                return
        if conn.info.transaction_status == TransactionStatus.IDLE:
            async with conn.transaction():
                await self._append_stepwise(conn, requests, partition_ids, flush_id, at)
        else:
            await self._append_stepwise(conn, requests, partition_ids, flush_id, at)

    async def reject(self, conn: AsyncConnection[Any], requests: Sequence[AppendRequest]) -> None:
        """Store rejected input as dead letters.

        If the connection is lost and the flush has no events, they may be stored twice, but none is lost.
        """
        rows = [
            {
                "queue": queue.id,
                "data": encrypt_text(text.encode()) if queue.encrypted else text,
                "error": f"{rejected.field}: {rejected.reason}".replace("\x00", "\\u0000"),
                "skew": self.clock.skew,
            }
            for request in requests
            for queue, rejected in request.rejected
            for text in (_to_json_text(rejected.raw),)
        ]
        if rows:
            async with conn.cursor() as cursor:
                await cursor.executemany(_dead_letters["reject"], rows)

    async def partition_ids(self, requests: Sequence[AppendRequest]) -> dict[PartitionName, int]:
        """Return the ids of the partitions of the requests. Create partitions that do not exist."""
        names_by_queue: dict[int, tuple[Queue, dict[str, None]]] = {}
        for request in requests:
            for part in filter(None, request.parts):
                queue = part[0].queue
                _, names = names_by_queue.setdefault(queue.id, (queue, {}))
                names.update(dict.fromkeys([piece.partition for piece in part]))
        partition_ids: dict[PartitionName, int] = {}
        for queue, names in names_by_queue.values():
            ids = await self.catalog.partition_ids(queue, names)
            partition_ids.update({(queue.id, name): partition_id for name, partition_id in ids.items()})
        return partition_ids

    async def follow_layout(self, requests: Sequence[AppendRequest]) -> None:
        """Refresh the queues of the requests, and assign the events to their current partitions."""
        for name in {piece.queue.name for request in requests for piece in request.pieces()}:
            queue = await self.catalog.refresh(name)
            for request in requests:
                request.parts = [
                    [
                        current
                        for piece in part
                        for current in (piece.repartition(queue) if piece.queue.name == name else [piece])
                    ]
                    for part in request.parts
                ]

    async def _append_stepwise(
        self,
        conn: AsyncConnection[Any],
        requests: Sequence[AppendRequest],
        partition_ids: dict[PartitionName, int],
        flush_id: uuid.UUID,
        at: datetime | None,
    ) -> None:
        """Append under locks: claim idempotency keys, store rejected input, drop duplicates, then write."""
        new_requests = await self.idempotency_keys.claim_all(conn, requests)
        await self.reject(conn, new_requests)
        partitions = group_by_partition(new_requests, partition_ids)
        if not partitions:
            fill_results(new_requests, partitions, {})
            await self.idempotency_keys.store_results(conn, new_requests)
            return
        await self._lock(conn, partitions)
        duplicates, hashes = await self._find_duplicates(conn, partitions)
        for partition in partitions.values():
            kept = []
            for piece in partition.pieces:
                if id(piece) in duplicates:
                    without_duplicates = piece.without(set(duplicates[id(piece)]))
                    hashes[id(without_duplicates)] = hashes[id(piece)]
                    piece = without_duplicates
                if piece.columns.count:
                    kept.append(piece)
            partition.pieces = kept
            partition.events = sum(piece.columns.count for piece in kept)
        not_empty = {name: partition for name, partition in partitions.items() if partition.pieces}
        if not_empty:
            await self._write(conn, group_by_queue(not_empty), flush_id, hashes, is_locked=True, at=at)
        fill_results(new_requests, partitions, duplicates)
        await self.idempotency_keys.store_results(conn, new_requests)

    async def _lock(self, conn: AsyncConnection[Any], partitions: dict[PartitionName, FlushPartition]) -> None:
        ids = sorted(partition.partition_id for partition in partitions.values())
        await conn.execute(_sql["lock_partitions"], {"partitions": int_array(ids)})

    async def _write(
        self,
        conn: AsyncConnection[Any],
        queues: Sequence[Sequence[FlushPartition]],
        flush_id: uuid.UUID,
        hashes: IdHashes,
        *,
        is_locked: bool = False,
        at: datetime | None = None,
    ) -> bool:
        """Append the events and set the base offsets of the partitions.

        If ``is_locked``, the partitions are locked and duplicates are removed. Otherwise, return False without writing
        if there may be duplicates, or if more than one call is needed.
        """
        for partitions in queues:
            queue = partitions[0].queue
            pieces = [(partition.partition_id, partition.pieces) for partition in partitions]
            calls = build_chunks(
                pieces, self.max_call_bytes, encrypted=queue.encrypted, readable=queue.readable_from_sql
            )
            if len(calls) > 1 and not is_locked:
                return False
            rows: list[Any] = []
            without_ids = {partition.partition_id: partition for partition in partitions}
            for chunks in calls:
                params = chunks.params()
                params.update(skew=self.clock.skew, flush=flush_id, epoch=queue.epoch, at=at)
                statement = "append"
                if hashes or chunks.is_targeted():
                    # The ids of a partition go with its first chunk, because they count from the head before it.
                    first_time = [without_ids.pop(p) for p in dict.fromkeys(chunks.partitions) if p in without_ids]
                    statement = "append_with_ids"
                    params.update(id_params(first_time, chunks.partitions, hashes))
                    params["targets"] = int_array(chunks.targets)
                    params["id_segments"] = int_array(queue.id_segments if hashes and not is_locked else [])
                appended = await fetch(conn, _sql.table(statement, queue.id, queue.segment), params)
                if not appended:
                    return False
                rows += appended
            assign_base_offsets(partitions, rows)
        return True

    async def _find_duplicates(
        self, conn: AsyncConnection[Any], partitions: dict[PartitionName, FlushPartition]
    ) -> tuple[Duplicates, IdHashes]:
        """Return the events that are stored already or occur twice in the flush, and the id hashes of the others."""
        duplicates: Duplicates = {}
        hashes: IdHashes = {}
        for queue_partitions in group_by_queue(partitions):
            first_events: dict[bytes, EventWithId] = {}
            for partition in queue_partitions:
                for piece in partition.pieces:
                    if not deduplicates(piece):
                        continue
                    piece_hashes = piece.id_hashes()
                    kept: list[bytes | None] = []
                    for position, digest in enumerate(piece_hashes):
                        first = None if digest is None else first_events.get(digest)
                        if first is not None:
                            duplicate = FlushDuplicate(id(first.piece), first.position)
                            duplicates.setdefault(id(piece), {})[position] = duplicate
                        else:
                            kept.append(digest)
                            if digest is not None:
                                first_events[digest] = EventWithId(piece, position, partition.partition_id)
                    hashes[id(piece)] = kept if id(piece) in duplicates else piece_hashes
            queue = queue_partitions[0].queue
            stored = await find_stored_ids(conn, self.catalog, queue, first_events, self.clock)
            for digest, location in stored.items():
                first = first_events[digest]
                piece_id = id(first.piece)
                duplicates.setdefault(piece_id, {})[first.position] = location
                hashes[piece_id] = [other for other in hashes[piece_id] if other != digest]
        return duplicates, hashes

    async def _append_unless_stored(
        self,
        conn: AsyncConnection[Any],
        requests: Sequence[AppendRequest],
        partition_ids: dict[PartitionName, int],
        flush_id: uuid.UUID,
    ) -> None:
        """Append after a lost connection, if the flush was not committed. Locks cover the check and the append."""
        async with conn.transaction():
            partitions = group_by_partition(requests, partition_ids)
            await self._lock(conn, partitions)
            flushed: list[_FlushedChunk] = []
            for queue_partitions in group_by_queue(partitions):
                queue = queue_partitions[0].queue
                params = {"partitions": [p.partition_id for p in queue_partitions], "flush": flush_id}
                for segment in range(max(1, queue.segment - 1), queue.segment + 1):
                    try:
                        async with conn.transaction():
                            cursor = await conn.execute(_sql.table("was_flushed", queue.id, segment), params)
                            flushed += map(_FlushedChunk._make, await cursor.fetchall())
                    except psycopg.errors.UndefinedTable:
                        continue
            if flushed:
                await self._restore_results(conn, requests, partition_ids, flushed)
            else:
                await self.append_on(conn, requests, partition_ids, flush_id)

    async def _restore_results(
        self,
        conn: AsyncConnection[Any],
        requests: Sequence[AppendRequest],
        partition_ids: dict[PartitionName, int],
        flushed: Sequence[_FlushedChunk],
    ) -> None:
        """Set the results of a flush that was committed, from the chunks that it has stored."""
        first_offsets: dict[int, int] = {}
        for chunk in flushed:
            first = chunk.end_offset - chunk.event_count
            first_offsets[chunk.partition_id] = min(first, first_offsets.get(chunk.partition_id, _NO_OFFSET))
        new_requests: list[AppendRequest] = []
        for request in requests:
            is_replayed = await self.idempotency_keys.claim_or_replay(conn, request)
            is_of_flush = any(
                appended.offsets and appended.offsets[-1] >= first_offsets.get(appended.partition_id, _NO_OFFSET)
                for result in request.results
                for appended in result.placed()
            )
            if not is_replayed or is_of_flush:
                new_requests.append(request)
        partitions = group_by_partition(new_requests, partition_ids)
        for partition in partitions.values():
            partition.base = first_offsets.get(partition.partition_id, _NO_OFFSET)
        # All ids are stored now. The duplicates of the flush are those with an offset below its first.
        stored, _ = await self._find_duplicates(conn, partitions)
        duplicates: Duplicates = {}
        for partition in partitions.values():
            for piece in partition.pieces:
                earlier = {
                    position: location
                    for position, location in stored.get(id(piece), {}).items()
                    if isinstance(location, FlushDuplicate)
                    or location.partition_id != partition.partition_id
                    or location.offset < partition.base
                }
                if earlier:
                    duplicates[id(piece)] = earlier
        fill_results(new_requests, partitions, duplicates)


def _to_json_text(raw: bytes) -> str:
    """Return rejected input as JSON: the input itself, or a string that quotes it if it is not JSON."""
    try:
        json.validate(raw)
        text = raw.decode()
        if "\x00" not in text:
            return text
    except (json.JSONProblem, UnicodeDecodeError):
        pass
    return json.encode(raw.decode("utf-8", "backslashreplace").replace("\x00", "\ufffd")).decode()

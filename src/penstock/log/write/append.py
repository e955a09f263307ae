"""Appending: what the waiting pushes bring becomes chunks, in one transaction.

A flush takes the requests that wait, merges their pieces into one chunk per partition where they fit, locks the
partitions in id order and appends: a single round trip, unless several queues, an idempotency key or an id that was
seen before ask for more care.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec
import psycopg
from psycopg.pq import TransactionStatus

from penstock.core import json
from penstock.core.errors import DatabaseUnavailable, IdempotencyConflict
from penstock.db.fast.prepared import fetch
from penstock.db.kill_backend import Orphans
from penstock.db.pg_arrays import numbers
from penstock.db.retry import LOST, Patience
from penstock.db.statements import Statements
from penstock.log.write.chunk_builder import encode_chunks
from penstock.log.write.dedup import IdOf, find_ids
from penstock.log.write.flush import (
    Lane,
    Repeated,
    Request,
    Twin,
    all_differ,
    answer,
    by_queue,
    deduplicates,
    gather,
    hash_ids,
    id_params,
    settle,
)
from penstock.log.write.reroute import replaced
from penstock.log.write.result import Placed, PushResult

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool

    from penstock.core.clock import Clock
    from penstock.log.catalog import Catalog
    from penstock.log.notify import Signals
    from penstock.log.queue import Queue

_sql = Statements("penstock.log.write", "append.sql")
_dead = Statements("penstock.log", "dead_letters.sql")

_NOWHERE = 2**62

#: A queue does not move on more often than this while one call looks: then the error is another one.
MOST_LOOKS = 100


def moved_on(error: psycopg.Error) -> bool:
    """Whether a statement was made for tables or partitions that are no longer the queue's: look again, repeat."""
    return error.sqlstate in ("PS001", "42P01", "42883")


def as_json_text(raw: bytes) -> str:
    """What was pushed as text that is JSON: itself, or if it is none a string that quotes it."""
    try:
        json.validate(raw)
        text = raw.decode()
        if "\x00" not in text:
            return text
    except (json.JSONProblem, UnicodeDecodeError):
        pass
    return json.encode(raw.decode("utf-8", "backslashreplace").replace("\x00", "\ufffd")).decode()


class _StoredResult(msgspec.Struct, array_like=True):
    parts: list[list[Placed]]
    #: How many events of each part were shed; empty if none were.
    shed: list[int] = []


def _stored(results: Sequence[PushResult]) -> bytes:
    shed = [result.shed for result in results]
    parts = [[p.plain() for p in result.placed()] for result in results]
    return msgspec.msgpack.encode(_StoredResult(parts, shed if any(shed) else []))


class Appender:
    """Writes requests to the log."""

    def __init__(
        self,
        pool: AsyncConnectionPool[Any],
        catalog: Catalog,
        signals: Signals,
        clock: Clock,
        retry_seconds: float,
    ) -> None:
        self._pool = pool
        self._signals = signals
        self._catalog = catalog
        self._clock = clock
        self._retry_seconds = retry_seconds

    async def append(self, requests: Sequence[Request]) -> None:
        """Store the requests in one transaction and fill in their results.

        A lost connection is not the end: when it comes back, the flush's mark in the chunks says whether it got
        through, so that repeating it stores nothing twice.
        """
        flush = uuid.uuid4()
        patience = Patience(self._retry_seconds)
        orphans = Orphans()
        unsure = False
        for looks in count():
            try:
                lanes = await self.lanes(requests)
                async with self._pool.connection() as conn:
                    # Who has yet to read our statement would append it after we have looked.
                    await orphans.end(conn)
                    with orphans.watching(conn):
                        await self._append_once(conn, requests, lanes, flush, unsure=unsure)
                self.announce(requests)
                return
            except LOST as error:
                unsure = True
                await patience.pause(error)
                continue
            except psycopg.Error as error:
                if not moved_on(error) or looks > MOST_LOOKS:
                    if unsure:
                        # Whoever repeats it under another mark may store it twice.
                        raise DatabaseUnavailable(
                            f"a push was cut off, and whether it got through could not be found out: {error}; "
                            "repeat it under the same idempotency key or ids"
                        ) from error
                    raise
            await self.look_again(requests)

    async def _append_once(
        self,
        conn: AsyncConnection[Any],
        requests: Sequence[Request],
        lanes: dict[tuple[int, str], int],
        flush: uuid.UUID,
        *,
        unsure: bool,
    ) -> None:
        if not unsure:
            await self.append_on(conn, requests, lanes, flush)
            return
        # Looked for and, if it is not there, appended under the same locks.
        async with conn.transaction():
            if not await self._got_through(conn, requests, lanes, flush):
                await self.append_on(conn, requests, lanes, flush)

    def announce(self, requests: Sequence[Request]) -> None:
        """Wake those who wait for what was appended, now that it is committed."""
        for queue_id in {piece.queue.id for request in requests for piece in request.pieces()}:
            self._signals.pushed(queue_id)

    async def append_on(
        self,
        conn: AsyncConnection[Any],
        requests: Sequence[Request],
        lanes: dict[tuple[int, str], int] | None = None,
        flush: uuid.UUID | None = None,
        at: datetime | None = None,
    ) -> None:
        """Store the requests on this connection: in its transaction if it is in one, else in one of their own.

        ``at`` is the time of the append, where it has been decided already; only in a transaction.
        """
        lanes = lanes if lanes is not None else await self.lanes(requests)
        flush = flush or uuid.uuid4()
        if not any(request.idempotency_key is not None or request.rejected for request in requests):
            work = gather(requests, lanes)
            parts = by_queue(work)
            hashes = hash_ids(work)
            if not work or (
                len(parts) == 1 and all_differ(hashes.values()) and await self._write(conn, parts, flush, hashes, at=at)
            ):
                answer(requests, work, {})
                return
        if conn.info.transaction_status == TransactionStatus.IDLE:
            async with conn.transaction():
                await self._append_carefully(conn, requests, lanes, flush, at)
        else:
            await self._append_carefully(conn, requests, lanes, flush, at)

    async def _append_carefully(
        self,
        conn: AsyncConnection[Any],
        requests: Sequence[Request],
        lanes: dict[tuple[int, str], int],
        flush: uuid.UUID,
        at: datetime | None,
    ) -> None:
        fresh = await self._unanswered(conn, requests)
        await self.reject(conn, fresh)
        work = gather(fresh, lanes)
        if not work:
            answer(fresh, work, {})
            await self._remember(conn, fresh)
            return
        await self._lock(conn, work)
        repeated, hashes = await self._find_repeated(conn, work)
        for lane in work.values():
            kept = []
            for piece in lane.pieces:
                if id(piece) in repeated:
                    less = piece.without(set(repeated[id(piece)]))
                    hashes[id(less)] = hashes[id(piece)]
                    piece = less
                if piece.columns.count:
                    kept.append(piece)
            lane.pieces = kept
            lane.events = sum(piece.columns.count for piece in kept)
        remaining = {key: lane for key, lane in work.items() if lane.pieces}
        if remaining:
            await self._write(conn, by_queue(remaining), flush, hashes, looked=True, at=at)
        answer(fresh, work, repeated)
        await self._remember(conn, fresh)

    async def reject(self, conn: AsyncConnection[Any], requests: Sequence[Request]) -> None:
        """Make dead letters of what could not be events.

        If a connection is lost and nothing else was in the flush, they may be there twice; none is lost.
        """
        letters = [
            {
                "queue": queue_id,
                "data": as_json_text(rejected.raw),
                "error": f"{rejected.field}: {rejected.reason}".replace("\x00", "\\u0000"),
                "skew": self._clock.skew,
            }
            for request in requests
            for queue_id, rejected in request.rejected
        ]
        if letters:
            async with conn.cursor() as cursor:
                await cursor.executemany(_dead["reject"], letters)

    async def _remember(self, conn: AsyncConnection[Any], requests: Sequence[Request]) -> None:
        """Keep the answers for those who may ask again."""
        keyed = [request for request in requests if request.idempotency_key is not None]
        if keyed:
            params = {
                "keys": [request.idempotency_key for request in keyed],
                "results": [_stored(request.results) for request in keyed],
            }
            await conn.execute(_sql["store_requests"], params)

    async def _unanswered(self, conn: AsyncConnection[Any], requests: Sequence[Request]) -> list[Request]:
        """Claim the keys of all requests at once; those that were answered before are told how, and left out."""
        keyed = {request.idempotency_key: request for request in requests if request.idempotency_key is not None}
        claimed: set[str] = set()
        if len(keyed) > 1:
            # In one order everywhere, so that two flushes can never wait for each other.
            some = sorted(keyed.items())
            params = {
                "keys": [key for key, _ in some],
                "fingerprints": [request.fingerprint for _, request in some],
                "skew": self._clock.skew,
            }
            claimed = {key for (key,) in await (await conn.execute(_sql["claim_requests"], params)).fetchall()}
        fresh: list[Request] = []
        for request in requests:
            key = request.idempotency_key
            is_claimed = key in claimed and keyed.get(key) is request
            if is_claimed or not await self.answered_before(conn, request):
                fresh.append(request)
        return fresh

    async def lanes(self, requests: Sequence[Request]) -> dict[tuple[int, str], int]:
        """The partitions that the requests need, made where they are missing."""
        wanted: dict[int, tuple[Queue, dict[str, None]]] = {}
        for request in requests:
            for part in filter(None, request.parts):
                queue = part[0].queue
                _, names = wanted.setdefault(queue.id, (queue, {}))
                names.update(dict.fromkeys([piece.partition for piece in part]))
        lanes: dict[tuple[int, str], int] = {}
        for queue, names in wanted.values():
            found = await self._catalog.lanes(queue, names)
            lanes.update({(queue.id, name): lane for name, lane in found.items()})
        return lanes

    async def look_again(self, requests: Sequence[Request]) -> None:
        """Place the requests' pieces anew in queues that have moved on."""
        for name in {piece.queue.name for request in requests for piece in request.pieces()}:
            queue = await self._catalog.refresh(name)
            for request in requests:
                request.parts = [
                    [
                        again
                        for piece in part
                        for again in (replaced(piece, queue) if piece.queue.name == name else [piece])
                    ]
                    for part in request.parts
                ]

    async def _lock(self, conn: AsyncConnection[Any], work: dict[tuple[int, str], Lane]) -> None:
        await conn.execute(
            _sql["lock_partitions"], {"partitions": numbers(sorted(lane.partition_id for lane in work.values()))}
        )

    async def _write(
        self,
        conn: AsyncConnection[Any],
        parts: Sequence[Sequence[Lane]],
        flush: uuid.UUID,
        hashes: dict[int, list[bytes | None]],
        *,
        looked: bool = False,
        at: datetime | None = None,
    ) -> bool:
        """Append, and learn where; False, and nothing done, if an id was seen before (unless ``looked``)."""
        for lanes in parts:
            queue = lanes[0].queue
            calls = encode_chunks([(lane.partition_id, lane.pieces) for lane in lanes])
            if len(calls) > 1 and not looked:
                return False  # step by step, with all partitions locked before the first call
            rows: list[Any] = []
            unsent = {lane.partition_id: lane for lane in lanes}
            for chunks in calls:
                params = chunks.params()
                params.update(skew=self._clock.skew, flush=flush, epoch=queue.epoch, at=at)
                statement = "append"
                if hashes or chunks.is_targeted():
                    # A partition's ids go with its first chunk, while its head is still the one they count from.
                    firsts = [unsent.pop(p) for p in dict.fromkeys(chunks.partitions) if p in unsent]
                    statement = "append_more"
                    params.update(id_params(firsts, chunks.partitions, hashes))
                    params["targets"] = numbers(chunks.targets)
                    params["id_segments"] = numbers(queue.id_segments if hashes and not looked else [])
                some = await fetch(conn, _sql.table(statement, queue.id, queue.segment), params)
                if not some:
                    return False
                rows += some
            settle(lanes, rows)
        return True

    async def _find_repeated(
        self, conn: AsyncConnection[Any], work: dict[tuple[int, str], Lane]
    ) -> tuple[Repeated, dict[int, list[bytes | None]]]:
        """Which events are there already, or twice in the flush, and the id hashes of all."""
        repeated: Repeated = {}
        hashes: dict[int, list[bytes | None]] = {}
        for lanes in by_queue(work):
            firsts: dict[bytes, IdOf] = {}
            for lane in lanes:
                for piece in lane.pieces:
                    if not deduplicates(piece):
                        continue
                    mine = piece.id_hashes()
                    kept: list[bytes | None] = []
                    for place, digest in enumerate(mine):
                        first = None if digest is None else firsts.get(digest)
                        if first is not None:
                            repeated.setdefault(id(piece), {})[place] = Twin(id(first.piece), first.place)
                        else:
                            kept.append(digest)
                            if digest is not None:
                                firsts[digest] = IdOf(piece, place, lane.partition_id)
                    hashes[id(piece)] = kept if id(piece) in repeated else mine
            for digest, where in (await find_ids(conn, self._catalog, lanes[0].queue, firsts, self._clock)).items():
                piece_id = id(firsts[digest].piece)
                repeated.setdefault(piece_id, {})[firsts[digest].place] = where
                hashes[piece_id] = [h for h in hashes[piece_id] if h != digest]
        return repeated, hashes

    async def remember(self, conn: AsyncConnection[Any], key: str, results: Sequence[PushResult]) -> None:
        """Keep what was answered to a request whose key was claimed in this transaction."""
        await self.store(conn, key, _stored(results))

    async def knows(self, key: str) -> bool:
        """Whether something was answered under an idempotency key."""
        async with self._pool.connection() as conn:
            return await (await conn.execute(_sql["read_request"], {"key": key})).fetchone() is not None

    async def answered_before(self, conn: AsyncConnection[Any], request: Request) -> bool:
        """Claim a request's key, or find out that it was answered before, and how."""
        before = await self.claim(conn, request)
        if before is None:
            return False
        stored = msgspec.msgpack.decode(before, type=_StoredResult)
        shed = stored.shed or [0] * len(stored.parts)
        request.results = [
            PushResult(part, replayed=True, shed=lost) for part, lost in zip(stored.parts, shed, strict=True)
        ]
        return True

    async def claim(self, conn: AsyncConnection[Any], request: Request) -> bytes | None:
        """Make the request's idempotency key its own; what was answered under it before, if it was the same request."""
        if request.idempotency_key is None:
            return None
        claim = {"key": request.idempotency_key, "fingerprint": request.fingerprint, "skew": self._clock.skew}
        if (await conn.execute(_sql["claim_request"], claim)).rowcount:
            return None
        row = await (await conn.execute(_sql["read_request"], {"key": request.idempotency_key})).fetchone()
        if row is None or bytes(row[0]) != request.fingerprint:
            raise IdempotencyConflict(
                f"the idempotency key {request.idempotency_key!r} was used before for other events; "
                "use a new key for new events"
            )
        return bytes(row[1])

    async def store(self, conn: AsyncConnection[Any], key: str, result: bytes) -> None:
        """Keep an answer under an idempotency key that was claimed in this transaction."""
        await conn.execute(_sql["store_request"], {"key": key, "result": result})

    async def _got_through(
        self,
        conn: AsyncConnection[Any],
        requests: Sequence[Request],
        lanes: dict[tuple[int, str], int],
        flush: uuid.UUID,
    ) -> bool:
        work = gather(requests, lanes)
        async with conn.transaction():
            await self._lock(conn, work)
            rows: list[Any] = []
            for part in by_queue(work):
                queue = part[0].queue
                params = {"partitions": [lane.partition_id for lane in part], "flush": flush}
                for segment in range(max(1, queue.segment - 1), queue.segment + 1):
                    try:
                        async with conn.transaction():
                            cursor = await conn.execute(_sql.table("was_flushed", queue.id, segment), params)
                            rows += await cursor.fetchall()
                    except psycopg.errors.UndefinedTable:
                        continue
            if not rows:
                return False
            await self._answer_again(conn, requests, lanes, rows)
        return True

    async def _answer_again(
        self,
        conn: AsyncConnection[Any],
        requests: Sequence[Request],
        lanes: dict[tuple[int, str], int],
        rows: Sequence[tuple[int, int, int]],
    ) -> None:
        """Work out from what a flush has stored what its answer was."""
        firsts: dict[int, int] = {}
        for partition_id, end_offset, events in rows:
            firsts[partition_id] = min(end_offset - events, firsts.get(partition_id, end_offset))

        def first(partition_id: int) -> int:
            return firsts.get(partition_id, _NOWHERE)

        fresh: list[Request] = []
        for request in requests:
            known = await self.answered_before(conn, request)
            placed = [p for result in request.results for p in result.placed()]
            if not known or any(p.offsets and p.offsets[-1] >= first(p.partition_id) for p in placed):
                fresh.append(request)
        work = gather(fresh, lanes)
        for lane in work.values():
            lane.base = first(lane.partition_id)
        # Every id is found now; those that were there before the flush stand below what it stored.
        found, _ = await self._find_repeated(conn, work)
        bases = {id(piece): lane.base for lane in work.values() for piece in lane.pieces}
        repeated: Repeated = {}
        for piece_id, places in found.items():
            before = {place: at for place, at in places.items() if not isinstance(at, int) or at < bases[piece_id]}
            if before:
                repeated[piece_id] = before
        answer(fresh, work, repeated)

"""Idempotency keys: the result of a request is stored under its key, and returned if the request is repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from operator import itemgetter
from typing import Any

import msgspec
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from penstock.core.clock import Clock
from penstock.core.errors import IdempotencyConflict
from penstock.db.statements import Statements
from penstock.log.write.encode.piece import Piece
from penstock.log.write.flush import AppendRequest
from penstock.log.write.push_result import AppendedEvents, PushResult, RejectedInput

_sql = Statements("penstock.log.write", "idempotency.sql")


class _StoredResult(msgspec.Struct, array_like=True):
    parts: list[list[AppendedEvents]]
    #: The number of shed events of each part, or empty if there are none.
    shed: list[int] = []


def fingerprint(
    parts: Sequence[Sequence[Piece]], rejected: Sequence[tuple[int, RejectedInput]] = (), acks: bytes = b""
) -> bytes:
    """Return a hash of the content of a request, which does not depend on the partitions of the events."""
    digest = blake2b(digest_size=16)
    digest.update(acks)
    for _queue_id, invalid in rejected:
        digest.update(b"%d %d " % (invalid.index, len(invalid.raw)) + invalid.raw)
    for part in parts:
        events = sorted((event for piece in part for event in piece.event_tuples()), key=itemgetter(0))
        digest.update(repr([piece.queue.name for piece in part[:1]] + events).encode())
    return digest.digest()


@dataclass(slots=True, eq=False)
class IdempotencyKeys:
    pool: AsyncConnectionPool[Any]
    clock: Clock

    async def is_used(self, key: str) -> bool:
        async with self.pool.connection() as conn:
            return await (await conn.execute(_sql["read_request"], {"key": key})).fetchone() is not None

    async def claim(self, conn: AsyncConnection[Any], request: AppendRequest) -> bytes | None:
        """Claim the key of a request in the connection's transaction.

        Return the stored result if the same request was stored before. Raise IdempotencyConflict if another request
        has used the key.
        """
        key = request.idempotency_key
        if key is None or await self._insert_keys(conn, [request]):
            return None
        row = await (await conn.execute(_sql["read_request"], {"key": key})).fetchone()
        stored_fingerprint, result = row if row is not None else (b"", b"")
        if bytes(stored_fingerprint) != request.fingerprint:
            raise IdempotencyConflict(
                f"the idempotency key {key!r} was used before for other events; use a new key for new events"
            )
        return bytes(result)

    async def claim_or_replay(self, conn: AsyncConnection[Any], request: AppendRequest) -> bool:
        """Claim the key of a request. If the request was stored before, set its results and return True."""
        result = await self.claim(conn, request)
        if result is None:
            return False
        stored = msgspec.msgpack.decode(result, type=_StoredResult)
        shed = stored.shed or [0] * len(stored.parts)
        request.results = [
            PushResult(part, replayed=True, shed=part_shed) for part, part_shed in zip(stored.parts, shed, strict=True)
        ]
        return True

    async def claim_all(self, conn: AsyncConnection[Any], requests: Sequence[AppendRequest]) -> list[AppendRequest]:
        """Claim the keys of requests. Set the results of those that were stored before, and return the others."""
        by_key = {request.idempotency_key: request for request in requests if request.idempotency_key is not None}
        claimed = await self._insert_keys(conn, [by_key[key] for key in sorted(by_key)])
        new_requests: list[AppendRequest] = []
        for request in requests:
            key = request.idempotency_key
            is_claimed = key in claimed and by_key.get(key) is request
            if is_claimed or not await self.claim_or_replay(conn, request):
                new_requests.append(request)
        return new_requests

    async def _insert_keys(self, conn: AsyncConnection[Any], requests: Sequence[AppendRequest]) -> set[str]:
        """Insert the keys of requests, sorted so that two flushes cannot deadlock. Return those that are new."""
        if not requests:
            return set()
        params = {
            "keys": [request.idempotency_key for request in requests],
            "fingerprints": [request.fingerprint for request in requests],
            "skew": self.clock.skew,
        }
        return {key for (key,) in await (await conn.execute(_sql["claim_requests"], params)).fetchall()}

    async def store(self, conn: AsyncConnection[Any], results: Mapping[str, bytes]) -> None:
        """Store results under keys that were claimed in the same transaction."""
        params = {"keys": list(results), "results": list(results.values())}
        await conn.execute(_sql["store_requests"], params)

    async def store_results(self, conn: AsyncConnection[Any], requests: Sequence[AppendRequest]) -> None:
        """Store the results of requests whose keys were claimed in the same transaction."""
        results = {
            request.idempotency_key: _encode_results(request.results)
            for request in requests
            if request.idempotency_key is not None
        }
        if results:
            await self.store(conn, results)


def _encode_results(results: Sequence[PushResult]) -> bytes:
    shed = [result.shed for result in results]
    parts = [[appended.plain() for appended in result.placed()] for result in results]
    return msgspec.msgpack.encode(_StoredResult(parts, shed if any(shed) else []))
